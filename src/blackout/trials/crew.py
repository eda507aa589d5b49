"""The child processes that do the runs of one call of ``Trials.run``."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from blackout.errors import UserError
from blackout.train.loop import collect_signals
from blackout.trials.board import Board
from blackout.trials.trial import Job, Outcome, outcome_from_dict

Message = dict[str, Any] | None  # None: the child has ended


class Crew:
    """The child processes of one call, and what they are still to do."""

    def __init__(
        self,
        folder: Path,
        jobs: list[Job],
        board: Board,
        *,
        workers: int = 0,
        keep_checkpoints: bool = False,
        minutes: float = math.inf,
    ) -> None:
        cores = os.cpu_count() or 1
        self.folder, self.board = folder, board
        self.size = min(workers or cores, len(jobs))
        self.threads = max(1, cores // self.size)
        self.keep_checkpoints = keep_checkpoints
        self.deadline = None if math.isinf(minutes) else time.time() + 60 * minutes
        # With a deadline in the order given, which is that of their importance; without one the
        # longest first, so that no long run is left over at the end.
        self.waiting = list(jobs)
        if self.deadline is None:
            self.waiting.sort(key=lambda job: job.work, reverse=True)
        self.workers: list[Worker] = []
        self.messages: queue.SimpleQueue[tuple[Worker, Message]] = queue.SimpleQueue()
        self.outcomes: dict[str, Outcome] = {}

    def work(self) -> dict[str, Outcome]:
        """Does all jobs; on a signal or an error ends the children in good order."""
        try:
            with collect_signals() as caught:
                while self._hand_out():
                    self._listen()
                    self.board.tick()
                    if caught:
                        self._end()
                        raise UserError(
                            f"stopped by {caught[0]}; run the same command again: {self.board.done}"
                            f" of {self.board.all} runs are done, the others go on from their"
                            " checkpoints"
                        )
        finally:
            self._end()
            self.board.close()
        return self.outcomes

    def _hand_out(self) -> bool:
        """Gives idle children their next run; says whether anything is under way."""
        if self.deadline is not None and time.time() > self.deadline:
            self.waiting = []
        idle = [worker for worker in self.workers if worker.job is None]
        while (job := self._next()) is not None and (idle or len(self.workers) < self.size):
            if not idle:
                idle.append(Worker(self.messages, self.threads))
                self.workers.append(idle[-1])
            self.waiting.remove(job)
            idle.pop().do(job, self._spec(job))
        return any(worker.job is not None for worker in self.workers)

    def _next(self) -> Job | None:
        """The first run that may begin: of two stages of one run, the shorter comes first."""
        busy = {worker.job.run_key for worker in self.workers if worker.job is not None}
        for job in self.waiting:
            same = [other.epochs for other in self.waiting if other.run_key == job.run_key]
            if job.run_key not in busy and job.epochs == min(same):
                return job
        return None

    def _spec(self, job: Job) -> dict[str, Any]:
        goes_on = any(other.run_key == job.run_key for other in self.waiting)
        return {
            "config": job.trial.config.to_dict(),
            "data": str(Path(job.trial.data).absolute()),
            "measure": list(job.trial.measure),
            "keep_model": job.trial.keep_model,
            "keep_words": job.trial.keep_words,
            "may_diverge": job.trial.may_diverge,
            "keep_checkpoints": self.keep_checkpoints or goes_on,
            "folder": str(self.folder.absolute()),
            "key": job.key,
            "run_key": job.run_key,
            "threads": self.threads,
            "deadline": self.deadline,
        }

    def _listen(self) -> None:
        """Waits a moment for a message of a child and acts on it."""
        try:
            worker, message = self.messages.get(timeout=0.2)
        except queue.Empty:
            return
        job = worker.job
        if message is None:
            self.workers.remove(worker)
            last_words = worker.end()
            if job is not None:
                raise UserError(f"{last_words} ({self.board.labels[job.key]})")
        elif job is not None and "fraction" in message:
            self.board.fraction(job, message["fraction"])
        elif job is not None and "outcome" in message:
            worker.job = None
            self.outcomes[job.key] = outcome_from_dict(message["outcome"])
            self.board.finished(job, self.outcomes[job.key])
        elif job is not None:
            raise UserError(f"{message['error']} ({self.board.labels[job.key]})")

    def _end(self) -> None:
        """Tells all children to stop, lets them save their checkpoints and waits for them."""
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.end()
        self.workers = []


class Worker:
    """A child process; ``job`` is what it does at the moment."""

    def __init__(self, messages: queue.SimpleQueue[tuple[Worker, Message]], threads: int) -> None:
        self.job: Job | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "blackout.trials.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C is ours to pass on, once
        )
        threading.Thread(target=self._read, args=(messages,), daemon=True).start()

    def _read(self, messages: queue.SimpleQueue[tuple[Worker, Message]]) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                messages.put((self, json.loads(line)))
        messages.put((self, None))

    def do(self, job: Job, spec: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.job = job
        with contextlib.suppress(BrokenPipeError):  # it died; the end of its messages says so
            self.process.stdin.write(json.dumps(spec).encode() + b"\n")
            self.process.stdin.flush()

    def stop(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> str:
        """Waits for the child's end; says how it ended, if it was not to end."""
        self.stop()
        status = self.process.wait()
        with self._errors:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").split("\n")
        if status < 0:
            return (
                f"a run was killed by {signal.Signals(-status).name};"
                " run the same command again: it goes on from its checkpoint"
            )
        text = next((line for line in reversed(lines) if line.strip()), "")
        return f"a run ended with status {status}: {text.strip()}"
