"""The folder of a model, and of the run that makes it: what its files are called and who may write.

==================  ====================================================================
config.json         what the model is: its settings, with a checksum
vocab.txt           its words and their counts
model.safetensors   its weights, the best so far; of several ranks it names their parts,
                    part-of-model-….safetensors
run.toml            the run's settings, as they can be given again
metrics.jsonl       what happened, a line an event
checkpoints/        everything the run needs to go on
data/               the text as word numbers, where the run prepared it itself
report.html         a page about it
==================  ====================================================================

The first three are a model; the others come with a run. Weights and checkpoints carry the checksum
of the config.json they belong to, so that files of two runs are never taken for one. This module is
free of PyTorch: the command line asks it before anything large is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.atomic import make_folder, remove, remove_leftovers, replacing
from blackout.files.lock import locked
from blackout.files.part_names import named_parts, remove_parts
from blackout.files.plain_json import from_json
from blackout.text.vocab import Vocab

__all__ = ["Description", "RunFolder"]

FORMAT = 1
_STEP, _SUFFIX = "step-", ".safetensors"


@dataclass(frozen=True)
class Description:
    """What does not change while a model trains."""

    config: Config
    vocab: Vocab
    hash: str
    """The checksum of config.json, which weights carry."""


class RunFolder:
    """A folder with a model or a run; making the object touches nothing on disk.

    >>> RunFolder("runs/demo").weights.as_posix()
    'runs/demo/model.safetensors'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.vocab = self.path / "vocab.txt"
        self.weights = self.path / "model.safetensors"
        self.settings = self.path / "run.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.data = self.path / "data"
        self.report = self.path / "report.html"
        self._held = False

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def held(self, *, wait: bool = False) -> Iterator[None]:
        """Keeps other processes from writing here; one that does already is waited for, or named.

        Whoever holds the folder may hold it again, with the same object.
        """
        if self._held:
            yield
            return
        with locked(self.path, wait=wait) as ours:
            if not ours:
                raise UserError(
                    f"{self.path}: another process is writing to it; "
                    "wait for its end or choose another folder"
                )
            self._held = True
            try:
                yield
            finally:
                self._held = False

    # ------------------------------------------------------------------ checkpoints

    def checkpoint(self, step: int) -> Path:
        """The file of the checkpoint after ``step`` blocks."""
        return self.checkpoints / f"{_STEP}{step:012d}{_SUFFIX}"

    def newest_checkpoint(self) -> Path | None:
        """The newest checkpoint, None where there is none; not being able to look is an error."""
        return max(self._checkpoint_files(), default=None)

    def remove_older_checkpoints(self, newest: Path) -> None:
        """Deletes them and their parts, and parts that no checkpoint names."""
        for path in self._checkpoint_files():
            if path < newest:
                remove(path)
        remove_parts(self.checkpoints, _STEP, keep=named_parts(newest))

    def _checkpoint_files(self) -> list[Path]:
        try:
            names = os.listdir(self.checkpoints)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self.checkpoints.is_symlink():
                return []
            raise UserError(f"{self.checkpoints}: cannot be read: {error.strerror}") from None
        return [self.checkpoints / n for n in names if n.startswith(_STEP) and n.endswith(_SUFFIX)]

    def remove_leftovers(self) -> None:
        """Deletes half a file of a process that was killed: it takes up space."""
        remove_leftovers(self.weights)
        self.remove_old_parts()
        for path in self.checkpoints.glob(f".{_STEP}*.partial"):
            remove(path)
        newest = self.newest_checkpoint()
        remove_parts(self.checkpoints, _STEP, keep=named_parts(newest) if newest else ())

    def remove_old_parts(self) -> None:
        """Deletes parts of weights that are no longer those of the model."""
        remove_parts(self.path, self.weights.stem, keep=named_parts(self.weights))

    def delete(self) -> None:
        """Deletes everything; killed half-way it leaves what is whole or begins from nothing.

        The checkpoints go first: what else is there is of no use without them, and is written anew.
        """
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)

    # ------------------------------------------------------------------ the model's description

    def begin(self, config: Config, vocab: Vocab) -> str:
        """Writes what a run begins with; gives the description's hash."""
        make_folder(self.path)
        found = self.describe(config, vocab)
        with replacing(self.settings) as file:
            file.write(config.to_toml().encode())
        return found

    def describe(self, config: Config, vocab: Vocab) -> str:
        """Writes config.json and vocab.txt; gives the description's hash."""
        vocab.save(self.vocab)
        return self._write_description(config.to_dict(), vocab.hash)

    def mend_description(self, settings: Mapping[str, Any], vocab: Vocab) -> str:
        """Writes what is missing of the description, from a checkpoint's settings; gives its hash.

        Not from those of today's program, which may know more settings than when the run began.
        """
        if not self.vocab.is_file():
            vocab.save(self.vocab)
        if not self.config.is_file():
            return self._write_description(settings, vocab.hash)
        return self.description().hash

    def _write_description(self, settings: Mapping[str, Any], vocab_hash: str) -> str:
        description = _description(settings, vocab_hash)
        with replacing(self.config) as file:
            file.write(json.dumps(description, indent=1).encode() + b"\n")
        return str(description["sha256"])

    def description(self) -> Description:
        """The config and the vocabulary, checked against each other."""
        for part in (self.config, self.vocab):
            if not part.is_file():
                hint = ""
                if self.settings.is_file():
                    hint = f"; blackout train --out {self.path} --resume writes it again"
                raise UserError(f"{self.path}: not a model folder: it has no {part.name}{hint}")
        try:
            description = from_json(self.config.read_text(encoding="utf-8"))
            found, vocab_hash = description["format"], description["vocab_hash"]
            settings, stated = description["config"], description["sha256"]
        except OSError as error:
            raise UserError(f"{self.config}: cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{self.config}: damaged: it is not a model's description") from None
        if found != FORMAT:
            raise UserError(
                f"{self.config}: has format {found}, this version reads format {FORMAT}"
            )
        if stated != _hash(description):
            raise UserError(f"{self.config}: damaged: its checksum does not fit its content")
        vocab = Vocab.load(self.vocab)
        if vocab.hash != vocab_hash:
            raise UserError(f"{self.vocab}: is not the vocabulary that {self.config} names")
        return Description(Config.from_dict(settings, str(self.config)), vocab, stated)

    def copy_model(self, to: Path) -> None:
        """Copies the model without the run; the weights last: they make it a model."""
        make_folder(to)
        for path in (self.config, self.vocab, *named_parts(self.weights), self.weights):
            with path.open("rb") as source, replacing(to / path.name) as copy:
                shutil.copyfileobj(source, copy)


def _description(settings: Mapping[str, Any], vocab_hash: str) -> dict[str, Any]:
    # where the text was is of no use to who gets the model
    kept = {table: values for table, values in settings.items() if table != "data"}
    description: dict[str, Any] = {"format": FORMAT, "vocab_hash": vocab_hash, "config": kept}
    return description | {"sha256": _hash(description)}


def _hash(description: Mapping[str, Any]) -> str:
    """A checksum of all fields but the checksum: one digit of a setting changes the model."""
    rest = {key: value for key, value in description.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
