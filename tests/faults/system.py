"""Between a program and its system: the n-th operation on the disk, or piece of memory, fails.

``shim.c`` says how. It stands before the system's own functions from the start of a process on
(:func:`run_under_shim`), so that native code goes through it as Python does; forked children arm
it. Where there is no C compiler, or no GNU C library, there is no shim.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
_COMPILER = os.environ.get("CC", "cc")
_LOADED = "BLACKOUT_SHIM"

DISK = {"fails": 1, "full": 2, "short": 3, "dies": 4}
"""What the disk does at the n-th operation: an error; half a write and no room from then on; half
a write, which is no error; half a write, and the process is killed."""
MEMORY = {"once": 0, "gone": 1}
"""Which large pieces cannot be had: the n-th, or the n-th and all later ones."""


def is_available() -> bool:
    """Whether the shim can stand between this system and its programs."""
    return platform.libc_ver()[0] == "glibc" and shutil.which(_COMPILER) is not None


def build(folder: Path) -> Path:
    """The shim, compiled."""
    library = folder / "shim.so"
    flags = ["-shared", "-fPIC", "-O2", "-fno-builtin"]
    subprocess.run([_COMPILER, *flags, "-o", library, SOURCE, "-ldl"], check=True)
    return library


def run_under_shim(module: str, arguments: Sequence[str], folder: Path) -> int:
    """``python -m module`` with the shim before the system; its exit status."""
    library = str(build(folder))
    environment = os.environ | {
        "LD_PRELOAD": library, _LOADED: library, "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-m", module, *arguments], env=environment, check=False)
    return done.returncode


def is_under_shim() -> bool:
    return _LOADED in os.environ


class Shim:
    """The shim of this process, disarmed at first. Children that are forked inherit its state."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ[_LOADED])
        self._library.arm_disk.argtypes = [ctypes.c_long, ctypes.c_int]
        self._library.arm_memory.argtypes = [ctypes.c_long, ctypes.c_size_t, ctypes.c_int]
        for name in ("seen_on_disk", "seen_in_memory"):
            getattr(self._library, name).restype = ctypes.c_long

    def arm(self, fault: str, n: int, least: int) -> None:
        """The n-th operation goes wrong; of memory, the n-th piece of ``least`` bytes or more."""
        if fault in DISK:
            self._library.arm_disk(n, DISK[fault])
        else:
            self._library.arm_memory(n, least, MEMORY[fault])

    def seen(self, fault: str) -> int:
        """How many operations there were since it was armed."""
        count = self._library.seen_on_disk if fault in DISK else self._library.seen_in_memory
        return int(count())

    def disarm(self) -> None:
        self._library.disarm()
