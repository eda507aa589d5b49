"""Progress of work in stages: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType

__all__ = ["Stages"]


class Stages:
    """Called with (stage, done, total); writes to standard error."""

    def __init__(self) -> None:
        self._started = self._said = time.perf_counter()
        self._bar = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)

    def __enter__(self) -> Stages:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=stage, completed=done, total=total)
        elif (now := time.perf_counter()) - self._said > 5:
            self._said = now
            share = f"{done / total:.0%}" if total else ""
            print(f"{now - self._started:6.0f} s  {stage} {share}", file=sys.stderr, flush=True)
