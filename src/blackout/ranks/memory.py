"""What a process frees stays with it: the arrays of a block are made where those of the last were.

glibc gives large arrays back to the system when they are freed; each of their pages has to be
asked for, and is filled with zeros, when the next block makes the same arrays again. That takes an
eighth of a rank's processor time.
"""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # the numbers of malloc.h


def keep_freed_memory() -> None:
    """From now on; where the C library is another than glibc, nothing changes."""
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, -1)
