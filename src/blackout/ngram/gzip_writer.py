"""Writing gzip with all cores: each piece of the data is a gzip member of its own."""

from __future__ import annotations

import gzip
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO

from blackout.text.source import thread_count

__all__ = ["GzipWriter"]

_MEMBER = 4 << 20


class GzipWriter:
    """A stream that packs what is written to it; any gzip program reads the result.

    The file does not depend on the number of cores.

    >>> import io
    >>> packed = io.BytesIO()
    >>> with GzipWriter(packed) as writer:
    ...     writer.write(b"text")
    >>> gzip.decompress(packed.getvalue())
    b'text'
    """

    def __init__(self, file: IO[bytes], level: int = 6) -> None:
        self._file = file
        self._level = level
        self._pending: list[bytes] = []
        self._size = 0
        self._threads = thread_count(0)
        self._pool = ThreadPoolExecutor(self._threads)
        self._members: deque[Future[bytes]] = deque()

    def __enter__(self) -> GzipWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._submit()
                while self._members:
                    self._file.write(self._members.popleft().result())
        finally:
            self._pool.shutdown(cancel_futures=True)

    def write(self, data: bytes) -> None:
        self._pending.append(data)
        self._size += len(data)
        if self._size >= _MEMBER:
            self._submit()
        while len(self._members) > 2 * self._threads:
            self._file.write(self._members.popleft().result())

    def _submit(self) -> None:
        data = b"".join(self._pending)
        self._pending, self._size = [], 0
        self._members.append(self._pool.submit(gzip.compress, data, self._level, mtime=0))
