"""What a person sees of a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import IO, Protocol

from blackout.train.checkpoint import Position


class Progress(Protocol):
    """Told by the loop what happens."""

    def epoch_begins(self, epoch: int, epochs: int, words: int) -> None: ...
    def block_done(self, position: Position, loss: float) -> None: ...
    def validation_begins(self) -> None: ...
    def epoch_done(
        self, position: Position, train_loss: float, valid_perplexity: float, best: bool
    ) -> None: ...


class SilentProgress:
    """Shows nothing."""

    def epoch_begins(self, epoch: int, epochs: int, words: int) -> None: ...
    def block_done(self, position: Position, loss: float) -> None: ...
    def validation_begins(self) -> None: ...
    def epoch_done(
        self, position: Position, train_loss: float, valid_perplexity: float, best: bool
    ) -> None: ...


class LineProgress:
    """One line an epoch, and on a terminal a line in between that renews itself.

    ``perplexity_of_loss``: whether exp(loss) is a perplexity, as with the exact softmax.
    """

    def __init__(self, stream: IO[str] | None = None, *, perplexity_of_loss: bool = False) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.perplexity_of_loss = perplexity_of_loss
        self.shown_at = 0.0
        self.width = 0

    def epoch_begins(self, epoch: int, epochs: int, words: int) -> None:
        self.epoch, self.epochs, self.words = epoch, epochs, words

    def block_done(self, position: Position, loss: float) -> None:
        now = time.monotonic()
        if now - self.shown_at < (0.2 if self.live else 30.0):
            return
        first = self.shown_at == 0.0
        self.shown_at = now
        if first and not self.live:
            return
        speed = position.words / max(position.seconds, 1e-9)
        left = self.words * (self.epochs - self.epoch + 1) - position.epoch_words
        mean = position.epoch_loss / max(position.epoch_words, 1)
        self._show(
            f"epoch {self.epoch}/{self.epochs}  {position.epoch_words / self.words:4.0%}  "
            f"{self._loss(mean)}  {speed:,.0f} words/s  {duration(left / speed)} left",
            end=not self.live,
        )

    def validation_begins(self) -> None:
        if self.live:
            self._show(
                f"epoch {self.epoch}/{self.epochs}  measuring validation perplexity", end=False
            )

    def epoch_done(
        self, position: Position, train_loss: float, valid_perplexity: float, best: bool
    ) -> None:
        speed = position.words / max(position.seconds, 1e-9)
        self._show(
            f"epoch {position.epoch}/{self.epochs}  {self._loss(train_loss)}  "
            f"validation perplexity {valid_perplexity:.2f}{' (best)' if best else ''}  "
            f"{speed:,.0f} words/s",
            end=True,
        )

    def _loss(self, loss: float) -> str:
        if self.perplexity_of_loss and loss < 100:
            return f"training loss {loss:.4f} (perplexity {math.exp(loss):.1f})"
        return f"training loss {loss:.4f}"

    def _show(self, line: str, end: bool) -> None:
        start = "\r" if self.live else ""
        padding = " " * max(0, self.width - len(line))
        self.stream.write(f"{start}{line}{padding}" + ("\n" if end else ""))
        self.stream.flush()
        self.width = 0 if end else len(line)


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
