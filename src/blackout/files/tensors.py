"""Tensors on disk, with a checksum: whole and unharmed, or refused.

A tensor file is a safetensors file whose metadata hold a SHA-256 of everything else in it. It is
written and read piece by piece: saving or loading a table needs no second copy of it in memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from blackout.errors import UserError
from blackout.files.atomic import remove_leftovers, replacing
from blackout.files.rows import Slab

PIECE = 1 << 24  # bytes moved at a time
_HASH_FIELD = '"sha256":"'
_NO_HASH = "0" * 64
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor | Slab], metadata: Mapping[str, str]
) -> str:
    """Writes tensors and text fields as one checksummed safetensors file; gives the checksum."""
    header = _header(tensors, metadata)
    remove_leftovers(path)  # they take up space
    require_space(path, len(header) + stored_bytes(tensors))
    digest = hashlib.sha256(header)
    with replacing(path) as file:
        file.write(header)
        for tensor in tensors.values():
            for piece in _pieces(tensor):
                digest.update(piece)
                file.write(piece)
        file.seek(header.index(_HASH_FIELD.encode()) + len(_HASH_FIELD))
        file.write(digest.hexdigest().encode())
    return digest.hexdigest()


def stored_bytes(tensors: Mapping[str, Tensor | Slab]) -> int:
    """What the numbers of tensors take on disk."""
    return sum(_size(tensor) for tensor in tensors.values())


def require_space(path: Path, needed: int) -> None:
    """Refuses to begin a file at ``path`` that the disk has no room for."""
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
    if free < needed:
        raise UserError(
            f"{path}: needs {needed / 1e6:.0f} MB, the disk has {free / 1e6:.0f} MB free"
        )


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """A safetensors file, to look into; the library takes names in UTF-8 only, the system any."""
    with path.open("rb") as file:
        name = str(path) if _is_utf8(str(path)) else f"/dev/fd/{file.fileno()}"
        with safe_open(name, framework="pt") as tensors:
            yield tensors


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_metadata(path: Path) -> dict[str, str]:
    """The text fields of a tensor file, after checking that the file is whole."""
    verify(path)
    with open_tensors(path) as file:
        return dict(file.metadata() or {})


def peek_metadata(path: Path) -> dict[str, str]:
    """The text fields of a tensor file, unchecked: its header is all that is read."""
    try:
        with open_tensors(path) as file:
            return dict(file.metadata() or {})
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise UserError(f"{path}: damaged: {error}") from None


def first_non_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with an infinity or a NaN in it."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        flat = tensor.detach().reshape(-1)
        if not all(bool(piece.isfinite().all()) for piece in flat.split(PIECE)):
            return name
    return None


def _size(tensor: Tensor | Slab) -> int:
    return math.prod(tensor.shape) * tensor.dtype.itemsize


def _header(tensors: Mapping[str, Tensor | Slab], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"sha256": _NO_HASH, **metadata}}
    start = 0
    for name, tensor in tensors.items():
        end = start + _size(tensor)
        entries[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text


def _pieces(tensor: Tensor | Slab) -> Iterator[memoryview]:
    whole = tensor.put_together() if isinstance(tensor, Slab) else tensor.detach()
    flat = whole.reshape(-1)
    count = max(1, PIECE // whole.element_size())
    for start in range(0, len(flat), count):
        piece = flat[start : start + count].cpu().contiguous().view(torch.uint8)
        yield piece.numpy().data


def verify(path: Path) -> str:
    """Refuses a file that is not whole; gives its checksum."""
    try:
        with path.open("rb") as file:
            length = file.read(8)
            size = int.from_bytes(length, "little")
            if len(length) < 8 or size > min(path.stat().st_size, 1 << 28):
                raise UserError(f"{path}: damaged: not a tensor file or cut off")
            header = length + file.read(size)
            place = header.find(_HASH_FIELD.encode())
            if place < 0:
                raise UserError(f"{path}: damaged: it has no checksum")
            place += len(_HASH_FIELD)
            stated = header[place : place + 64]
            digest = hashlib.sha256(header[:place] + _NO_HASH.encode() + header[place + 64 :])
            while piece := file.read(PIECE):
                digest.update(piece)
        if digest.hexdigest().encode() != stated:
            raise UserError(f"{path}: damaged: its checksum does not fit its content")
        with open_tensors(path):
            return stated.decode()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except SafetensorError as error:
        raise UserError(f"{path}: damaged: {error}") from None
