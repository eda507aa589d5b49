"""How much arithmetic a word takes: the one formula, for benchmarks and for choosing threads."""

from __future__ import annotations

from blackout import losses
from blackout.config import Config

_GATES = {"sigmoid": 1, "tanh": 1, "relu": 1, "gru": 3, "lstm": 4}


def training_flops(config: Config, vocab_size: int) -> int:
    """Operations in the matrix products for one trained word, forward and backward.

    6h² for each square matrix of the recurrence (the first layer of a simple cell has one, its
    input matrix being the word table) and 6h for each row of the output layer's tables.

    >>> training_flops(Config.from_dict({"model": {"hidden": 256}}), 64000)
    1161216
    """
    rows = losses.find(config.loss.loss).trained_rows(config.loss, vocab_size)
    return 6 * (_body(config) + round(rows * _width(config)))


def scoring_flops(config: Config, vocab_size: int) -> int:
    """Operations for the exact log-probability of one word.

    >>> scoring_flops(Config.from_dict({"model": {"hidden": 256}}), 64000)
    32899072
    """
    rows = losses.find(config.loss.loss).scored_rows(config.loss, vocab_size)
    return 2 * (_body(config) + round(rows * _width(config)))


def _body(config: Config) -> int:
    """Multiplications of the network below the output layer, for one word."""
    model = config.model
    gates = _GATES[model.cell]
    matrices = gates * (2 * model.layers - (1 if gates == 1 else 0))
    return matrices * model.hidden**2 + model.projection * model.hidden


def _width(config: Config) -> int:
    return config.model.projection or config.model.hidden
