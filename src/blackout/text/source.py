"""Reading a text file in bounded memory: plain, ``.gz`` or ``.xz`` by its name.

A file is read once from front to back, a chunk ahead of the code that uses it; on the way its
bytes are counted (progress) and summed up (:class:`SourceId`), so that a shard can later tell
whether it still belongs to the file.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from blackout import _native
from blackout.config import check_whole
from blackout.errors import UserError

__all__ = ["LineEnds", "Progress", "SourceId", "check_file", "identify", "scan", "thread_count"]

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""

CHUNK_BYTES = 8 << 20
_RACY_NS = 2_000_000_000  # a file as young as this may still change without changing its time

_COMPRESSED_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
_HINTS = {
    b"\xff\xfe": "this is UTF-16, not UTF-8",
    b"\xfe\xff": "this is UTF-16, not UTF-8",
    b"\x1f\x8b": "this is gzip; give it a name that ends in .gz",
    b"\xfd7zXZ": "this is xz; give it a name that ends in .xz",
}


@dataclass(frozen=True)
class SourceId:
    """What a file's bytes were when they were read."""

    size: int
    mtime_ns: int
    checksum: str
    """XXH64 of the file as it lies on disk, in hex."""
    read_ns: int
    """When reading began."""

    def still(self, path: str | Path) -> bool:
        """Whether the file has still these bytes.

        Size and time settle it when the file was at rest before it was read; otherwise the
        bytes are summed up again.
        """
        info = check_file(path)
        if info.st_size != self.size:
            return False
        if info.st_mtime_ns == self.mtime_ns and self.mtime_ns + _RACY_NS < self.read_ns:
            return True
        return identify(path).checksum == self.checksum

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Feeder(Protocol):
    """Takes text buffer by buffer (``_native.WordCounter``, ``_native.Encoder``)."""

    def feed(self, data: np.ndarray, last: bool) -> int: ...


