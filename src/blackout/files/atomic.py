"""Files that are either complete or not there: write aside, fsync, rename, fsync the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from blackout.errors import UserError

__all__ = ["make_folder", "remove_leftovers", "replacing"]


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends without an exception.

    Until then, and when anything fails, what stood at ``path`` stays as it was. A reader never
    sees half a file, nor does the next start of the machine after a power cut.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with replacing(path) as file:
    ...     _ = file.write(b"complete")
    >>> path.read_bytes()
    b'complete'
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    remove_leftovers(path)
    try:
        try:
            with open(aside, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, where they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot make this folder: {error.strerror}") from None


def remove_leftovers(path: Path) -> None:
    """Deletes what processes left aside that were killed while they wrote ``path``."""
    prefix, suffix = f".{path.name}.", ".partial"
    with suppress(OSError):
        for name in os.listdir(path.parent):
            owner = name[len(prefix) : -len(suffix)]
            ours = name.startswith(prefix) and name.endswith(suffix) and owner.isdecimal()
            if ours and not _is_running(int(owner)):
                os.unlink(path.with_name(name))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it belongs to somebody else, or there is no telling
        return True
    return process != os.getpid()  # what is ours from before now is of an earlier namesake


def _sync_folder(folder: Path) -> None:
    # A rename is safe only once the folder is; systems that cannot open folders need no sync.
    with suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
