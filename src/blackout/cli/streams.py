"""Standard output and standard error as they really are: closed, full, or without an accent.

What a verb computes goes to standard output; if it does not arrive, the verb has failed. What it
tells people on the way goes to standard error; if nobody can hear it, the work goes on.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from blackout.errors import UserError

__all__ = ["close_output", "prepare_streams", "say_out"]


class _Gone(io.RawIOBase):
    """Standard output that was closed before we began."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(errno.EBADF, "it is closed")


class _Lossy(io.RawIOBase):
    """Standard error, as much of it as can be written."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._handle

    def isatty(self) -> bool:
        return os.isatty(self._handle)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        try:
            while len(view):
                view = view[os.write(self._handle, view) :]
        except OSError:
            pass
        return size


def prepare_streams() -> None:
    """Makes ``sys.stdout`` and ``sys.stderr`` fit to be written to, whatever they were."""
    for handle in range(3):
        # A file opened later must not get the number of a closed stream: what native code says
        # to people would end in it.
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Gone()), "utf-8")
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without accents
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    sys.stderr = io.TextIOWrapper(
        _Lossy(2),  # type: ignore[arg-type]
        encoding,
        "backslashreplace",
        write_through=True,
    )


def say_out(text: str) -> None:
    """A line on standard output, which must arrive."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(_lost(error)) from None


def _lost(error: OSError) -> str:
    return f"standard output: cannot be written: {error.strerror or error}"


def close_output() -> str | None:
    """Sends what is still on its way to standard output; says why if it cannot be sent."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        reason = ""  # the reader went away, e.g. `| head`
    except OSError as error:
        reason = _lost(error)
    else:
        return None
    # The interpreter tries once more at its end, and would complain in its own words.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return reason
