"""A folder held by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blackout.errors import UserError
from blackout.files.atomic import make_folder

__all__ = ["LOCK", "locked"]

LOCK = ".lock"

# Some network file systems have no locks: those who write there have to take care themselves.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Makes ``folder`` and holds it against other processes, for whose end it waits.

    Gives whether it is held: always, unless ``wait`` is False. The lock goes with the process,
    however that ends; a folder that was made for it and stayed empty goes too.
    """
    made = not folder.exists()
    while True:
        make_folder(folder)
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # deleted at this very moment by the process before
            continue
        except OSError as error:
            raise UserError(f"{folder / LOCK}: cannot be written: {error.strerror}") from None
        try:
            if not _lock(handle, wait):
                yield False
                return
            if not _is_at(handle, folder / LOCK):
                continue  # what we waited for was deleted in the end
            try:
                yield True
            finally:
                _clear_away(folder, made)
            return
        finally:
            os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _clear_away(folder: Path, made: bool) -> None:
    """Deletes the lock file while it is held: who waits for it finds that out and makes another."""
    with suppress(OSError):
        os.unlink(folder / LOCK)
        if made:
            os.rmdir(folder)  # unless something is in it
