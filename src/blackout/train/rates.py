"""How fast each kind of weight learns.

RMSProp moves a weight by about its rate, whatever the size of its gradient. What a step changes is
therefore a matter of how many weights a sum has: the input of a unit and the logit of a word are
sums over h states, which a step moves all in one direction, while a row of the input table goes
into its units as it is. One rate for all of them is too small for the input table at any width and
ruins the others at a larger one. So each kind has its own, in blocks of
2,560 words and at a width of 256, and falls with a power of the number n of inputs that are added
up; how fast depends on the cell, whose states and slopes differ. The more words a block has, the
better it knows its direction: all rates go with the root of their number, above 2,560 with the
cube root, since the recurrence bears no more.

And they follow the plan. A run that reads little has to get somewhere within its steps, one that
reads the same text again and again learns its rare words by heart the faster it goes. So the rates
fall with the cube root of the words of the training text, and with the number of times each of them
comes to the power 2/3: what one pass, three and ten over texts of 80,000 to 6 million words want.
docs/experiments.md has the measurements.

They are RMSProp's. Adagrad's steps fall with the root of their number, Adam's go along a mean of
gradients, which is shorter than they are: theirs are multiples of them.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from blackout.config import Cell, Config
from blackout.models.language_model import LanguageModel
from blackout.output.maxent import Features


class Rates(NamedTuple):
    """The rates of a cell at width 256, in a run of some three passes."""

    input: float
    """Of rows of the input table, at every width."""
    recurrent: float
    output: float
    recurrent_power: float
    """With which ``recurrent`` falls with the width."""
    output_power: float
    stacked: float | None = None
    """Instead of ``recurrent`` where there are several layers; falls with the width itself."""


CELLS: dict[Cell, Rates] = {
    "sigmoid": Rates(0.36, 0.015, 0.012, 1 / 2, 1 / 2, stacked=0.01),
    "tanh": Rates(0.015, 0.001, 0.005, 0.85, 0.85),
    "relu": Rates(0.04, 0.0007, 0.005, 1, 2 / 3),
    "lstm": Rates(0.04, 0.003, 0.008, 2 / 3, 2 / 3),
    "gru": Rates(0.04, 0.003, 0.008, 0.85, 0.85),
}
_SINGLE = 0.01  # biases and other numbers that are added as they are
_FEATURE = 0.01  # hashed n-gram features
_WIDTH, _WORDS = 256, 2560
_TEXT, _ONE_PASS, _MOST_OF_PLAN = 1_120_502, 2.0, 5.0
_USUAL_EPOCHS = 3  # where nobody knows how many there will be
_OPTIMIZERS = {"rmsprop": 1.0, "adagrad": 32.0, "adam": 2.0}


def learning_rates(
    config: Config, model: LanguageModel, words: int | None = None
) -> dict[nn.Parameter, float]:
    """The first learning rate of each parameter; ``words``: of the training text, if known."""
    if config.optim.rates == "same":
        return dict.fromkeys(model.parameters(), config.optim.lr)
    cell, of_output = CELLS[config.model.cell], set(model.output.parameters())
    stacked = cell.stacked if config.model.layers > 1 else None
    features = {part.numbers for part in model.output.modules() if isinstance(part, Features)}

    def rate(p: nn.Parameter) -> float:
        if p is model.embedding.weight and not config.model.tie:
            return cell.input
        if p in features:
            return _FEATURE * config.optim.maxent_lr
        if p.ndim < 2:
            return _SINGLE
        width = _WIDTH / p.shape[-1]
        if p in of_output:
            return float(cell.output * width**cell.output_power)
        if stacked is not None:
            return float(stacked * width)
        return float(cell.recurrent * width**cell.recurrent_power)

    optim, block = config.optim, config.run.batch * config.run.bptt
    common = optim.lr * _OPTIMIZERS[optim.optimizer] * _of_block(block) * _of_plan(config, words)
    return {p: common * rate(p) for p in model.parameters()}


def _of_block(words: int) -> float:
    """How the rates follow the words of a block."""
    ratio = words / _WORDS
    return float(ratio ** (1 / 2 if ratio < 1 else 1 / 3))


def _of_plan(config: Config, words: int | None) -> float:
    """How the rates follow the words of the text and the passes over it.

    Adagrad's steps become smaller by themselves as it goes on.
    """
    if words is None or config.optim.optimizer == "adagrad":
        return 1.0
    is_planned = config.schedule in ("linear", "cosine")
    passes = config.run.planned_epochs if is_planned else _USUAL_EPOCHS
    factor = _ONE_PASS * (_TEXT / max(words, 1)) ** (1 / 3) / passes ** (2 / 3)
    return float(min(factor, _MOST_OF_PLAN))
