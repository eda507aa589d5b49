"""Many training runs, several at a time, none of them twice.

``FOLDER/results/`` has a file for each run that was done, found by what decides its result; a run
asked for again is read from there. ``FOLDER/runs/`` holds the runs under way with their
checkpoints: a study that was stopped or killed goes on from there, and so does a trial that asks
for more epochs of a run whose checkpoints were kept. ``FOLDER/models/`` has the models to be kept,
``FOLDER/words/`` what models made of each word. Results and words say nothing of the machine: they
may be copied here from the same folder on another one.

    trials = Trials(Path("study"))
    for outcome in trials.run([Trial(config, Path("data")) for config in configs]):
        print(outcome.valid_perplexity, outcome.perplexity["test"].perplexity)

Each run is done by a child process; a child that is done with one run takes the next, since
starting PyTorch takes as long as a small run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from blackout.config import check_whole
from blackout.errors import UserError
from blackout.files.lock import locked
from blackout.run_folder import RunFolder
from blackout.shown import visible
from blackout.text.prepared import Prepared
from blackout.trials.board import Board
from blackout.trials.crew import Crew
from blackout.trials.trial import (
    Epoch,
    Job,
    Outcome,
    Trial,
    answers,
    files_kept,
    make_job,
    open_for_names,
    read_result,
)
from blackout.trials.words import words_file

__all__ = ["Epoch", "Outcome", "Trial", "Trials"]


class Trials:
    """Runs trials and remembers their outcomes in a folder.

    ``workers``: runs at a time, 0 for one a core. Runs share the cores between them, unless their
    settings name a number of threads. ``say`` takes lines of progress; by default they go to
    standard error.
    """

    def __init__(
        self, folder: Path, *, workers: int = 0, say: Callable[[str], None] | None = None
    ) -> None:
        check_whole("workers", workers, 0)
        self.folder, self.workers, self.say = Path(folder), workers, say
        self._texts: dict[Path, Prepared] = {}

    def run(
        self,
        trials: Sequence[Trial],
        *,
        keep_checkpoints: bool = False,
        minutes: float = math.inf,
    ) -> list[Outcome]:
        """The outcomes of trials, in their order; runs those that are not known yet.

        ``keep_checkpoints``: a later trial with more epochs goes on where these ended; see
        :meth:`drop_checkpoints`. After ``minutes`` no run begins any more, and those under way
        end with the best model so far; such an outcome is not remembered, and that of a run that
        had not begun has an empty curve.
        """
        self._texts = {}  # one may have been prepared anew since
        jobs = [self._job(trial) for trial in trials]
        outcomes: dict[str, Outcome] = {}
        missing: dict[str, Job] = {}
        for job in jobs:
            known = self._known(job)
            if known is not None:
                outcomes[job.key] = known
            elif job.key not in missing or job.keeps:
                missing[job.key] = job
        if missing:
            board = Board(list(missing.values()), len(outcomes), self.say)
            crew = Crew(
                self.folder,
                list(missing.values()),
                board,
                workers=self.workers,
                keep_checkpoints=keep_checkpoints,
                minutes=minutes,
            )
            outcomes |= crew.work()
        return [self._placed(job, outcomes.get(job.key)) for job in jobs]

    def known(self, trials: Sequence[Trial]) -> list[Outcome | None]:
        """The outcomes of trials that were run before; None for each that was not."""
        self._texts = {}
        jobs = [self._job(trial) for trial in trials]
        outcomes = [self._known(job) for job in jobs]
        return [
            None if found is None else self._placed(job, found)
            for job, found in zip(jobs, outcomes, strict=True)
        ]

    def drop_checkpoints(self, trials: Sequence[Trial]) -> None:
        """Deletes the checkpoints kept of these trials."""
        for folder in {self.folder / "runs" / self._job(trial).run_key for trial in trials}:
            if folder.exists():
                with locked(folder, wait=False) as held:
                    if held:
                        RunFolder(folder).delete()

    def _job(self, trial: Trial) -> Job:
        folder = Path(trial.data)
        if folder not in self._texts:
            self._texts[folder] = open_for_names(folder)
        return make_job(trial, self._texts[folder])

    def _known(self, job: Job) -> Outcome | None:
        try:
            known = read_result(self.folder / "results" / f"{job.key}.json")
        except UserError as error:
            self._warn(f"warning: {error}; the run is done again")
            return None
        if known and answers(known, self._kept(job), job.trial.may_diverge):
            return known
        return None

    def _kept(self, job: Job) -> list[Path]:
        return files_kept(self.folder, job.key, job.trial.keep_model, job.trial.keep_words)

    def _warn(self, line: str) -> None:
        if self.say is not None:
            self.say(line)
        else:
            print(visible(line), file=sys.stderr, flush=True)

    def _model(self, job: Job) -> Path:
        return self.folder / "models" / job.key

    def _placed(self, job: Job, outcome: Outcome | None) -> Outcome:
        if outcome is None:
            return Outcome((), {}, 0.0, 0)
        model, words = self._model(job), words_file(self.folder, job.key)
        has_model = job.trial.keep_model and RunFolder(model).weights.is_file()
        has_words = job.trial.keep_words and words.is_file()
        return replace(
            outcome, model=model if has_model else None, words=words if has_words else None
        )
