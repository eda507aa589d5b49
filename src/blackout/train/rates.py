"""How fast each kind of weight learns.

RMSProp moves a weight by about its rate, whatever the size of its gradient. What a step changes is
therefore a matter of how many weights a sum has: the input of a unit and the logit of a word are
sums over h states, which a step moves all in one direction, while a row of the input table goes
into its units as it is. One rate for all of them is too small for the input table at any width and
ruins the others at a larger one. So each kind has its own, in blocks of
2,560 words and at a width of 256, and falls with a power of the number n of inputs that are added
up; how fast depends on the cell, whose states and slopes differ. The more words a block has, the
better it knows its direction: all rates go with the root of their number.
docs/experiments.md has the measurements.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from blackout.config import Cell, Config
from blackout.models.language_model import LanguageModel


class Rates(NamedTuple):
    """The rates of a cell at width 256."""

    input: float
    """Of rows of the input table, at every width."""
    recurrent: float
    output: float
    power: float
    """With which the latter two fall with the width."""


CELLS: dict[Cell, Rates] = {
    "sigmoid": Rates(0.36, 0.03, 0.012, 1 / 2),
    "tanh": Rates(0.015, 0.001, 0.005, 1),
    "relu": Rates(0.04, 0.003, 0.008, 2 / 3),
    "lstm": Rates(0.04, 0.003, 0.008, 2 / 3),
    "gru": Rates(0.04, 0.003, 0.008, 2 / 3),
}
_SINGLE = 0.01  # biases and other numbers that are added as they are
_WIDTH, _WORDS = 256, 2560


def learning_rates(config: Config, model: LanguageModel) -> dict[nn.Parameter, float]:
    """The first learning rate of each parameter."""
    if config.optim.rates == "same":
        return dict.fromkeys(model.parameters(), config.optim.lr)
    cell, of_output = CELLS[config.model.cell], set(model.output.parameters())

    def rate(p: nn.Parameter) -> float:
        if p is model.embedding.weight:
            return cell.input
        if p.ndim < 2:
            return _SINGLE
        base = cell.output if p in of_output else cell.recurrent
        return float(base * (_WIDTH / p.shape[-1]) ** cell.power)

    words = config.run.batch * config.run.bptt
    common = config.optim.lr * (words / _WORDS) ** 0.5
    return {p: common * rate(p) for p in model.parameters()}
