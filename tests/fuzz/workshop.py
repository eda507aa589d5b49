"""Good files of every kind that the package reads, and bytes of anybody's in place of one.

A fuzzer's bytes must get past the checksums to reach a parser, so those that a file has are made
right again: :func:`sealed_tensors` and the like.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import struct
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from tests.fuzz.asking import Asking

from blackout import _native
from blackout.config import Config
from blackout.files.parts import save_index, save_part
from blackout.files.rows import Rows
from blackout.files.tensors import read_metadata
from blackout.ngram import NGram
from blackout.ngram import train as estimate
from blackout.run_folder import RunFolder
from blackout.text.prepared import Prepared, prepare
from blackout.text.shards import HEADER_BYTES
from blackout.train import train
from blackout.train.loop import Stopped
from blackout.train.progress import Progress

TEXT = "the cat sat\nthe dog sat on the mat\na cat ran\nthe end\n" * 3
_HASH_FIELD = b'"sha256":"'
_NGRAM_HEADER = struct.Struct("<8s8I10Q5Q")  # csrc/ngram/model_file.cpp


class Workshop:
    """A folder with a text, a trained run, and n-grams of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("train", "valid"):
            (folder / name).write_text(TEXT)
        self.data: Prepared = prepare(
            folder / "train", folder / "data", valid=folder / "valid", threads=1
        )
        self.config = Config.from_dict(
            {
                "model": {"hidden": 4},
                "loss": {"samples": 3},
                "run": {"batch": 2, "bptt": 3, "epochs": 1, "threads": 1, "device": "cpu"},
            }
        )
        self.run = folder / "run"
        train(self.config, self.data, self.run)
        self.arpa, self.binary = folder / "model.arpa", folder / "model.bin"
        estimate(folder / "train", self.arpa, order=3)
        NGram.load(self.arpa).save(self.binary)

    def place(self, name: str) -> Path:
        """A path to write to, with nothing there."""
        path = self.folder / "try" / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def model_with(self, name: str, data: bytes) -> Path:
        """The model's folder, one file of it being other bytes."""
        folder = self.place("model")
        folder.mkdir()
        run = RunFolder(self.run)
        for path in (run.config, run.vocab, run.weights):
            if path.name != name:
                os.link(path, folder / path.name)
        (folder / name).write_bytes(data)
        return folder

    def run_with(self, checkpoint: bytes) -> Path:
        """The run's folder with these bytes as its checkpoint."""
        folder = self.place("resumed")
        shutil.copytree(self.run, folder)
        (old,) = (folder / "checkpoints").glob("step-*")
        old.write_bytes(checkpoint)
        return folder

    @cached_property
    def asking(self) -> Asking:
        """The server's application over the models."""
        return Asking(self.run, self.arpa)

    def close(self) -> None:
        """Ends what was begun here."""
        if "asking" in vars(self):
            self.asking.close()

    # ------------------------------------------------------------------ files in parts

    def divided_model(self) -> Path:
        """The model's folder as two ranks would have saved it, made once."""
        folder = self.folder / "divided"
        if not folder.exists():
            folder.mkdir()
            run = RunFolder(self.run)
            for path in (run.config, run.vocab):
                os.link(path, folder / path.name)
            _divide(run.weights, folder / run.weights.name)
        return folder

    def divided_with(self, index: bytes | None = None, part: bytes | None = None) -> Path:
        """The divided model, its index or its first part being other bytes."""
        folder = self.place("parts")
        folder.mkdir()
        for path in self.divided_model().iterdir():
            os.link(path, folder / path.name)
        _put_in(folder / "model.safetensors", index, part)
        return folder

    def part(self) -> Path:
        """The first part of the divided model."""
        return _first_part(self.divided_model())

    def divided_checkpoint(self) -> Path:
        """The checkpoint as two ranks would have saved it, in a folder of its own; made once."""
        folder = self.folder / "divided-checkpoint"
        (whole,) = (self.run / "checkpoints").glob("step-*")
        if not folder.exists():
            folder.mkdir()
            _divide(whole, folder / whole.name)
        return folder / whole.name

    def checkpoint_part(self) -> Path:
        """The first part of the divided checkpoint."""
        return _first_part(self.divided_checkpoint().parent)

    def run_in_parts(self, index: bytes | None = None, part: bytes | None = None) -> Path:
        """The run's folder, its checkpoint in parts, of which one file is other bytes."""
        folder = self.place("resumed")
        shutil.copytree(self.run, folder, ignore=shutil.ignore_patterns("step-*"))
        checkpoint = self.divided_checkpoint()
        for path in checkpoint.parent.iterdir():
            os.link(path, folder / "checkpoints" / path.name)
        _put_in(folder / "checkpoints" / checkpoint.name, index, part)
        return folder

    def checkpoint(self) -> bytes:
        """That of the run's end."""
        return _checkpoint(self.run)

    @cached_property
    def checkpoint_on_the_way(self) -> bytes:
        """That of a run like this one, stopped in the middle of its epoch."""
        folder = self.folder / "stopped"
        with suppress(Stopped):
            train(self.config, self.data, folder, progress=_StopsSoon())
        return _checkpoint(folder)


