"""What a person sees of many runs: one live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from blackout.shown import visible
from blackout.train.progress import duration
from blackout.trials.trial import Job, Outcome, label_trials


class Board:
    """Told by ``Trials`` what happens; writes to standard error, or lines to ``say``.

    The time left follows from the work done since the start, where a run's work is an estimate
    from its sizes: so ten short runs do not promise that the long one is nearly done.
    """

    interval = 30.0

    def __init__(
        self, jobs: Sequence[Job], known: int, say: Callable[[str], None] | None = None
    ) -> None:
        self.jobs = jobs
        self.done, self.all = known, known + len(jobs)
        self.say = say or (lambda line: print(visible(line), file=sys.stderr, flush=True))
        self.labels = dict(
            zip((j.key for j in jobs), label_trials([j.trial for j in jobs]), strict=True)
        )
        self.fractions = {job.key: 0.0 for job in jobs}
        self.found: dict[str, float] = {}
        """How far a run was already when it was taken up."""
        self.started = self.said_at = time.monotonic()
        self.bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(30),
                TextColumn("{task.fields[left]}"),
            )
            # Lines printed meanwhile appear above the bar; a redirected output stays redirected.
            self.bar = Progress(
                *columns,
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self.task = self.bar.add_task(self._count(), total=self._work(), left="")
            self.bar.start()

    def fraction(self, job: Job, fraction: float) -> None:
        """A run is so far."""
        self.found.setdefault(job.key, fraction)
        self.fractions[job.key] = fraction

    def finished(self, job: Job, outcome: Outcome) -> None:
        """A run is over."""
        self.found.setdefault(job.key, 1.0)  # another process did it
        self.fractions[job.key] = 1.0
        self.done += 1
        found = f"validation perplexity {outcome.valid_perplexity:.2f}"
        self._line(
            f"{self.labels[job.key]}: {outcome.failure or found}  "
            f"{outcome.words_per_second:,.0f} words/s"
        )

    def tick(self) -> None:
        """Called several times a second."""
        if self.bar is not None:
            done = sum(job.work * self.fractions[job.key] for job in self.jobs)
            left = self._left()
            self.bar.update(
                self.task,
                description=self._count(),
                completed=done,
                left=f"{left} left" if left else "",
            )
        elif time.monotonic() - self.said_at >= self.interval:
            running = sum(0 < f < 1 for f in self.fractions.values())
            self._line(f"{running} running")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()

    def _line(self, text: str) -> None:
        self.said_at = time.monotonic()
        left = self._left()
        self.say(f"{text}  {self._count()}" + (f"  {left} left" if left else ""))

    def _count(self) -> str:
        return f"{self.done}/{self.all} runs done"

    def _work(self) -> float:
        return sum(job.work for job in self.jobs)

    def _left(self) -> str:
        """The time left, empty where it is not known."""
        fresh = sum(
            job.work * (self.fractions[job.key] - self.found.get(job.key, 0)) for job in self.jobs
        )
        left = sum(job.work * (1 - self.fractions[job.key]) for job in self.jobs)
        elapsed = time.monotonic() - self.started
        return duration(left / fresh * elapsed) if fresh > 0 and left > 0 else ""
