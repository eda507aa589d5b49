"""What a run is made of: its optimiser, the threads that suit its size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from blackout.config import Config
from blackout.models.language_model import LanguageModel
from blackout.optim import Adagrad, Adam, RMSProp, RowSparseOptimizer
from blackout.tables import tables_of
from blackout.train.rates import learning_rates
from blackout.work import training_flops


def default_threads(config: Config, vocab_size: int) -> int:
    """One thread where a block is too small to share, else 0, all cores.

    Threads wait for each other some dozen times a block, a hundred times where it is composed. That
    costs more than it saves where a block takes a millisecond or two, and on a busy machine, where
    one may not be running, several times as much as the block.
    """
    per_block = config.run.batch * config.run.bptt * training_flops(config, vocab_size)
    return 1 if per_block < 300e6 else 0


def build_optimizer(
    config: Config, model: LanguageModel, counts: ArrayLike, words: int | None = None
) -> RowSparseOptimizer:
    """The optimiser of all parameters, each with its learning rate ("first_lr": where it begins).

    ``words``: of the training text, if known. Tables come with their update rates where these are
    used.
    """
    optim = config.optim
    model.output.set_rate(own_rate(config))
    if optim.decay == "paper":
        set_update_rates(config, model, counts)
    update_rates = {table.weight: table.update_rate for table in tables_of(model)}
    groups = [
        {"params": [p], "lr": rate, "first_lr": rate, "update_rate": update_rates.get(p)}
        for p, rate in learning_rates(config, model, words).items()
    ]
    common: dict[str, Any] = {
        "damping": default_damping(config) if optim.damping is None else optim.damping,
        "by_width": False,  # the rates know the width
        "second_moment": optim.second_moment,
        "weight_decay": optim.weight_decay,
        "clip": optim.clip,
        "seed": config.run.seed,
    }
    if optim.optimizer == "adagrad":
        return Adagrad(groups, **common)
    common["decay"] = optim.decay
    if optim.optimizer == "adam":
        return Adam(groups, betas=(optim.momentum, optim.beta), **common)
    return RMSProp(groups, beta=optim.beta, correct_bias=optim.correct_bias, **common)


def own_rate(config: Config) -> float:
    """Of a layer that learns by itself: per word, where the loss is a mean over a block's."""
    return config.optim.lr * config.run.batch * config.run.bptt


def default_damping(config: Config) -> float:
    """A floor under the second moment that keeps its meaning whatever the size of the block.

    A gradient is a mean over the N = B T words of a block, so one word, as a target, adds at most
    about (1 - beta) / N² to the second moments of its row. Measured in that, the floor lets a rare
    word that occurs take a good part of a full step, while the far smaller gradients it gets as a
    sample are not blown up to full steps, which would drive it out before it occurs again.
    docs/experiments.md has the measurements.
    """
    words = config.run.batch * config.run.bptt
    fresh = 1.0 if config.optim.optimizer == "adagrad" else 1 - config.optim.beta
    return config.optim.damping_words * fresh / words**2


def set_update_rates(config: Config, model: LanguageModel, counts: ArrayLike) -> None:
    """Tells each table how often a block is expected to touch its rows (paper eqs. 18-19)."""
    batch, bptt, unigram = config.run.batch, config.run.bptt, _unigram(counts)
    as_input = unigram * batch * bptt
    model.embedding.update_rate = as_input
    model.output.expect_blocks(unigram, bptt, batch)
    if config.model.tie and model.embedding.update_rate is not None:
        model.embedding.update_rate = model.embedding.update_rate + as_input
    for table in tables_of(model):
        if table.update_rate is not None:
            most = 1.0 if config.optim.cap_update_rate else math.inf
            rate = table.of_owned(table.update_rate).clamp(max=most)
            table.update_rate = rate.to(table.weight.device)


def _unigram(counts: ArrayLike) -> Tensor:
    values = torch.as_tensor(np.asarray(counts, dtype=np.float64)).clamp(min=1)
    return values / values.sum()
