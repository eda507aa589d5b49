"""Training for a given time instead of a number of epochs: layers compared at equal time.

A run is looked at after some marks of its time. In the second half of the time to a mark its
learning rate falls to 0, as it does in any training; the run then goes on from where the fall
began. So what is found at a mark is what a run of just so long gives, whatever comes later. From
the first mark on the rate also follows the length of the run, with the words read to the power
-2/3 as :mod:`blackout.train.rates` has it. On one thread the clock is processor time, which other
work on the machine hardly disturbs; on several it is the time of day. Evaluation, and the falls to
earlier marks, are not part of it.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from blackout.bench.measure import peak_rss_bytes
from blackout.config import Config
from blackout.errors import UserError
from blackout.memory import shortage
from blackout.models.language_model import LanguageModel
from blackout.models.saved import new_model
from blackout.optim import RowSparseOptimizer
from blackout.runtime import set_threads
from blackout.score.perplexity import evaluate
from blackout.text.prepared import Prepared, open_prepared
from blackout.text.streams import Block, Streams
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, make_step
from blackout.train.training_text import follow_model, read_training_text
from blackout.trials.worker import Orders, message_channel

FALL = 0.5  # the part of the time to a mark in which the rate falls to 0
RULES = 2  # counted on when they change: what was found by others is not remembered
_LENGTH_POWER = 2 / 3


@dataclass(frozen=True)
class Mark:
    """How a run stood after some seconds of training."""

    seconds: float
    words: int
    perplexity: float
    """Of the validation text."""
    scored_per_second: float
    """Words a second of exact scoring."""
    peak_bytes: int


def train_for(
    config: Config, data: Path, seconds: Sequence[float], *, apart: bool = True
) -> list[Mark]:
    """Trains with these settings on a folder of ``blackout prepare``; how it stood at the marks.

    ``apart``: in a process of its own, whose memory is then this run's alone.
    """
    seconds = sorted(seconds)
    return _in_a_child(config, data, seconds) if apart else _train_for(config, data, seconds)


def _in_a_child(config: Config, data: Path, seconds: Sequence[float]) -> list[Mark]:
    """The end of its standard input ends the child, and our end brings that, whatever ends us."""
    spec = {"config": config.to_dict(), "data": str(data.absolute()), "seconds": list(seconds)}
    said: dict[str, Any] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "blackout.paper.timed"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C ends us, and we the child, once
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died; that it says nothing tells so
            child.stdin.write(json.dumps(spec).encode() + b"\n")
            child.stdin.flush()
        for line in child.stdout:
            said = json.loads(line)
    if "marks" in said:
        return [Mark(**mark) for mark in said["marks"]]
    if "error" in said:
        raise UserError(said["error"])
    status = child.returncode
    how = f"ended with status {status}"
    if status < 0:
        how = f"was killed by {signal.Signals(-status).name}"
    raise UserError(f"a run {how}; run the same command again: finished runs are kept")


def main() -> None:
    """The child: the run that a line on standard input describes, its marks on standard output."""
    tell, orders = message_channel(), Orders()
    if (spec := orders.next()) is None:
        return
    try:
        marks = _train_for(Config.from_dict(spec["config"]), Path(spec["data"]), spec["seconds"])
        tell({"marks": [asdict(mark) for mark in marks]})
    except UserError as error:
        tell({"error": str(error)})
    except Exception as error:
        tell({"error": shortage(error) or f"{type(error).__name__}: {error}"})


def _train_for(config: Config, folder: Path, seconds: Sequence[float]) -> list[Mark]:
    data = open_prepared(folder)
    threads = set_threads(config.run.threads)
    run = _Run(config, data, time.process_time if threads == 1 else time.perf_counter)
    found = []
    for mark in seconds:
        run.train_until((1 - FALL) * mark, (1 - FALL) * seconds[0])
        kept = None if mark == seconds[-1] else run.keep()
        run.train_until(mark, (1 - FALL) * seconds[0], falling=True)
        found.append(run.look())
        if kept is not None:
            run.go_back(*kept)
    return found


class _Run:
    """A model under way, and the time and words that it has seen."""

    def __init__(self, config: Config, data: Prepared, clock: Callable[[], float]) -> None:
        self.config, self.data, self.clock = config, data, clock
        self.model: LanguageModel = new_model(config, data.vocab).train()
        read_training_text(self.model, data.shard("train"))
        self.optimizer: RowSparseOptimizer = build_optimizer(config, self.model, data.vocab.counts)
        shape = BlockShape(config.run.bptt, config.run.batch)
        self.step = make_step(self.model, self.optimizer, shape)
        self.blocks = self._all_blocks()
        self.spent, self.words = 0.0, 0

    def train_until(self, seconds: float, first: float, *, falling: bool = False) -> None:
        """Trains to that time, with smaller rates from the ``first`` second on.

        ``falling``: to 0 on the way; else with the length of the run.
        """
        begun = self.spent
        self.model.train()
        while self.spent < seconds:
            mark = self.clock()
            since = begun if falling else self.spent
            rate = (first / max(since, first)) ** _LENGTH_POWER
            if falling:
                rate *= (seconds - self.spent) / (seconds - begun)
            for group in self.optimizer.param_groups:
                group["lr"] = group["first_lr"] * rate
            block = next(self.blocks)
            self.step.train(block)
            self.words += block.words
            self.spent += self.clock() - mark
        self.step.results()

    def look(self) -> Mark:
        """How the model is now."""
        self.model.eval()
        begun = self.clock()
        found = evaluate(self.model, self.data.shard("valid"))
        took = self.clock() - begun
        scored = (found.words + found.sentence_ends) / took
        return Mark(self.spent, self.words, found.perplexity, scored, peak_rss_bytes())

    def keep(self) -> tuple[list[Tensor], float, int]:
        """Copies of all that training changes."""
        return [tensor.detach().clone() for tensor in self._tensors()], self.spent, self.words

    def go_back(self, tensors: list[Tensor], spent: float, words: int) -> None:
        """Everything as it was when it was kept but the place in the text, which goes on."""
        for tensor, kept in zip(self._tensors(), tensors, strict=True):
            tensor.detach().copy_(kept)
        self.model.output.state_was_loaded()
        self.spent, self.words = spent, words

    def _tensors(self) -> Iterator[Tensor]:
        yield from self.model.state_dict().values()
        for p in self.model.parameters():
            yield from (v for v in self.optimizer.state[p].values() if isinstance(v, Tensor))

    def _all_blocks(self) -> Iterator[Block]:
        """The text again and again; what its beginning costs is the run's time too."""
        run, carried, epoch = self.config.run, self.config.model.context == "stream", 0
        while True:
            if epoch:
                follow_model(self.model, self.data.shard("train"), run.seed, epoch)
                self.model.train()
            self.step.state = self.model.initial_state(run.batch)
            yield from Streams(
                self.data.shard("train"),
                run.batch,
                run.bptt,
                shuffle=run.shuffle and not carried,
                seed=run.seed,
                epoch=epoch,
                contiguous=carried,
            )
            epoch += 1


if __name__ == "__main__":
    main()
