"""How much more memory a piece of work has taken than there was before it, at its worst moment."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SLACK = 16 << 20  # an earlier peak so little above what is held now hides nothing


class Spent:
    bytes = 0
    """At the most: an earlier peak may have been a little higher."""


@contextmanager
def watched() -> Iterator[Spent]:
    """``spent.bytes`` afterwards. Linux forgets an earlier peak when asked; others keep it."""
    spent = Spent()
    before = _status("VmRSS") if sys.platform == "linux" else _peak()
    if _peak() - before > _SLACK:
        Path("/proc/self/clear_refs").write_text("5")
    try:
        yield spent
    finally:
        spent.bytes = max(0, _peak() - before)


def _peak() -> int:
    if sys.platform == "linux":
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))
