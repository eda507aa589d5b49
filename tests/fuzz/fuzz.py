"""Looks for bytes that a parser does not survive: `make fuzz MINUTES=…` runs it for each target.

    python -m tests.fuzz.fuzz TARGET --minutes 1 --found build/fuzz

Coverage-guided by Atheris (libFuzzer for Python). It goes on from ``tests/hostile/TARGET`` and what
earlier runs found new in ``build/fuzz/corpus/TARGET``. A finding is a file
``build/fuzz/TARGET-crash-…``: put it into ``tests/hostile/TARGET`` under a name that says what it
is, mend the parser, and `make test` replays it for ever.

Without coverage libFuzzer takes no input for interesting and tries a byte or two of nothing for
ever: ``tests/fuzz/run`` calls that a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import atheris


class _Unwrapped(MetaPathFinder):
    """Finds modules with Python's own loaders.

    Those of an editable installation load by themselves what they wrap, and Atheris, which wraps
    them once more, is never asked for the code: nothing would be instrumented.
    """

    def __init__(self) -> None:
        self._others = list(sys.meta_path)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in self._others:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = getattr(spec.loader, "_skbuild_loader", spec.loader)
                return spec
        return None


class _AtOnce(Executor):
    """Does work when it is given: handing a few bytes from thread to thread takes longer."""

    def __init__(self, workers: int) -> None: ...

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **named))
        except Exception as error:
            done.set_exception(error)
        return done


sys.meta_path.insert(0, _Unwrapped())
with atheris.instrument_imports(include=["blackout"]):
    from tests.fuzz.mutate import Form, with_another_value
    from tests.fuzz.targets import TARGETS, Target, attempt
    from tests.fuzz.workshop import Workshop

    from blackout.text import source

HOSTILE = Path(__file__).parent.parent / "hostile"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    source.ThreadPoolExecutor = _AtOnce  # type: ignore[assignment, misc]
    chosen = TARGETS[options.target]
    workshop = Workshop(Path(tempfile.mkdtemp(dir=_fast_folder(), prefix="blackout-fuzz-")))
    corpus = options.found / "corpus" / chosen.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(chosen.seeds(workshop)):
        (corpus / f"seed-{number}").write_bytes(seed)
    arguments = [
        sys.argv[0],
        f"-max_total_time={round(60 * options.minutes)}",
        f"-artifact_prefix={options.found}/{chosen.name}-",
        "-timeout=20",
        "-rss_limit_mb=3000",
        "-malloc_limit_mb=1000",
        "-max_len=65536",
        "-len_control=0",  # good files are long from the start
        "-print_final_stats=1",
        "-verbosity=1",
        *_dictionary(chosen, options.found),
        str(corpus),
        *([str(HOSTILE / chosen.name)] if (HOSTILE / chosen.name).is_dir() else []),
    ]

    def one(data: bytes) -> None:
        with contextlib.redirect_stderr(io.StringIO()):  # progress of resumed runs
            attempt(workshop, chosen, data)

    mutator = {"custom_mutator": _mutator(chosen.form)} if chosen.form else {}
    atheris.Setup(arguments, one, **mutator)
    atheris.Fuzz()


def _mutator(form: Form) -> Callable[[bytes, int, int], bytes]:
    """Half of the time one value becomes another, else bytes do."""

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.5:
            changed = with_another_value(form, data, rng)
            if changed is not None and len(changed) <= most:
                return changed
        return bytes(atheris.Mutate(data, most))

    return mutate


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _dictionary(chosen: Target, found: Path) -> list[str]:
    if not chosen.tokens:
        return []
    path = found / f"{chosen.name}.dict"
    quoted = [token.replace("\\", "\\\\").replace('"', '\\"') for token in chosen.tokens]
    path.write_text("".join(f'"{token}"\n' for token in quoted))
    return [f"-dict={path}"]


if __name__ == "__main__":
    main()
