"""Looks for bytes that a parser does not survive: `make fuzz MINUTES=…` runs it for each target.

    python -m tests.fuzz.fuzz TARGET --minutes 1 --found build/fuzz

Coverage-guided by Atheris (libFuzzer for Python). It goes on from ``tests/hostile/TARGET`` and what
earlier runs found new in ``build/fuzz/corpus/TARGET``. A finding is a file
``build/fuzz/TARGET-crash-…``: put it into ``tests/hostile/TARGET`` under a name that says what it
is, mend the parser, and `make test` replays it for ever.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["blackout"]):
    from tests.fuzz.targets import TARGETS, Target, attempt
    from tests.fuzz.workshop import Workshop

HOSTILE = Path(__file__).parent.parent / "hostile"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
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
        "-print_final_stats=1",
        "-verbosity=1",
        *_dictionary(chosen, options.found),
        str(corpus),
        *([str(HOSTILE / chosen.name)] if (HOSTILE / chosen.name).is_dir() else []),
    ]

    def one(data: bytes) -> None:
        with contextlib.redirect_stderr(io.StringIO()):  # progress of resumed runs
            attempt(workshop, chosen, data)

    atheris.Setup(arguments, one)
    atheris.Fuzz()


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
