"""What a person sees of a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import IO, Literal

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress

from blackout import losses
from blackout.config import Config
from blackout.train.checkpoint import Position

Epochs = int | Literal["auto"]


class Progress:
    """Told by the loop what happens; this one shows nothing."""

    def epoch_begins(self, epoch: int, epochs: Epochs, words: int) -> None:
        """Epoch number ``epoch`` of ``epochs`` begins; it has ``words`` words."""

    def block_done(self, position: Position) -> None:
        """A block was trained."""

    def validation_begins(self) -> None:
        """The epoch's training is over."""

    def epoch_done(
        self, position: Position, train_loss: float, valid_perplexity: float, best: bool
    ) -> None:
        """The epoch is over."""

    def note(self, text: str) -> None:
        """Something that is worth knowing."""

    def warn(self, text: str) -> None:
        """Something is wrong that somebody should know of."""

    def close(self) -> None:
        """The run is over, whatever the way."""


class LineProgress(Progress):
    """One line an epoch, and one every half minute in between.

    ``exact``: the loss is that of the exact softmax, so that exp(loss) is a perplexity.
    """

    interval = 30.0

    def __init__(self, stream: IO[str], exact: bool) -> None:
        self.stream = stream
        self.exact = exact
        self.shown_at = time.monotonic()
        self.epoch = self.words = 0
        self.epochs: Epochs = 0

    def epoch_begins(self, epoch: int, epochs: Epochs, words: int) -> None:
        self.epoch, self.epochs, self.words = epoch, epochs, words

    def block_done(self, position: Position) -> None:
        now = time.monotonic()
        if now - self.shown_at >= self.interval:
            self.shown_at = now
            self.show_running(position)

    def show_running(self, position: Position) -> None:
        share = position.epoch_words / self.words
        self.write(f"{self.label()}  {share:4.0%}  {self.figures(position)}")

    def epoch_done(
        self, position: Position, train_loss: float, valid_perplexity: float, best: bool
    ) -> None:
        self.shown_at = time.monotonic()
        self.write(
            f"{self.label()}  {self.loss(train_loss)}  "
            f"validation perplexity {valid_perplexity:.2f}{' (best)' if best else ''}  "
            f"{speed(position):,.0f} words/s"
        )

    def write(self, line: str) -> None:
        print(line, file=self.stream, flush=True)

    def note(self, text: str) -> None:
        self.write(text)

    def warn(self, text: str) -> None:
        self.write(f"warning: {text}")

    def label(self) -> str:
        return f"epoch {self.epoch}" + ("" if self.epochs == "auto" else f"/{self.epochs}")

    def figures(self, position: Position) -> str:
        """Loss, speed and time left, of the epoch where nobody knows how many there will be."""
        more = 0 if self.epochs == "auto" else self.epochs - self.epoch
        left = self.words * (more + 1) - position.epoch_words
        of = " of this epoch" if self.epochs == "auto" else ""
        mean = position.epoch_loss / max(position.epoch_words, 1)
        rate = speed(position)
        return f"{self.loss(mean)}  {rate:,.0f} words/s  {duration(left / rate)}{of} left"

    def loss(self, loss: float) -> str:
        text = f"training loss {loss:.4f}"
        return f"{text} (perplexity {math.exp(loss):.1f})" if self.exact and loss < 100 else text


class BarProgress(LineProgress):
    """The same lines with a live bar below them, for terminals."""

    interval = 0.2

    def __init__(self, stream: IO[str], exact: bool) -> None:
        super().__init__(stream, exact)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(30),
            TextColumn("{task.fields[about]}"),
        )
        self.bar = RichProgress(*columns, console=Console(file=stream), transient=True)
        self.task: TaskID | None = None

    def epoch_begins(self, epoch: int, epochs: Epochs, words: int) -> None:
        super().epoch_begins(epoch, epochs, words)
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.bar.start()
        self.task = self.bar.add_task(self.label(), total=words, about="")

    def show_running(self, position: Position) -> None:
        assert self.task is not None
        self.bar.update(self.task, completed=position.epoch_words, about=self.figures(position))

    def validation_begins(self) -> None:
        assert self.task is not None
        self.bar.update(self.task, completed=self.words, about="measuring validation perplexity")

    def write(self, line: str) -> None:
        self.bar.console.print(line, highlight=False)

    def close(self) -> None:
        self.bar.stop()


def make_progress(config: Config, stream: IO[str] | None = None) -> Progress:
    """The progress display that suits where it is shown, by default standard error."""
    stream = stream or sys.stderr
    kind = BarProgress if stream.isatty() else LineProgress
    return kind(stream, exact=losses.find(config.loss.loss).exact)


def speed(position: Position) -> float:
    """Training words a second so far."""
    return position.words / max(position.seconds, 1e-9)


def duration(seconds: float) -> str:
    """A length of time for people.

    >>> duration(75), duration(4000), duration(8)
    ('1 min 15 s', '1 h 06 min', '8 s')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
