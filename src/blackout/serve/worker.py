"""One thread that computes for everybody: what is asked of one model is computed together.

A piece of work takes the jobs that wait for the same answer from the same model and is a generator:
it yields between small steps, so that a long text of one user does not keep the words of another
waiting. Work that can be joined on its way (generation) is given jobs while it runs.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from blackout.errors import UserError
from blackout.memory import shortage
from blackout.serve.questions import Refusal
from blackout.serve.shelf import Shown

__all__ = ["Job", "Work", "Worker"]

Work = Callable[[Shown, "deque[Job]"], Iterator[None]]
"""Answers the jobs it is given, taking them from the left; yields between its steps."""

_END = object()


class Job:
    """A question on its way: answers go to the event loop that waits for them."""

    def __init__(self, work: Work, model: Shown, asked: Any) -> None:
        self.work, self.model, self.asked = work, model, asked
        self.wanted = True
        """Whether anybody still waits."""
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    def send(self, answer: Any) -> None:
        """An answer, or one of several; from the worker's thread."""
        if self.wanted:
            try:
                self._loop.call_soon_threadsafe(self._answers.put_nowait, answer)
            except RuntimeError:  # the loop has ended
                self.wanted = False

    def end(self) -> None:
        """No more answers."""
        self.send(_END)

    async def answers(self) -> Any:
        """The answers as they come; a failure is raised."""
        try:
            while (answer := await self._answers.get()) is not _END:
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        finally:
            self.wanted = False

    async def answer(self) -> Any:
        """The only answer."""
        async for answer in self.answers():
            return answer
        raise AssertionError("no answer")


class Worker:
    """Takes jobs from any thread and computes them in its own."""

    def __init__(self, most_waiting: int) -> None:
        self._most = most_waiting
        self._waiting: deque[Job] = deque()
        self._news = threading.Condition()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the step it is in; who still waits is told."""
        with self._news:
            self._stopped = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join()

    def submit(self, job: Job) -> None:
        """Puts a job into the queue, if there is room."""
        with self._news:
            if self._stopped:
                raise Refusal(503, "the server is stopping")
            if len(self._waiting) >= self._most:
                raise Refusal(503, "too many questions are waiting; try again", retry_after=1)
            self._waiting.append(job)
            self._news.notify()

    # ------------------------------------------------------------------ in its own thread

    def _run(self) -> None:
        groups: dict[tuple[Work, str], _Group] = {}
        while True:
            with self._news:
                while not (groups or self._waiting or self._stopped):
                    self._news.wait()
                if self._stopped:
                    break
                arrived, self._waiting = self._waiting, deque()
            for job in arrived:
                key = (job.work, job.model.name)
                groups.setdefault(key, _Group(job.work, job.model)).jobs.append(job)
            for key, group in list(groups.items()):
                if not group.step():
                    del groups[key]
        for job in [*self._waiting, *(job for group in groups.values() for job in group.open)]:
            job.send(Refusal(503, "the server is stopping"))


class _Group:
    """Jobs of one kind for one model, and the work on some of them."""

    def __init__(self, work: Work, model: Shown) -> None:
        self._work, self._model = work, model
        self.jobs: deque[Job] = deque()
        self.open: list[Job] = []
        self._steps: Iterator[None] | None = None

    def step(self) -> bool:
        """One step; False when nothing is left to do."""
        self.open = [job for job in (*self.open, *self.jobs) if job.wanted]
        self.open = list(dict.fromkeys(self.open))
        try:
            if self._steps is None:
                self._steps = self._work(self._model, self.jobs)
            next(self._steps)
        except StopIteration:
            self._steps = None
            return bool(self.jobs)
        except Exception as error:
            self._steps = None
            self.jobs.clear()
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        if (short := shortage(error)) is not None:
            print(f"warning: {short}: {len(self.open)} not answered", file=sys.stderr)
            error = Refusal(503, f"{short}; try again", retry_after=1)
        elif not isinstance(error, UserError):
            traceback.print_exception(error, file=sys.stderr)
        for job in self.open:
            job.send(error)
