"""What a run is made of: its optimiser, the threads that suit its size."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from blackout.config import Config
from blackout.models.language_model import LanguageModel
from blackout.optim import RMSProp
from blackout.output.sampled_layer import SampledOutputLayer


def default_threads(config: Config, vocab_size: int) -> int:
    """One thread where a block is too small to share, else 0, all cores.

    Handing a part of a millisecond's work to another thread costs more than it saves, and on a
    busy machine, where that thread may not be running, far more.
    """
    per_block = config.run.batch * config.run.bptt * work_per_word(config, vocab_size)
    return 1 if per_block < 100e6 else 0


def work_per_word(config: Config, vocab_size: int) -> int:
    """About how many floating-point operations training on a word takes."""
    hidden, loss = config.model.hidden, config.loss
    outputs = vocab_size if loss.loss == "full" else loss.samples
    return 6 * config.model.layers * hidden**2 + 6 * outputs * hidden


def build_optimizer(config: Config, model: LanguageModel, counts: ArrayLike) -> RMSProp:
    """RMSProp over all parameters; the two tables come with their update rates."""
    optim = config.optim
    tables = {
        model.embedding.weight: input_update_rate(config, counts),
        model.output.weight: output_update_rate(config, model, counts),
    }
    if model.output.bias is not None:
        tables[model.output.bias] = tables[model.output.weight]
    groups: list[dict[str, object]] = [
        {"params": [p], "update_rate": rate.to(p.device) if optim.decay == "paper" else None}
        for p, rate in tables.items()
    ]
    others = [p for p in model.parameters() if p not in tables]
    return RMSProp(
        [*groups, {"params": others}],
        lr=optim.lr,
        beta=optim.beta,
        damping=default_damping(config) if optim.damping is None else optim.damping,
        damping_inside=optim.damping_inside,
        decay=optim.decay,
        second_moment=optim.second_moment,
        clip=optim.clip,
        seed=config.run.seed,
    )


def default_damping(config: Config) -> float:
    """A floor under the second moment that keeps its meaning whatever the size of the block.

    A gradient is a mean over the N = B T words of a block, so one word, as a target, adds about
    (1 - beta) / (4 N²) to the second moments of its row. The floor is less than half of that: a
    rare word that occurs still takes nearly a full step, while the far smaller gradients it gets
    as a sample are not blown up to full steps, which would drive it out before it occurs again.
    docs/experiments.md has the measurements.
    """
    return 0.1 * (1 - config.optim.beta) / (config.run.batch * config.run.bptt) ** 2


def input_update_rate(config: Config, counts: ArrayLike) -> Tensor:
    """p_u = p_uni B T: how often a block is expected to touch a row of the input table (eq. 18)."""
    return _capped(config, _unigram(counts) * config.run.batch * config.run.bptt)


def output_update_rate(config: Config, model: LanguageModel, counts: ArrayLike) -> Tensor:
    """p_u = p_uni B T + Q K (number of sample sets): likewise for the output table (eq. 19)."""
    batch, bptt = config.run.batch, config.run.bptt
    rate = _unigram(counts) * batch * bptt
    if isinstance(model.output, SampledOutputLayer):
        sets = {"step": bptt, "block": 1, "word": batch * bptt}[config.loss.sharing]
        rate = rate + model.output.proposal.marginal().cpu() * model.output.samples * sets
    return _capped(config, rate)


def _unigram(counts: ArrayLike) -> Tensor:
    values = torch.as_tensor(np.asarray(counts, dtype=np.float64)).clamp(min=1)
    return values / values.sum()


def _capped(config: Config, rate: Tensor) -> Tensor:
    return rate.clamp(max=1.0) if config.optim.cap_update_rate else rate
