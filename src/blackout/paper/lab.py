"""Where studies are done: the texts, the runs with their cache, and the size of it all.

A study asks for texts with :meth:`Lab.corpus`, has runs done with :meth:`Lab.run` and lets
validation text choose among settings with :meth:`Lab.choose`. With ``quick`` everything is a
miniature on text that ships with Python, to see that it works.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import itertools
import json
import lzma
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from blackout.config import Cell, TextConfig
from blackout.errors import UserError
from blackout.files.atomic import make_folder, replacing
from blackout.files.plain_json import from_json
from blackout.presets import Preset
from blackout.text.bundled import bundled_text
from blackout.text.prepared import PARTS, prepare
from blackout.trials.halving import choose
from blackout.trials.trials import Outcome, Trial, Trials

_OPEN: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
_QUICK_LINES = {"train": 1200, "valid": 150, "test": 150}
_NONE: Mapping[str, Sequence[Trial]] = {}


@dataclass(frozen=True)
class Corpus:
    """A text in its three parts, prepared."""

    name: str
    files: dict[str, Path]
    prepared: Path
    vocab_size: int
    words: int
    """Words and sentence ends of the training part."""


class RunsDone(Exception):
    """What was asked for is done: the runs of a table, not the table."""


class Lab:
    """The place of a study.

    ``out``: folder for results and for the cache of runs; ``data``: folder with a folder for each
    corpus, each with train, valid and test (as they are, or with .txt, .gz or .xz behind).
    ``hidden``, ``cells``, ``dropouts``, ``seeds`` and ``epochs`` stand over a study's own where it
    says so; ``preset``: see :mod:`blackout.presets`. ``only``, ``known`` and ``runs_only``: which
    rows are run, and whether that is all, see :meth:`rows`.
    """

    def __init__(
        self,
        out: Path,
        data: Path | None = None,
        *,
        quick: bool = False,
        workers: int = 0,
        hidden: Sequence[int] = (),
        cells: Sequence[Cell] = (),
        dropouts: Sequence[float] = (),
        seeds: Sequence[int] = (),
        epochs: int | Literal["auto"] | None = None,
        preset: Preset | None = None,
        only: Sequence[str] = (),
        known: bool = False,
        runs_only: bool = False,
        minutes: Sequence[float] = (),
        tries: int = 0,
        threads: int = 0,
        vocab_size: int = 0,
        peers: Sequence[str] = (),
    ) -> None:
        self.out, self.data, self.quick = out, data, quick
        self.hidden, self.cells, self.dropouts = tuple(hidden), tuple(cells), tuple(dropouts)
        self.seeds, self.epochs, self.preset = tuple(seeds), epochs, preset
        self.only, self.known, self.runs_only = tuple(only), known, runs_only
        self.minutes, self.tries, self.threads = tuple(minutes), tries, threads
        self.vocab_size, self.peers = vocab_size, tuple(peers)
        self.trials = Trials(out / "cache", workers=workers)

    # ------------------------------------------------------------------ texts

    def corpus(
        self,
        name: str,
        text: TextConfig | None = None,
        lines: int | None = None,
        valid_lines: int | None = None,
    ) -> Corpus:
        """The corpus of that name, prepared with these settings.

        ``lines``, ``valid_lines``: the beginning alone, of its training and validation text.
        """
        text = text or TextConfig()
        files = self._quick_files() if self.quick else self._find_files(name)
        kind = "quick" if self.quick else name
        if lines is not None and not self.quick:
            kind = f"{name}-{lines}"
            files["train"] = self.beginning(files["train"], kind, lines)
        if valid_lines is not None and not self.quick:
            short = f"{name}-valid-{valid_lines}"
            files["valid"] = self.beginning(files["valid"], short, valid_lines)
            kind += f"-{valid_lines}"
        folder = self.out / "data" / f"{kind}-{short_hash(vars(text))}"
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

    def beginning(self, file: Path, kind: str, lines: int) -> Path:
        """The first lines of a file, as a file of its own."""
        short = self.out / "data" / f"{kind}.txt"
        if not short.exists():  # a new file would be another text to its shards
            make_folder(short.parent)
            with _OPEN.get(file.suffix, open)(file, "rb") as whole, replacing(short) as out:
                out.writelines(itertools.islice(whole, lines))
        return short

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

    def rows(
        self,
        asked: Mapping[str, Sequence[Trial]],
        *,
        on_request: Mapping[str, Sequence[Trial]] = _NONE,
        earlier: Mapping[str, Sequence[Trial]] = _NONE,
    ) -> dict[str, list[Outcome]]:
        """The outcomes of a table's runs, row by row.

        With ``only``, just the rows in whose names one of its words occurs are run, with ``known``
        none; the others are there if an earlier command has run them, be it on another machine, so
        that a table can be put together from several. Rows ``on_request`` are run only where
        ``only`` names them, ``earlier`` ones never. With ``runs_only`` the study ends here, by
        :class:`RunsDone`.
        """
        may_run = {**asked, **on_request}
        wanted = [name for name in may_run if self.is_wanted(name) and (self.only or name in asked)]
        if not wanted and not self.known:
            raise UserError(
                f"--only {' '.join(self.only)}: no such row; there are {'; '.join(may_run)}"
            )
        self.run([trial for name in wanted for trial in may_run[name]])
        if self.runs_only:
            raise RunsDone
        found = self._known({**earlier, **may_run})
        if not found:
            raise UserError(f"--known: {self.trials.folder} has no row of this table")
        return found

    def _known(self, rows: Mapping[str, Sequence[Trial]]) -> dict[str, list[Outcome]]:
        """Those of the rows all of whose runs were done."""
        outcomes = iter(self.trials.known([trial for trials in rows.values() for trial in trials]))
        each = {name: [next(outcomes) for _ in trials] for name, trials in rows.items()}
        whole = {name: [one for one in found if one is not None] for name, found in each.items()}
        return {name: found for name, found in whole.items() if len(found) == len(rows[name])}

    def is_wanted(self, row: str) -> bool:
        """Whether a row is to be run."""
        if self.known:
            return False
        return not self.only or any(word.lower() in row.lower() for word in self.only)

    def choose(self, questions: Sequence[Sequence[Trial]]) -> list[Trial]:
        """Of each question's candidates the one that validation text prefers."""
        return choose(questions, self.trials)

    def _note(self, about: Any) -> Path:
        return self.out / "cache" / "other" / f"{short_hash(about)}.json"

    def remembers(self, about: Any) -> bool:
        """Whether :meth:`remember` knows it already."""
        return self._note(about).exists()

    def remember(self, about: Any, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``compute`` gives, done once for the same ``about`` (of plain values)."""
        path = self._note(about)
        with contextlib.suppress(FileNotFoundError, ValueError):  # damaged: done again
            known = from_json(path.read_text())
            if isinstance(known, dict):
                return known
        values = compute()
        make_folder(path.parent)
        with replacing(path) as file:
            file.write(json.dumps(values).encode())
        return values


def short_hash(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the distance between the largest and the smallest.

    >>> mean_and_spread([1.0, 2.0, 6.0])
    (3.0, 2.5)
    """
    return math.fsum(values) / len(values), (max(values) - min(values)) / 2
