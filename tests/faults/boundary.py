"""A shim between a function and the disk: the n-th write, sync, rename, delete or open goes wrong.

It dies there (kill -9), or fails with an error of the system; of a write one half has reached the
disk by then.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from typing import Any

Goes = Callable[[], None]


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fails() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


class Boundary:
    """Counts the operations of this process that change a disk; ``goes`` wrong at the n-th."""

    NAMES = ("fsync", "replace", "unlink", "mkdir")

    def __init__(self, n: int, goes: Goes) -> None:
        self.left, self.goes = n, goes
        self.before: dict[str, Any] = {"open": io.open} | {n: getattr(os, n) for n in self.NAMES}

    @property
    def reached(self) -> bool:
        """Whether there was an n-th operation."""
        return self.left <= 0

    def __enter__(self) -> Boundary:
        builtins.open = io.open = self._open  # type: ignore[assignment]
        for name in self.NAMES:
            setattr(os, name, self._counted(self.before[name]))
        return self

    def __exit__(self, *_: object) -> None:
        builtins.open = io.open = self.before["open"]
        for name in self.NAMES:
            setattr(os, name, self.before[name])

    def _tick(self) -> bool:
        self.left -= 1
        return self.left == 0

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._tick():
                self.goes()
            return function(*arguments, **options)

        return call

    def _open(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not isinstance(file, int) and set(mode) & set("wax+") and self._tick():
            self.goes()
        opened = self.before["open"](file, mode, *arguments, **options)
        if set(mode) & set("wax+"):
            self._watch(opened)
        return opened

    def _watch(self, file: Any) -> None:
        write, flush = file.write, file.flush

        def half_at_last(data: Any) -> Any:
            if self._tick():
                write(data[: len(data) // 2])
                flush()
                self.goes()
            return write(data)

        file.write = half_at_last
