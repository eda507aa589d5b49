"""Tensor files in parts: what the parts are called, and which of them a file names.

``model.safetensors`` may be whole, or hold what all ranks share and, in its metadata, the names and
checksums of the parts beside it, ``part-of-model-1-of-3-….safetensors``, a file for each rank. It
is written last and replaced as a whole: what it names is complete. Free of PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from blackout.files.atomic import remove

__all__ = ["PARTS", "named_parts", "part_path", "parts_field", "remove_parts"]

PARTS = "parts"
"""The field of a file's metadata that names its parts."""
_PREFIX, _SUFFIX = "part-of-", ".safetensors"
_MOST = 1 << 28  # bytes of a header


def part_path(index: Path, number: int, parts: int, token: str) -> Path:
    """Part ``number`` (from 1) of ``parts``; ``token`` tells this saving from any other.

    >>> part_path(Path("run/model.safetensors"), 1, 3, "5f3a").name
    'part-of-model-1-of-3-5f3a.safetensors'
    """
    return index.with_name(f"{_PREFIX}{index.stem}-{number}-of-{parts}-{token}{_SUFFIX}")


def is_part_name(name: str) -> bool:
    """Whether a name is that of a part, and leads nowhere else."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX) and Path(name).name == name


def parts_field(path: Path) -> str | None:
    """What a tensor file says about its parts, unchecked; None where it is whole or no such file.

    Its header is all that is read.
    """
    with suppress(OSError, ValueError, AttributeError, RecursionError), path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size <= _MOST:
            header = json.loads(file.read(size))
            found: Any = header.get("__metadata__", {}).get(PARTS)
            return found if isinstance(found, str) else None
    return None


def named_parts(path: Path) -> list[Path]:
    """The parts that a tensor file names; none where it is whole."""
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        names = [part["name"] for part in json.loads(parts_field(path) or "{}").get("files", [])]
        return [path.with_name(name) for name in names if is_part_name(name)]
    return []


def remove_parts(folder: Path, stem: str, keep: Iterable[Path] = ()) -> None:
    """Deletes the parts of files whose names begin with ``stem``, but for some, and halves of them.

    Nobody may be writing parts there.
    """
    kept = {path.name for path in keep}
    for pattern in (f"{_PREFIX}{stem}*{_SUFFIX}", f".{_PREFIX}{stem}*.partial"):
        for path in folder.glob(pattern):
            if path.name not in kept:
                remove(path)
