"""How fast each kind of weight learns.

RMSProp moves a weight by about its rate, whatever the size of its gradient. What a step changes is
therefore a matter of how many weights a sum has: the input of a unit and the logit of a word are
sums over h states, which a step moves all in one direction, while a row of the input table goes
into its units as it is. One rate for all of them is too small for the input table at any width and
ruins the others at a larger one. So each kind has its own, which falls with the number n of inputs
that are added up:

- rows of the input table: 0.04
- weights of the recurrence: 0.8/256 · (256/n)^⅔
- rows of the output layer: 2/256 · (256/n)^⅔
- biases and other single numbers: 0.01

What goes into a sigmoid must be larger to have an effect, its slope being a quarter of tanh's: the
first two are multiplied by six for that cell. The more words a block has, the better it knows its
direction: all this is for 2,560 words and goes with the root of their number.
docs/experiments.md has the measurements.
"""

from __future__ import annotations

from torch import nn

from blackout.config import Config
from blackout.models.language_model import LanguageModel

_INPUT, _RECURRENT, _OUTPUT, _SINGLE = 0.04, 0.8 / 256, 2 / 256, 0.01
_SIGMOID = 6.0
_WORDS = 2560


def learning_rates(config: Config, model: LanguageModel) -> dict[nn.Parameter, float]:
    """The first learning rate of each parameter."""
    if config.optim.rates == "same":
        return dict.fromkeys(model.parameters(), config.optim.lr)
    words = config.run.batch * config.run.bptt
    common = config.optim.lr * (words / _WORDS) ** 0.5
    body = common * (_SIGMOID if config.model.cell == "sigmoid" else 1.0)
    rates = {p: common * _OUTPUT * _by_inputs(p) for p in model.output.parameters()}
    rates |= {p: body * _RECURRENT * _by_inputs(p) for p in model.parameters() if p not in rates}
    rates |= {p: common * _SINGLE for p in rates if p.ndim < 2}
    rates[model.embedding.weight] = body * _INPUT
    return rates


def _by_inputs(p: nn.Parameter) -> float:
    return float((256 / p.shape[-1]) ** (2 / 3)) if p.ndim > 1 else 1.0