class _StopsSoon(Progress):
    def block_done(self, position: Any) -> None:
        if position.step == 2:
            signal.raise_signal(signal.SIGTERM)


def _checkpoint(run: Path) -> bytes:
    (path,) = (run / "checkpoints").glob("step-*")
    return path.read_bytes()


def _divide(whole: Path, index: Path) -> None:
    """A tensor file as two ranks would have written it; what has a row for each word is divided."""
    strata = 2
    with safe_open(whole, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    words = max(len(t) for name, t in tensors.items() if name.endswith("embedding.weight"))
    divided = {n: t for n, t in tensors.items() if t.ndim and len(t) == words and "bias" not in n}
    parts = []
    for rank in range(strata):
        every = torch.arange(rank, words, strata)
        rows = dict.fromkeys(divided, Rows(words, strata, every))
        own = {name: tensor[rank::strata] for name, tensor in divided.items()}
        parts.append(save_part(index, rank + 1, strata, "0123", own, rows))
    fields = {key: text for key, text in read_metadata(whole).items() if key != "sha256"}
    shared = {name: tensor for name, tensor in tensors.items() if name not in divided}
    save_index(index, shared, fields, parts, own, rows)


def _first_part(folder: Path) -> Path:
    return min(folder.glob("part-of-*"))


def _put_in(index: Path, new_index: bytes | None, new_part: bytes | None) -> None:
    """Puts other bytes in place of the file that names the parts, or of the first part.

    The checksum of a part, by which the index names it, is made right there too.
    """
    if new_index is not None:
        index.unlink()
        index.write_bytes(new_index)
    if new_part is not None:
        path = _first_part(index.parent)
        told = _stated(path.read_bytes()), _stated(new_part)
        path.unlink()
        path.write_bytes(new_part)
        names_it = index.read_bytes()
        if told[0] and told[1]:
            index.unlink()
            index.write_bytes(sealed_tensors(names_it.replace(told[0], told[1])))


# ---------------------------------------------------------------------- checksums made right


def _stated(data: bytes) -> bytes | None:
    """The checksum that a tensor file states."""
    place = data.find(_HASH_FIELD)
    stated = data[place + len(_HASH_FIELD) : place + len(_HASH_FIELD) + 64]
    return stated if place >= 0 and len(stated) == 64 else None


def sealed_tensors(data: bytes) -> bytes:
    """A tensor file whose checksum fits, where it has a place for one."""
    size = int.from_bytes(data[:8], "little")
    place = data[: 8 + size].find(_HASH_FIELD)
    if place < 0 or len(data) < place + len(_HASH_FIELD) + 64:
        return data
    place += len(_HASH_FIELD)
    blank = data[:place] + b"0" * 64 + data[place + 64 :]
    return data[:place] + hashlib.sha256(blank).hexdigest().encode() + data[place + 64 :]


def sealed_json(data: bytes) -> bytes:
    """A JSON object whose field sha256 fits the others."""
    try:
        values = json.loads(data)
        if isinstance(values, dict) and "sha256" in values:
            rest = {key: value for key, value in values.items() if key != "sha256"}
            text = json.dumps(rest, sort_keys=True).encode()
            return json.dumps(rest | {"sha256": _like(values["sha256"], text)}).encode()
    except (ValueError, RecursionError):
        pass
    return data


def _like(stated: Any, text: bytes) -> str:
    """A checksum as long as the one there: results of trials keep twenty digits."""
    digest = hashlib.sha256(text).hexdigest()
    return digest[:20] if isinstance(stated, str) and len(stated) == 20 else digest


def sealed_shard(data: bytes) -> bytes:
    """A shard whose two checksums fit."""
    if len(data) < HEADER_BYTES:
        return data
    head, payload = bytearray(data[: HEADER_BYTES - 8]), data[HEADER_BYTES:]
    length = int.from_bytes(head[12:16], "little")
    about = bytes(head[16 : 16 + length])
    place = about.find(b'"checksum": "')
    if place >= 0 and place + 13 + 16 <= len(about):
        begin = 16 + place + 13
        head[begin : begin + 16] = f"{_xxh64(payload):016x}".encode()
    return bytes(head) + bytes.fromhex(f"{_xxh64(bytes(head)):016x}") + payload


def sealed_ngram(data: bytes) -> bytes:
    """A binary n-gram whose size and checksums fit."""
    if len(data) < _NGRAM_HEADER.size:
        return data
    fields, body = list(_NGRAM_HEADER.unpack_from(data)), data[_NGRAM_HEADER.size :]
    fields[21] = len(data)
    fields[22], fields[23] = _xxh64(body), 0
    fields[23] = _xxh64(_NGRAM_HEADER.pack(*fields))
    return _NGRAM_HEADER.pack(*fields) + body


def _xxh64(data: bytes) -> int:
    total = _native.Checksum()
    total.update(np.frombuffer(data, np.uint8))
    return int(total.value())
