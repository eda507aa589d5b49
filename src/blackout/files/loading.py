"""Tensors from disk into tensors that are there already, whichever way either is divided.

A file may be whole or in parts (:mod:`blackout.files.part_names`), and the tensors to fill may be
whole or hold some rows of a table: every pair goes, without a conversion in between. Files are
read, not mapped: their pages would count as memory of this process, a second copy of the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.files.part_names import is_part_name, parts_field
from blackout.files.plain_json import from_json
from blackout.files.rows import Rows
from blackout.files.tensors import DTYPES, PIECE, verify

__all__ = ["PartIndex", "load_tensors"]

Shape = list[Any]
"""A number format and the lengths of a tensor, as files have them: ["F32", 100, 8]."""


@dataclass(frozen=True)
class PartIndex:
    """What a file says about its parts."""

    path: Path
    strata: int
    tables: dict[str, Shape]
    """The whole shapes of the tensors that are divided by rows."""
    files: list[tuple[str, str, list[int]]]
    """Name, checksum and strata of each part."""

    @classmethod
    def of(cls, path: Path) -> PartIndex | None:
        """Of a file that is known to be unharmed; None where it is whole."""
        field = parts_field(path)
        if field is None:
            return None
        try:
            found = from_json(field)
            files = [(part["name"], part["sha256"], part["strata"]) for part in found["files"]]
            strata, tables = found["strata"], dict(found["tables"])
        except (ValueError, TypeError, KeyError):
            raise UserError(f"{path}: damaged: its list of parts cannot be read") from None
        index = cls(path, strata, tables, files)
        index.check_strata()
        return index

    def check_strata(self) -> None:
        """Refuses parts that do not make up the whole; a stranger may have written anything."""
        lists = [strata for _, _, strata in self.files if isinstance(strata, list)]
        held = [stratum for strata in lists for stratum in strata]
        numbers = all(type(number) is int for number in (self.strata, *held))
        if (
            len(lists) != len(self.files)
            or not numbers
            or len(held) != self.strata
            or sorted(held) != list(range(self.strata))
        ):
            raise UserError(f"{self.path}: damaged: its parts do not make up the whole")

    def checked_parts(self, strata: list[int]) -> dict[int, Path]:
        """Which part has each of these strata, once all of them are known to be unharmed."""
        found = {}
        for name, checksum, held in self.files:
            wanted = set(held) & set(strata)
            if not wanted:
                continue
            if not isinstance(name, str) or not is_part_name(name):
                raise UserError(f"{self.path}: damaged: {name!r} is no name of a part")
            path = self.path.with_name(name)
            if not path.is_file():
                raise UserError(f"{path}: is missing; {self.path.name} is whole only with it")
            if verify(path) != checksum:
                raise UserError(f"{path}: is another part than {self.path.name} names")
            found.update(dict.fromkeys(wanted, path))
        return found


def load_tensors(
    path: Path,
    into: Mapping[str, Tensor],
    prefix: str = "",
    rows: Mapping[str, Rows] | None = None,
) -> None:
    """Fills existing tensors from a file, whose names with ``prefix`` must be exactly theirs.

    ``rows``: which rows of a table a tensor holds, by name, where these are not all. The caller
    has checked the file with :func:`~blackout.files.tensors.read_metadata`; its parts are checked
    here, those that are needed, before anything is filled.
    """
    rows, index = rows or {}, PartIndex.of(path)
    with ExitStack() as stack:
        source = _Source.open(path, stack)
        tables = {} if index is None else index.tables
        stored = {name for name in (*source.entries, *tables) if name.startswith(prefix)}
        odd = stored ^ {prefix + name for name in into}
        if odd:
            raise UserError(f"{path}: does not fit the model: {', '.join(sorted(odd)[:3])}")
        for name, tensor in into.items():
            found = tables.get(prefix + name) or source.shape(prefix + name)
            where = rows.get(name)
            lengths = tensor.shape if where is None else (where.n_rows, *tensor.shape[1:])
            expected = [DTYPES[tensor.dtype], *lengths]
            if found != expected:
                raise UserError(f"{path}: {name} is {found}, the model's is {expected}")
        parts = _Parts(index, rows, stack) if index is not None else None
        for name, tensor in into.items():
            if parts is not None and prefix + name in tables:
                finite = parts.fill(prefix + name, tensor.detach(), rows.get(name))
            else:
                finite = source.fill(prefix + name, tensor.detach(), rows.get(name))
            if not finite:
                raise UserError(f"{path}: damaged: {name} has infinite numbers or NaN in it")


@dataclass(frozen=True)
class _Source:
    """An open tensor file."""

    file: IO[bytes]
    start: int
    entries: dict[str, Any]

    @classmethod
    def open(cls, path: Path, stack: ExitStack) -> _Source:
        file = stack.enter_context(path.open("rb"))
        entries = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        entries.pop("__metadata__", None)
        return cls(file, file.tell(), entries)

    def shape(self, name: str) -> Shape:
        entry = self.entries[name]
        return [entry["dtype"], *entry["shape"]]

    def fill(self, name: str, tensor: Tensor, rows: Rows | None) -> bool:
        """Fills a tensor, or some rows of it, from a whole one; says whether all are finite."""
        self.file.seek(self.start + self.entries[name]["data_offsets"][0])
        if rows is None:
            return self._read(tensor.view(-1))
        finite, first = True, 0
        shape = (rows.n_rows, *tensor.shape[1:])
        for piece, good in self._row_pieces(shape, tensor.dtype):
            finite = finite and good
            places, numbers = rows.between(first, first + len(piece))
            tensor[places] = piece[numbers].to(tensor.device)
            first += len(piece)
        return finite

    def fill_places(self, name: str, tensor: Tensor, places: Tensor) -> bool:
        """Fills the rows at ``places`` of a tensor."""
        expected = [DTYPES[tensor.dtype], len(places), *tensor.shape[1:]]
        if name not in self.entries or self.shape(name) != expected:
            raise UserError(f"{self.file.name}: damaged: it has no {name} of {expected}")
        self.file.seek(self.start + self.entries[name]["data_offsets"][0])
        finite, done = True, 0
        for piece, good in self._row_pieces((len(places), *tensor.shape[1:]), tensor.dtype):
            finite = finite and good
            some = places[done : done + len(piece)].to(tensor.device)
            tensor[some] = piece.to(tensor.device)
            done += len(piece)
        return finite

    def _row_pieces(
        self, shape: tuple[int, ...], dtype: torch.dtype
    ) -> Iterator[tuple[Tensor, bool]]:
        """Some rows that follow in the file at a time, and whether they are finite."""
        width = dtype.itemsize * torch.Size(shape[1:]).numel()
        count = max(1, PIECE // max(width, 1))
        for first in range(0, shape[0], count):
            piece = torch.empty((min(count, shape[0] - first), *shape[1:]), dtype=dtype)
            yield piece, self._read(piece.view(-1))

    def _read(self, flat: Tensor) -> bool:
        """Fills a tensor with the bytes that follow; says whether all are finite numbers."""
        finite = True
        for piece in flat.split(max(1, PIECE // flat.element_size())):
            buffer = piece if piece.device.type == "cpu" else torch.empty_like(piece, device="cpu")
            self.file.readinto(buffer.view(torch.uint8).numpy())  # type: ignore[attr-defined]
            finite = finite and bool(buffer.isfinite().all())
            if buffer is not piece:
                piece.copy_(buffer)
        return finite


class _Parts:
    """The open parts of a file that some tensors need."""

    def __init__(self, index: PartIndex, rows: Mapping[str, Rows], stack: ExitStack) -> None:
        self.index = index
        wanted = set(range(index.strata))
        if rows:
            wanted = {stratum for one in rows.values() for stratum in one.held}
        other = next((one.strata for one in rows.values() if one.strata != index.strata), None)
        if other is not None:
            raise UserError(f"{index.path}: has {index.strata} strata, this run has {other}")
        paths = index.checked_parts(sorted(wanted))
        opened = {path: _Source.open(path, stack) for path in dict.fromkeys(paths.values())}
        self.sources = {stratum: opened[path] for stratum, path in paths.items()}

    def fill(self, name: str, tensor: Tensor, rows: Rows | None) -> bool:
        rows = rows or Rows(len(tensor), self.index.strata)
        filled = [
            self.sources[stratum].fill_places(
                slab_name(name, stratum), tensor, rows.places(stratum)
            )
            for stratum in rows.held
        ]
        return all(filled)


def slab_name(name: str, stratum: int) -> str:
    """What the rows of a stratum of a tensor are called in a part."""
    return f"{name}@{stratum}"
