"""How much arithmetic a word takes: the one formula, for benchmarks and for choosing threads."""

from __future__ import annotations

from blackout import losses
from blackout.config import Config

_GATES = {"sigmoid": 1, "tanh": 1, "relu": 1, "gru": 3, "lstm": 4}


def training_flops(config: Config, vocab_size: int) -> int:
    """Operations in the matrix products for one trained word, forward and backward.

    6h² for each square matrix of the recurrence (the first layer of a simple cell has one, its
    input matrix being the word table) and 6h for each row of the output layer's tables.

    >>> training_flops(Config.from_dict({"model": {"cell": "tanh", "hidden": 256}}), 64000)
    1161216
    """
    rows = losses.find(config.loss.loss).trained_rows(config.loss, vocab_size)
    return 6 * (body_weights(config) + round(rows * output_width(config)))


def scoring_flops(config: Config, vocab_size: int) -> int:
    """Operations for the exact log-probability of one word.

    >>> scoring_flops(Config.from_dict({"model": {"cell": "tanh", "hidden": 256}}), 64000)
    32899072
    """
    rows = losses.find(config.loss.loss).scored_rows(config.loss, vocab_size)
    return 2 * (body_weights(config) + round(rows * output_width(config)))


def body_weights(config: Config) -> int:
    """Numbers in the matrices below the output layer; each is one multiplication a word."""
    model = config.model
    gates = _GATES[model.cell]
    matrices = gates * (2 * model.layers - (1 if gates == 1 else 0))
    return matrices * model.hidden**2 + model.projection * model.hidden


def output_width(config: Config) -> int:
    """Numbers of a hidden state where the output layer gets it."""
    return config.model.projection or config.model.hidden
