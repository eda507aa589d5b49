"""The training loop: blocks → loss → gradients → new weights, epoch after epoch.

A run writes to its folder: ``run.toml`` (settings), ``config.json``, ``vocab.txt`` and
``model.safetensors`` (the best model so far), ``metrics.jsonl`` and ``checkpoints/``. Killed at any
moment it goes on from its newest checkpoint, and the result is the same, bit for bit, as if it had
never stopped.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch.distributed as dist

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.tensors import first_non_finite
from blackout.memory import training_need
from blackout.models.saved import load_weights, new_model, save_weights
from blackout.optim import Schedule
from blackout.ranks import Ranks
from blackout.ranks.together import on_first, texts, together
from blackout.run_folder import RunFolder
from blackout.runtime import choose_device, require_memory, set_threads
from blackout.score.checked import NotALogProbability
from blackout.score.perplexity import Perplexity, evaluate
from blackout.shown import on_one_line
from blackout.tables import tables_on
from blackout.text.prepared import Prepared
from blackout.text.streams import Streams
from blackout.train.checkpoint import Checkpoints, Position, was_launched_as
from blackout.train.divided_step import DividedStep, Wishes
from blackout.train.metrics import Metrics, NoMetrics
from blackout.train.on_ranks import (
    as_begun,
    begun_on,
    held_by_first,
    require_same_run,
    require_shared,
)
from blackout.train.progress import Progress, speed
from blackout.train.setup import build_optimizer, default_threads, own_rate
from blackout.train.step import BlockShape, make_step
from blackout.train.training_text import follow_model, read_training_text, shared_features
from blackout.train.verdict import Judge

OWN_SIGNAL_SECONDS = 5.0
"""How long a rank that another's signal stops waits for one of its own."""


@dataclass(frozen=True)
class TrainResult:
    """What a finished run came to."""

    valid_perplexity: float
    test: Perplexity | None
    words_per_second: float
    """Training words a second, evaluation and saving left out."""
    epochs: int
    model: Path
    diverged: str = ""
    """What is wrong with the model, where its validation perplexity shows that training failed."""


class Stopped(UserError):
    """A signal stopped the run, after a checkpoint."""


class NotFinite(UserError):
    """A loss, a gradient or a weight became infinite or NaN."""


def train(
    config: Config,
    data: Prepared,
    out: str | Path | RunFolder,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    report: Callable[[Path], object] | None = None,
    process_group: dist.ProcessGroup | Ranks | None = None,
    launch: str = "",
) -> TrainResult:
    """Trains a model on the "train" text of ``data``, with "valid" and "test", into ``out``.

    The folder is held against other processes until the end.

    ``report`` is called with ``out`` at the end, be it a stop: :func:`blackout.pages.report
    .write_report` leaves a page to look at.

    ``process_group``: the ranks that share the run; all of them call this with the same settings
    and text, and a folder that all can write to. Each holds its rows of the word tables and trains
    on its streams of a block; the first alone shows progress and reports. ``launch``: a name of
    their start: a run that was begun under it goes on without ``resume``.
    """
    folder = out if isinstance(out, RunFolder) else RunFolder(out)
    ranks = Ranks.of(process_group)
    require_same_run(ranks, config, data)
    with held_by_first(folder, ranks):
        shown = progress if progress is not None and ranks.rank == 0 else Progress()
        return Trainer(config, data, folder, resume, shown, report, ranks, launch).run()


