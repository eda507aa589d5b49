"""Where studies are done: the texts, the runs with their cache, and the size of it all.

A study asks for texts with :meth:`Lab.corpus`, has runs done with :meth:`Lab.run` and lets
validation text choose among settings with :meth:`Lab.choose`. With ``quick`` everything is a
miniature on text that ships with Python, to see that it works.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.files.atomic import make_folder, replacing
from blackout.files.plain_json import from_json
from blackout.text.bundled import bundled_text
from blackout.text.prepared import PARTS, prepare
from blackout.trials.halving import choose
from blackout.trials.trials import Outcome, Trial, Trials

_QUICK_LINES = {"train": 1200, "valid": 150, "test": 150}


@dataclass(frozen=True)
class Corpus:
    """A text in its three parts, prepared."""

    name: str
    files: dict[str, Path]
    prepared: Path
    vocab_size: int
    words: int
    """Words and sentence ends of the training part."""


class Lab:
    """The place of a study.

    ``out``: folder for results and for the cache of runs; ``data``: folder with a folder for each
    corpus, each with train, valid and test (as they are, or with .txt, .gz or .xz behind).
    ``hidden`` and ``epochs`` stand over a study's own where it says so.
    """

    def __init__(
        self,
        out: Path,
        data: Path | None = None,
        *,
        quick: bool = False,
        workers: int = 0,
        hidden: Sequence[int] = (),
        epochs: int | None = None,
    ) -> None:
        self.out, self.data, self.quick = out, data, quick
        self.hidden, self.epochs = tuple(hidden), epochs
        self.trials = Trials(out / "cache", workers=workers)

    # ------------------------------------------------------------------ texts

    def corpus(self, name: str, text: TextConfig | None = None) -> Corpus:
        """The corpus of that name, prepared with these settings."""
        text = text or TextConfig()
        files = self._quick_files() if self.quick else self._find_files(name)
        kind = "quick" if self.quick else name
        folder = self.out / "data" / f"{kind}-{_short_hash(vars(text))}"
        data = prepare(files["train"], folder, text, valid=files["valid"], test=files["test"])
        return Corpus(kind, files, folder, len(data.vocab), len(data.shard("train").tokens))

    def _find_files(self, name: str) -> dict[str, Path]:
        if self.data is None:
            raise UserError(f"--data names the folder with {name}; or --quick for a miniature")
        return {part: self._find_file(self.data / name, part) for part in PARTS}

    def _find_file(self, folder: Path, part: str) -> Path:
        for ending in ("", ".txt", ".gz", ".txt.gz", ".xz", ".txt.xz"):
            if (path := folder / f"{part}{ending}").is_file():
                return path
        raise UserError(f"{folder}: has no {part}, {part}.txt, {part}.txt.gz or {part}.txt.xz")

    def _quick_files(self) -> dict[str, Path]:
        folder = self.out / "data" / "quick-text"
        short = {}
        for part, path in bundled_text(folder / "whole").items():
            lines = path.read_bytes().splitlines(keepends=True)[: _QUICK_LINES[part]]
            short[part] = folder / part
            if not short[part].exists():  # written again, it would make its shards stale
                with replacing(short[part]) as file:
                    file.writelines(lines)
        return short

    # ------------------------------------------------------------------ runs

    def run(self, trials: Sequence[Trial]) -> list[Outcome]:
        """The outcomes of these runs, several done at a time."""
        return self.trials.run(trials)

    def choose(self, questions: Sequence[Sequence[Trial]]) -> list[Trial]:
        """Of each question's candidates the one that validation text prefers."""
        return choose(questions, self.trials)

    def remember(self, about: Any, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``compute`` gives, done once for the same ``about`` (of plain values)."""
        path = self.out / "cache" / "other" / f"{_short_hash(about)}.json"
        with contextlib.suppress(FileNotFoundError, ValueError):  # damaged: done again
            known: dict[str, Any] = from_json(path.read_text())
            return known
        values = compute()
        make_folder(path.parent)
        with replacing(path) as file:
            file.write(json.dumps(values).encode())
        return values


def _short_hash(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the distance between the largest and the smallest.

    >>> mean_and_spread([1.0, 2.0, 6.0])
    (3.0, 2.5)
    """
    return math.fsum(values) / len(values), (max(values) - min(values)) / 2
