"""Files that are either complete or not there: write aside, fsync, rename, fsync the folder."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from blackout.errors import UserError

__all__ = ["make_folder", "remove", "remove_leftovers", "replacing", "replacing_text"]


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends without an exception.

    Until then, and when anything fails, what stood at ``path`` stays as it was. A reader never
    sees half a file, nor does the next start of the machine after a power cut.

    A link is followed: what it points at is replaced. A file that was there keeps its mode and,
    where the system lets it, its owner. What is no regular file (a device, a pipe, ``/dev/stdout``)
    cannot be replaced and is written to as the block goes on.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with replacing(path) as file:
    ...     _ = file.write(b"complete")
    >>> path.read_bytes()
    b'complete'
    """
    path = Path(path)
    try:
        old = _look_at(path)
        through = _open_through(path, old)
        with through or _aside(Path(os.path.realpath(path)), old) as file:
            yield file
    except BrokenPipeError:
        raise  # whoever read from the pipe has had enough; that is not the file's fault
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def replacing_text(path: str | Path) -> Iterator[IO[str]]:
    """:func:`replacing` for text, UTF-8.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with replacing_text(path) as file:
    ...     print("complete", file=file)
    >>> path.read_text()
    'complete\\n'
    """
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=False)
        try:
            yield text
            text.flush()
        finally:
            text.detach()


@contextmanager
def _aside(path: Path, old: os.stat_result | None) -> Iterator[IO[bytes]]:
    """Writes beside ``path`` and renames: complete, or not there."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    remove_leftovers(path)
    try:
        with open(aside, "w+b") as file:
            if old is not None:
                with suppress(PermissionError):  # only root gives files away
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    _sync_folder(path.parent)


def _look_at(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _open_through(path: Path, old: os.stat_result | None) -> IO[bytes] | None:
    """What is at ``path``, to be written to, if it is nothing that a file can take the place of."""
    handle = _open_already(path)
    if handle is not None:
        return os.fdopen(os.dup(handle), "wb")  # opened anew, it would begin at the file's start
    if old is None or stat.S_ISREG(old.st_mode) or stat.S_ISDIR(old.st_mode):
        return None
    return open(path, "wb")


def _open_already(path: Path) -> int | None:
    """The open file of this process that ``path`` names: ``/dev/stdout``, ``/dev/fd/3``."""
    ours = ("/dev/fd", os.path.realpath("/proc/self/fd"))
    for _ in range(40):  # links, as many as the system follows
        folder = os.path.realpath(path.parent)
        if folder in ours and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(folder, os.readlink(path))
    return None


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, where they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot make this folder: {error.strerror}") from None


def remove(path: Path) -> None:
    """Deletes a file."""
    try:
        path.unlink()
    except OSError as error:
        raise UserError(f"{path}: cannot be deleted: {error.strerror}") from None


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
    return process != os.getpid()  # our own number: left by an earlier process that had it


def _sync_folder(folder: Path) -> None:
    # A rename is safe only once the folder is; systems that cannot open folders need no sync.
    with suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