class Trainer:
    """One run; :func:`train` is its front."""

    def __init__(
        self,
        config: Config,
        data: Prepared,
        folder: RunFolder,
        resume: bool,
        progress: Progress,
        report: Callable[[Path], object] | None = None,
        ranks: Ranks | None = None,
        launch: str = "",
    ) -> None:
        self.ranks, self.launch = ranks or Ranks.alone(), launch
        # these processes may stand in for others that began the run
        again = on_first(self.ranks, lambda: "yes" if was_launched_as(folder, launch) else "")
        resume = resume or again == "yes"
        config = as_begun(self.ranks, folder, config) if resume else begun_on(self.ranks, config)
        self.config, self.data, self.folder, self.progress = config, data, folder, progress
        self.report = report
        set_threads(config.run.threads or default_threads(config, len(data.vocab)))
        self.device = choose_device(config.run.device)
        self.valid = data.shard("valid")
        self.checkpoints = Checkpoints(folder, config, data, self.ranks, launch)
        need = training_need(config, len(data.vocab), self.ranks.size)
        together(self.ranks, lambda: require_memory(need, self.device))
        with tables_on(self.device):
            self.model = new_model(config, data.vocab, ranks=self.ranks).to(self.device)
        read_training_text(self.model, data.shard("train"))
        self.optimizer = build_optimizer(
            config, self.model, data.vocab.counts, len(data.shard("train").tokens)
        )
        shape = BlockShape(config.run.bptt, config.run.batch)
        self.step = make_step(self.model, self.optimizer, shape)
        self.unread: list[int] = []  # words of the blocks whose results were not asked for yet
        optim = config.optim
        self.schedule = Schedule(config.schedule, optim.lr_decay, optim.lr_cut)
        self.judge = Judge.of(data.vocab, self.valid)
        self.position, self.config_hash = self._resume() if resume else self._begin()
        self.metrics = self._metrics()
        if self.position.step == 0:
            self._count_features()
        self.saved_at = time.monotonic()

    def _count_features(self) -> None:
        found = shared_features(self.model, self.data.shard("train"))
        if found is not None:
            self._record("features", **found._asdict())
            about = "" if found.counted == 1 else "about "
            self.progress.note(
                f"hashed features: {about}{found.features:,} n-grams of the training text, "
                f"{about}{found.shared:,} of them share a number with another"
            )

    def _metrics(self) -> Metrics:
        def opened() -> Metrics:
            if self.ranks.rank > 0:
                return NoMetrics()
            return Metrics(self.folder.metrics, keep=self.position.metrics_bytes)

        return together(self.ranks, opened)

    def _begin(self) -> tuple[Position, str]:
        def begin() -> str:
            if self.checkpoints.exist():
                raise UserError(f"{self.folder}: holds a run already; --resume goes on with it")
            return self.folder.begin(self.config, self.data.vocab)

        config_hash = on_first(self.ranks, begin)
        require_shared(self.ranks, self.folder, config_hash)
        return Position(), config_hash

    def _resume(self) -> tuple[Position, str]:
        if not self._has_checkpoint():  # killed before its first checkpoint
            return self._begin()
        state = self.model.initial_state(self.config.run.batch)
        restored = self.checkpoints.restore(self.model, self.optimizer, state)
        position, config_hash = restored
        self.step.state = state
        require_shared(self.ranks, self.folder, config_hash)
        if (before := self.checkpoints.saved_on) != self.device.type:
            self.progress.warn(
                f"the checkpoint was saved on {before}, the run goes on on {self.device.type}: "
                "not bit for bit as it would have"
            )
        self.schedule = Schedule(**position.schedule)
        return position, config_hash

    def _has_checkpoint(self) -> bool:
        def look() -> str:
            if not self.folder.settings.is_file():
                name = self.folder.settings.name
                raise UserError(f"{self.folder}: no run to resume: it has no {name}")
            return "yes" if self.checkpoints.exist() else ""

        return on_first(self.ranks, look) == "yes"

    # ------------------------------------------------------------------ the run

    def run(self) -> TrainResult:
        position = self.position
        if position.step and self._is_over():
            self.progress.note(self._why_over())
        try:
            with collect_signals() as caught:
                while not self._is_over():
                    self._train_epoch(caught)
                    self._end_epoch()
        except Stopped:
            with suppress(RuntimeError):  # a rank that is gone by now
                self._report()  # the checkpoint is safe: a look at the unfinished run
            raise
        finally:
            self.progress.close()
        test = self._test()
        self._report()
        return TrainResult(
            valid_perplexity=self.schedule.best,
            test=test,
            words_per_second=speed(position),
            epochs=position.epoch,
            model=self.folder.path,
            diverged=position.diverged,
        )

    def _is_over(self) -> bool:
        run, position = self.config.run, self.position
        if position.diverged and not run.keep_going:
            return True
        enough = run.epochs == "auto" and self.schedule.epochs_since_best >= run.patience
        return enough or position.epoch >= run.last_epoch

    def _why_over(self) -> str:
        """Of a run that is resumed where nothing is left to do."""
        run, epoch = self.config.run, self.position.epoch
        if epoch >= run.planned_epochs:
            return f"all {epoch} epochs are done: nothing to train; --epochs says more"
        if run.stop_after is not None and epoch >= run.stop_after:
            stop = f"--stop-after {run.stop_after} ends the run"
            of = "" if run.epochs == "auto" else f" of {run.epochs}"
            return f"epoch {epoch}{of} is done, where {stop}: nothing to train"
        if self.position.diverged:
            return f"the run has diverged after epoch {epoch}; --keep-going trains on all the same"
        return (
            f"validation stopped improving {self.schedule.epochs_since_best} epochs ago: nothing "
            "to train; --patience says for how long to go on"
        )

    def _train_epoch(self, caught: list[str]) -> None:
        position, run = self.position, self.config.run
        carried = self.config.model.context == "stream"  # what comes before a sentence matters
        streams = Streams(
            self.data.shard("train"),
            run.batch,
            run.bptt,
            shuffle=run.shuffle and not carried,
            seed=run.seed,
            epoch=position.epoch,
            contiguous=carried,
        )
        if position.streams is not None:
            streams.load_state(position.streams)
        else:
            self.step.state = self.model.initial_state(run.batch)
            if position.epoch:
                follow_model(self.model, self.data.shard("train"), run.seed, position.epoch)
        self.model.train()
        self.progress.epoch_begins(position.epoch + 1, run.epochs, streams.words)
        given = position.epoch_words  # to the step, whether or not its results are read yet
        mark = time.perf_counter()
        for block in streams:
            self._set_learning_rate((position.epoch + given / streams.words) / run.planned_epochs)
            self.step.train(block)
            self.unread.append(block.words)
            given += block.words
            if len(self.unread) >= self.step.interval:
                self._read_results()
            now = time.perf_counter()
            position.seconds, mark = position.seconds + (now - mark), now
            self.progress.block_done(position)
            wanted = self._wanted(caught)
            if wanted.stop or wanted.save:
                self._read_results()
                position.streams = streams.state()
                self._save()
                if wanted.stop:
                    self._wait_for_own(caught)
                    by = caught[0] if caught else "a signal to another rank"
                    raise Stopped(f"stopped by {by} after step {position.step}; --resume goes on")
                mark = time.perf_counter()
        self._read_results()

    def _wait_for_own(self, caught: list[str]) -> None:
        """Gives torchrun time to stop this rank too, as it does where machines come and go.

        It takes a rank that ends unasked for one that failed, and allows only so many of those.
        """
        until = time.monotonic() + OWN_SIGNAL_SECONDS
        while self.launch and not caught and time.monotonic() < until:
            time.sleep(0.05)

    def _wanted(self, caught: list[str]) -> Wishes:
        """Whether to stop or to save after this block: the same on every rank."""
        wishes = Wishes(bool(caught), self._checkpoint_due())
        return self.step.agree(wishes) if isinstance(self.step, DividedStep) else wishes

    def _read_results(self) -> None:
        """Counts the blocks trained since the last time, once it is sure that all went well."""
        position, full_block = self.position, self.config.run.batch * self.config.run.bptt
        for words, result in zip(self.unread, self.step.results(), strict=True):
            self._require_finite(result.loss, "loss")
            self._require_finite(result.norm, "gradient norm")
            position.step += 1
            position.words += words
            position.epoch_words += words
            position.epoch_loss += result.loss * full_block
        self.unread.clear()

    def _end_epoch(self) -> None:
        position = self.position
        self.progress.validation_begins()
        try:
            valid = evaluate(self.model, self.valid)
        except NotALogProbability:
            self._stop_as_not_finite("the validation perplexity is no number")
        self._require_finite(valid.perplexity, "validation perplexity")
        self._require_finite_weights()
        lr = self._learning_rate()
        verdict = self.judge.judge(valid.perplexity, self.schedule.best, position.step)
        position.diverged = verdict.warning if verdict.ruined else ""
        is_best = self.schedule.after_epoch(valid.perplexity)
        if is_best:
            save_weights(self.folder, self.model, self.config_hash)
        position.epoch += 1
        train_loss = position.epoch_loss / max(position.epoch_words, 1)
        self._record(
            "epoch",
            epoch=position.epoch,
            step=position.step,
            words=position.words,
            seconds=round(position.seconds, 3),
            words_per_second=round(speed(position), 1),
            lr=lr,
            train_loss=train_loss,
            valid_perplexity=valid.perplexity,
            valid_perplexity_without_unk=valid.perplexity_without_unk,
            best=is_best,
            diverged=position.diverged,
        )
        position.streams, position.epoch_loss, position.epoch_words = None, 0.0, 0
        if self.config.run.epoch_checkpoints or self._is_over():
            self._save()
        self.progress.epoch_done(position, train_loss, valid.perplexity, is_best)
        if verdict.warning:
            self.progress.warn(f"{verdict.warning}; {self._what_to_try()}")

    def _test(self) -> Perplexity | None:
        if "test" not in self.data.shards:
            return None
        # the last weights are safe in the checkpoint
        load_weights(self.folder, self.model, self.config_hash)
        result = evaluate(self.model, self.data.shard("test"))
        self._record("test", **dataclasses.asdict(result))
        return result

    def _report(self) -> None:
        """Whatever goes wrong with a report must not fail the run behind it.

        All ranks wait for it: torchrun stops those that are left when one ends with a failure, be
        it only that the run has diverged or was stopped.
        """
        together(self.ranks, self._write_report)

    def _write_report(self) -> None:
        if self.report is None or self.ranks.rank > 0:
            return
        try:
            self.report(self.folder.path)
        except Exception as error:
            kind, text = type(error).__name__, on_one_line(error)
            print(f"warning: no report.html: {kind}: {text}", file=sys.stderr)

    # ------------------------------------------------------------------ helpers

    def _set_learning_rate(self, progress: float) -> None:
        factor = self.schedule.factor(progress)
        for group in self.optimizer.param_groups:
            group["lr"] = factor * group["first_lr"]
        self.model.output.set_rate(factor * own_rate(self.config))

    def _learning_rate(self) -> float:
        """The rate at the beginning of the epoch under way, in the unit of the setting."""
        progress = self.position.epoch / self.config.run.planned_epochs
        return self.config.optim.lr * self.schedule.factor(progress)

    def _what_to_try(self) -> str:
        return f"try a smaller --lr (now {self.config.optim.lr:g}) or --clip"

    def _checkpoint_due(self) -> bool:
        return time.monotonic() - self.saved_at > 60 * self.config.run.checkpoint_minutes

    def _save(self) -> None:
        self._require_finite_weights()
        self.position.schedule = dataclasses.asdict(self.schedule)
        self.position.metrics_bytes = together(self.ranks, lambda: self.metrics.size)
        self.checkpoints.save(
            self.position, self.model, self.optimizer, self.step.state, self.config_hash
        )
        self.saved_at = time.monotonic()

    def _record(self, event: str, **values: Any) -> None:
        """A line of metrics.jsonl."""
        together(self.ranks, lambda: self.metrics.write(event, **values))

    def _require_finite(self, value: float, name: str) -> None:
        if not math.isfinite(value):
            self._stop_as_not_finite(f"the {name} is {value}")

    def _require_finite_weights(self) -> None:
        named = texts(self.ranks, first_non_finite(self.model.state_dict()) or "")
        if (name := next((name for name in named if name), None)) is not None:
            self._stop_as_not_finite(f"a weight of {name} is not finite")

    def _stop_as_not_finite(self, finding: str) -> NoReturn:
        kept = "no checkpoint was saved yet"
        if self.checkpoints.exist():
            kept = "the last checkpoint is intact"
        raise NotFinite(
            f"{finding} after {self.position.step} blocks; {kept}; {self._what_to_try()}"
        )


@contextmanager
def collect_signals() -> Iterator[list[str]]:
    """Collects SIGINT and SIGTERM instead of dying of them, so that a block is finished first.

    A second Ctrl-C stops at once. A second SIGTERM does not: nobody is impatient, two programs,
    such as a batch system and our own parent process, asked for the same thing.
    """
    caught: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def remember(number: int, frame: FrameType | None) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        caught.append(signal.Signals(number).name)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
