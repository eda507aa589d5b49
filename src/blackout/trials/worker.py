"""The process that does trials: ``python -m blackout.trials.worker``, started by ``Trials``.

Each line on standard input is a trial as JSON; each line on standard output is a message about it:
``{"fraction": 0.25}`` now and then, at its end ``{"outcome": …}`` or ``{"error": …}``. The end of
standard input, which the end of the parent process brings too, is SIGTERM: the run under way saves
a checkpoint and stops. The next trial with the same run goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.models.saved import load
from blackout.perplexity import Perplexity
from blackout.run_folder import RunFolder
from blackout.runtime import choose_device
from blackout.score.perplexity import evaluate
from blackout.text.prepared import Prepared, open_prepared
from blackout.train.checkpoint import Position, epochs_done
from blackout.train.loop import NotFinite, Stopped, train
from blackout.train.metrics import read_metrics
from blackout.train.progress import Epochs, Progress
from blackout.train.setup import default_threads
from blackout.trials.trial import (
    Epoch,
    Outcome,
    answers,
    files_kept,
    outcome_to_dict,
    read_result,
    write_result,
)
from blackout.trials.words import words_file, write_words

Tell = Callable[[dict[str, Any]], None]


def do_trial(spec: dict[str, Any], tell: Tell) -> Outcome:
    """Does the trial that ``spec`` describes, or what is left of it.

    ``spec``: config, data and measure of the trial; folder, key and run_key: where it is kept;
    keep_model, keep_words, may_diverge, keep_checkpoints; threads: how many are ours; deadline:
    when to be content with the model so far (seconds since 1970, or null).
    """
    root, config = Path(spec["folder"]), Config.from_dict(spec["config"])
    result, model = root / "results" / f"{spec['key']}.json", root / "models" / spec["key"]
    run = RunFolder(root / "runs" / spec["run_key"])
    with run.held(wait=True):
        done = None
        with contextlib.suppress(UserError):  # damaged: it is about to be replaced
            done = read_result(result)
        kept = files_kept(root, spec["key"], spec["keep_model"], spec["keep_words"])
        if done and answers(done, kept, spec["may_diverge"]):
            return done  # another process did it while we waited
        inner = run
        last = config.run.last_epoch
        # A run that is past our last epoch may have its best model later: ours is trained apart.
        if epochs_done(run) > last:
            inner = RunFolder(run.path / f"epochs-{last}")
        outcome, whole = _train_and_measure(spec, config, inner, tell)
        if spec["keep_model"] and not outcome.failure and inner.weights.is_file():
            inner.copy_model(model)
        if whole:
            make_folder(result.parent)
            write_result(result, config, outcome)
        if inner != run or not spec["keep_checkpoints"] or outcome.failure:
            inner.delete()
    return outcome


def _train_and_measure(
    spec: dict[str, Any], config: Config, run: RunFolder, tell: Tell
) -> tuple[Outcome, bool]:
    """The outcome, and whether all epochs were trained."""
    data = open_prepared(spec["data"], ("train", "valid", *spec["measure"]))
    if not config.run.threads:
        small = default_threads(config, len(data.vocab)) == 1
        config = replace(config, run=replace(config.run, threads=1 if small else spec["threads"]))
    texts = {part: data.shard(part) for part in ("train", "valid")}  # no test text in training
    watch, whole = Watch(tell, spec["deadline"]), True
    try:
        result = train(
            config,
            Prepared(data.folder, data.vocab, texts),
            run,
            resume=run.settings.is_file(),
            progress=watch,
        )
    except NotFinite as failure:
        if not spec["may_diverge"]:
            raise
        return Outcome(_curve(_epochs(config, run)), {}, 0.0, 0, failure=str(failure)), True
    except Stopped:
        if not watch.is_late:
            raise
        whole = False
    else:
        if result.diverged and not config.run.keep_going:
            if not spec["may_diverge"]:
                raise UserError(f"training diverged: {result.diverged}")
            curve = _curve(_epochs(config, run))
            return Outcome(curve, {}, 0.0, 0, failure=result.diverged), True
    return _measure(spec, config, data, run, whole), whole


def _measure(
    spec: dict[str, Any], config: Config, data: Prepared, run: RunFolder, whole: bool
) -> Outcome:
    epochs, parts = _epochs(config, run), spec["measure"]
    best = run.weights.is_file()  # else not even one epoch was trained
    device = choose_device(config.run.device).type
    model = load(run.path, which="best" if best else "last", device=device)
    words: dict[str, list[np.ndarray]] = {}

    def measured(part: str) -> Perplexity:
        pieces = words.setdefault(part, [])
        watch = pieces.append if spec["keep_words"] else None
        return evaluate(model, data.shards[part], watch=watch)

    perplexity = {part: measured(part) for part in parts if part in data.shards}
    if spec["keep_words"] and whole:
        if "valid" not in words:
            measured("valid")
        path = words_file(Path(spec["folder"]), spec["key"])
        write_words(
            path, {p: np.concatenate(found, dtype=np.float32) for p, found in words.items()}
        )
    return Outcome(
        curve=_curve(epochs),
        perplexity=perplexity,
        words_per_second=epochs[-1]["words_per_second"] if epochs else 0.0,
        parameters=sum(p.numel() for p in model.parameters()),
    )


def _epochs(config: Config, run: RunFolder) -> list[dict[str, Any]]:
    events = read_metrics(run.metrics)
    return [event for event in events if event["event"] == "epoch"][: config.run.last_epoch]


def _curve(epochs: list[dict[str, Any]]) -> tuple[Epoch, ...]:
    names = Epoch.__dataclass_fields__
    return tuple(Epoch(**{name: epoch[name] for name in names}) for epoch in epochs)


class Watch(Progress):
    """Tells how far a run is, and ends it when its time is over."""

    interval = 0.5

    def __init__(self, tell: Tell, deadline: float | None) -> None:
        self.tell, self.deadline = tell, deadline
        self.is_late = False
        self.told_at = 0.0
        self.epoch, self.epochs, self.words = 1, 1, 1

    def epoch_begins(self, epoch: int, epochs: Epochs, words: int) -> None:
        planned = epoch + 1 if epochs == "auto" else epochs  # a guess: one more
        self.epoch, self.epochs, self.words = epoch, planned, words
        self._tell(0)

    def block_done(self, position: Position) -> None:
        if time.monotonic() - self.told_at > self.interval:
            self._tell(position.epoch_words)
        if self.deadline is not None and not self.is_late and time.time() > self.deadline:
            self.is_late = True
            os.kill(os.getpid(), signal.SIGTERM)  # the loop's way to stop: a checkpoint, then out

    def _tell(self, words: int) -> None:
        self.told_at = time.monotonic()
        self.tell({"fraction": (self.epoch - 1 + words / self.words) / self.epochs})


class Orders:
    """The lines of standard input; when they end, SIGTERM for the run under way."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._busy = self._over = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        # Not sys.stdin: a program cannot end while a thread waits in its read.
        while piece := os.read(0, 1 << 16):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._lines.put(line)
        self._over = True
        self._lines.put(b"")
        if self._busy:
            os.kill(os.getpid(), signal.SIGTERM)

    def next(self) -> dict[str, Any] | None:
        self._busy = False
        line = self._lines.get()
        self._busy = True  # first: whoever ends the lines then sees us, or we see that they ended
        return json.loads(line) if line and not self._over else None


def message_channel() -> Tell:
    """Standard output for messages alone: whatever libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the parent is gone, and its end stops us too
            channel.write(json.dumps(message) + "\n")
            channel.flush()

    return tell


def main() -> None:
    tell, orders = message_channel(), Orders()
    while (spec := orders.next()) is not None:
        try:
            tell({"outcome": outcome_to_dict(do_trial(spec, tell))})
        except Stopped as stopped:
            reason = str(stopped).partition(";")[0]
            tell({"error": f"a run was {reason}; run the same command again: it goes on there"})
            return
        except UserError as error:
            tell({"error": str(error)})
        except Exception as error:
            traceback.print_exc()
            tell({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
