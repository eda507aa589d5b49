"""Writing tensors in parts: a file for each rank, and last the one that names them all.

Each rank writes the rows of its strata (:func:`save_part`); one of them then writes what all share
together with the names and checksums of the parts (:func:`save_index`). Until that file is in its
place the parts are nothing, and what it replaces stays whole: parts have names that no other saving
uses. Which rank does what, and when, is the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from blackout.files.loading import slab_name
from blackout.files.part_names import PARTS, part_path
from blackout.files.rows import Rows, Slab
from blackout.files.tensors import DTYPES, save_tensors, stored_bytes

__all__ = ["Part", "part_bytes", "save_index", "save_part"]


@dataclass(frozen=True)
class Part:
    """What the file that names the parts says of one."""

    name: str
    sha256: str
    strata: list[int]


def save_part(
    index: Path,
    number: int,
    parts: int,
    token: str,
    tables: Mapping[str, Tensor],
    rows: Mapping[str, Rows],
) -> Part:
    """Writes one rank's rows of tables; ``number`` from 1, ``token`` the same on all ranks."""
    path = part_path(index, number, parts, token)
    metadata = {"part_of": index.name, "number": str(number), "parts": str(parts)}
    checksum = save_tensors(path, _slabs(tables, rows), metadata)
    return Part(path.name, checksum, _held(rows))


def part_bytes(tables: Mapping[str, Tensor], rows: Mapping[str, Rows]) -> int:
    """What a part takes on disk, but for a little."""
    return stored_bytes(_slabs(tables, rows))


def save_index(
    path: Path,
    shared: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    parts: Iterable[Part],
    tables: Mapping[str, Tensor],
    rows: Mapping[str, Rows],
) -> None:
    """Writes what is not divided, and what the parts are; ``tables`` are those of any rank."""
    shapes = {
        name: [DTYPES[tensor.dtype], rows[name].n_rows, *tensor.shape[1:]]
        for name, tensor in tables.items()
    }
    strata = next(iter(rows.values())).strata
    field = {"strata": strata, "tables": shapes, "files": [asdict(part) for part in parts]}
    save_tensors(path, shared, {**metadata, PARTS: json.dumps(field)})


def _slabs(tables: Mapping[str, Tensor], rows: Mapping[str, Rows]) -> dict[str, Slab]:
    return {
        slab_name(name, stratum): Slab(tensor, rows[name].places(stratum))
        for name, tensor in tables.items()
        for stratum in rows[name].held
    }


def _held(rows: Mapping[str, Rows]) -> list[int]:
    return next(iter(rows.values())).held