def thread_count(threads: int) -> int:
    """The number of threads asked for; 0 stands for all cores this process may use."""
    check_whole("threads", threads, 0)
    if threads:
        return threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def scan(
    path: str | Path,
    feeder: Feeder,
    *,
    used: Callable[[], None] | None = None,
    progress: Progress | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> SourceId:
    """Feeds the whole file to ``feeder``, calls ``used`` after each buffer; gives its identity.

    ``feeder.feed(buffer, last)`` says how many bytes it used; the rest, an unfinished word,
    comes again in front of the next buffer.
    """
    slack = _native.MAX_WORD
    line_ends = LineEnds(path)
    spare = [np.empty(slack + max(chunk_bytes, 8), np.uint8) for _ in range(2)]
    rest = np.empty(0, np.uint8)
    head: bytes | None = None
    with _Source(Path(path)) as source, ThreadPoolExecutor(1) as reader:
        coming = reader.submit(source.fill, spare[0][slack:])
        while size := coming.result():
            buffer, spare = spare[0], spare[::-1]
            coming = reader.submit(source.fill, spare[0][slack:])
            buffer[slack - len(rest) : slack] = rest
            data = buffer[slack - len(rest) : slack + size]
            line_ends.look(buffer[slack : slack + size])
            if head is None:
                head = data[:5].tobytes()
                data = data[3 if head.startswith(b"\xef\xbb\xbf") else 0 :]
            rest = data[_feed(feeder, data, False, path, head) :].copy()
            if used:
                used()
            if progress:
                progress(min(source.position, source.size), source.size)
        _feed(feeder, rest, True, path, head or b"")
        line_ends.check()
        if used:
            used()
        return source.identity()


def _feed(feeder: Feeder, data: np.ndarray, last: bool, path: str | Path, head: bytes) -> int:
    try:
        return feeder.feed(data, last)
    except ValueError as error:
        hint = next((f" ({text})" for magic, text in _HINTS.items() if head.startswith(magic)), "")
        raise UserError(f"{path}: {error}{hint}") from None


class LineEnds:
    """Tells a text whose lines end in CR alone, as on the first Macs: it would be one sentence.

    CR before LF is dropped; in a text that has LF, a CR elsewhere is white space.

    >>> ends = LineEnds("old.txt")
    >>> ends.look(np.frombuffer(b"one\\rtwo\\r", np.uint8))
    >>> ends.check()
    Traceback (most recent call last):
    blackout.errors.UserError: old.txt: its lines end in CR alone; make it LF: tr '\\r' '\\n'
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._feed = self._return = self._between = False

    def look(self, data: np.ndarray) -> None:
        """A piece of the text, in its order."""
        if self._feed or not len(data):
            return
        self._feed = bool((data == ord("\n")).any())
        returns = np.flatnonzero(data == ord("\r"))
        # a single one behind the last word ends nothing that another line follows
        self._between |= self._return or bool(len(returns) and returns[0] + 1 < len(data))
        self._return |= len(returns) > 0

    def check(self) -> None:
        """The text is over."""
        if self._between and not self._feed:
            raise UserError(f"{self._path}: its lines end in CR alone; make it LF: tr '\\r' '\\n'")


def identify(path: str | Path) -> SourceId:
    """The identity of a file, from its bytes as they lie on disk."""
    buffer = np.empty(CHUNK_BYTES, np.uint8)
    with _Source(Path(path), unpack=False) as source:
        while source.fill(buffer):
            pass
        return source.identity()


def check_file(path: str | Path) -> os.stat_result:
    """What the system says about a text file; a folder, a pipe or nothing at all is an error."""
    path = Path(path)
    try:
        info = path.stat()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if stat.S_ISDIR(info.st_mode):
        raise UserError(f"{path}: is a folder, not a text file")
    if not stat.S_ISREG(info.st_mode):
        raise UserError(f"{path}: is not a regular file (text is read more than once)")
    return info


class _Source:
    """An open file: its text through :meth:`fill`, its identity once the text is over."""

    def __init__(self, path: Path, *, unpack: bool = True) -> None:
        self._path = path
        info = check_file(path)
        self.size, self._mtime_ns, self._read_ns = info.st_size, info.st_mtime_ns, time.time_ns()
        try:
            self._raw = _CountedFile(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
        self._stream: Any = self._raw
        if unpack and path.suffix == ".gz":
            self._stream = gzip.GzipFile(fileobj=self._raw)
        elif unpack and path.suffix == ".xz":
            self._stream = lzma.LZMAFile(self._raw)  # type: ignore[arg-type]  # noqa: SIM115

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    @property
    def position(self) -> int:
        return self._raw.position

    def fill(self, buffer: np.ndarray) -> int:
        """Reads until the buffer is full or the text over; gives the number of bytes."""
        view, filled = memoryview(buffer), 0  # type: ignore[arg-type]
        try:
            while filled < len(view) and (n := self._stream.readinto(view[filled:])):
                filled += n
        except _COMPRESSED_ERRORS as error:
            kind = self._path.suffix.lstrip(".")
            raise UserError(f"{self._path}: damaged or incomplete {kind} file: {error}") from None
        except OSError as error:
            raise UserError(f"{self._path}: cannot be read: {error.strerror or error}") from None
        return filled

    def identity(self) -> SourceId:
        while self._raw.read(1 << 20):
            pass  # whatever stands behind the end of a compressed stream
        checksum = f"{self._raw.checksum.value():016x}"
        return SourceId(self._raw.position, self._mtime_ns, checksum, self._read_ns)


class _CountedFile(io.RawIOBase):
    """A file that sums up the bytes read from it."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  closed by close()
        self.position = 0
        self.checksum = _native.Checksum()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = self._file.readinto(buffer)
        self.checksum.update(np.frombuffer(buffer, np.uint8, n) if n else np.empty(0, np.uint8))
        self.position += n
        return n

    def close(self) -> None:
        self._file.close()
        super().close()
