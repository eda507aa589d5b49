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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.tensors import first_non_finite
from blackout.memory import training_need
from blackout.models.saved import load_weights, new_model, save_weights
from blackout.optim import Schedule
from blackout.run_folder import RunFolder
from blackout.runtime import choose_device, require_memory, set_threads
from blackout.score.checked import NotALogProbability
from blackout.score.perplexity import Perplexity, evaluate
from blackout.shown import on_one_line
from blackout.text.prepared import Prepared
from blackout.text.streams import Streams
from blackout.train.checkpoint import Checkpoints, Position
from blackout.train.metrics import Metrics
from blackout.train.progress import Progress, speed
from blackout.train.setup import build_optimizer, default_threads
from blackout.train.step import BlockShape, make_step
from blackout.train.training_text import follow_model, read_training_text


@dataclass(frozen=True)
class TrainResult:
    """What a finished run came to."""

    valid_perplexity: float
    test: Perplexity | None
    words_per_second: float
    """Training words a second, evaluation and saving left out."""
    epochs: int
    model: Path


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
) -> TrainResult:
    """Trains a model on the "train" text of ``data``, with "valid" and "test", into ``out``.

    The folder is held against other processes until the end.

    ``report`` is called with ``out`` at the end, be it a stop: :func:`blackout.pages.report
    .write_report` leaves a page to look at.
    """
    folder = out if isinstance(out, RunFolder) else RunFolder(out)
    with folder.held():
        return Trainer(config, data, folder, resume, progress or Progress(), report).run()


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
    ) -> None:
        self.config, self.data, self.folder, self.progress = config, data, folder, progress
        self.report = report
        set_threads(config.run.threads or default_threads(config, len(data.vocab)))
        self.device = choose_device(config.run.device)
        self.valid = data.shard("valid")
        self.checkpoints = Checkpoints(folder, config, data)
        require_memory(training_need(config, len(data.vocab)), self.device)
        self.model = new_model(config, data.vocab).to(self.device)
        read_training_text(self.model, data.shard("train"))
        self.optimizer = build_optimizer(config, self.model, data.vocab.counts)
        shape = BlockShape(config.run.bptt, config.run.batch)
        self.step = make_step(self.model, self.optimizer, shape)
        self.unread: list[int] = []  # words of the blocks whose results were not asked for yet
        optim = config.optim
        self.schedule = Schedule(optim.lr, optim.lr_decay, optim.lr_cut)
        self.position, self.config_hash = self._resume() if resume else self._begin()
        self.metrics = Metrics(folder.metrics, keep=self.position.metrics_bytes)
        self.saved_at = time.monotonic()

    def _begin(self) -> tuple[Position, str]:
        if self.checkpoints.exist():
            raise UserError(f"{self.folder}: holds a run already; --resume goes on with it")
        return Position(), self.folder.begin(self.config, self.data.vocab)

    def _resume(self) -> tuple[Position, str]:
        if not self.folder.settings.is_file():
            name = self.folder.settings.name
            raise UserError(f"{self.folder}: no run to resume: it has no {name}")
        if not self.checkpoints.exist():  # killed before its first checkpoint
            return self._begin()
        restored = self.checkpoints.restore(self.model, self.optimizer, self.step.state)
        position, config_hash = restored
        self.schedule = Schedule(**position.schedule)
        return position, config_hash

    # ------------------------------------------------------------------ the run

    def run(self) -> TrainResult:
        position = self.position
        try:
            with collect_signals() as caught:
                while position.epoch < self.config.run.epochs:
                    self._train_epoch(caught)
                    self._end_epoch()
        except Stopped:
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
        self._set_learning_rate()
        self.progress.epoch_begins(position.epoch + 1, run.epochs, streams.words)
        mark = time.perf_counter()
        for block in streams:
            self.step.train(block)
            self.unread.append(block.words)
            if len(self.unread) >= self.step.interval:
                self._read_results()
            now = time.perf_counter()
            position.seconds, mark = position.seconds + (now - mark), now
            self.progress.block_done(position)
            if caught or self._checkpoint_due():
                self._read_results()
                position.streams = streams.state()
                self._save()
                if caught:
                    raise Stopped(
                        f"stopped by {caught[0]} after step {position.step}; --resume goes on"
                    )
                mark = time.perf_counter()
        self._read_results()

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
        lr = self.schedule.lr
        is_best = self.schedule.after_epoch(valid.perplexity)
        if is_best:
            save_weights(self.folder, self.model, self.config_hash)
        position.epoch += 1
        train_loss = position.epoch_loss / max(position.epoch_words, 1)
        self.metrics.write(
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
        )
        position.streams, position.epoch_loss, position.epoch_words = None, 0.0, 0
        self._save()
        self.progress.epoch_done(position, train_loss, valid.perplexity, is_best)

    def _test(self) -> Perplexity | None:
        if "test" not in self.data.shards:
            return None
        # the last weights are safe in the checkpoint
        load_weights(self.folder, self.model, self.config_hash)
        result = evaluate(self.model, self.data.shard("test"))
        self.metrics.write("test", **dataclasses.asdict(result))
        return result

    def _report(self) -> None:
        """Whatever goes wrong with a report must not fail the run behind it."""
        if self.report is None:
            return
        try:
            self.report(self.folder.path)
        except Exception as error:
            kind, text = type(error).__name__, on_one_line(error)
            print(f"warning: no report.html: {kind}: {text}", file=sys.stderr)

    # ------------------------------------------------------------------ helpers

    def _set_learning_rate(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.lr

    def _checkpoint_due(self) -> bool:
        return time.monotonic() - self.saved_at > 60 * self.config.run.checkpoint_minutes

    def _save(self) -> None:
        self._require_finite_weights()
        self.position.schedule = dataclasses.asdict(self.schedule)
        self.position.metrics_bytes = self.metrics.size
        self.checkpoints.save(
            self.position, self.model, self.optimizer, self.step.state, self.config_hash
        )
        self.saved_at = time.monotonic()

    def _require_finite(self, value: float, name: str) -> None:
        if not math.isfinite(value):
            self._stop_as_not_finite(f"the {name} is {value}")

    def _require_finite_weights(self) -> None:
        if (name := first_non_finite(self.model.state_dict())) is not None:
            self._stop_as_not_finite(f"a weight of {name} is not finite")

    def _stop_as_not_finite(self, finding: str) -> NoReturn:
        kept = "no checkpoint was saved yet"
        if self.checkpoints.exist():
            kept = "the last checkpoint is intact"
        raise NotFinite(
            f"{finding} after {self.position.step} blocks; {kept}; "
            f"try a smaller --lr (now {self.schedule.lr:g}) or --clip"
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
