"""Training and exact evaluation, timed in turns with the bare matrix products.

The machine's float32 matrix rate is measured in the same run, on the shapes of the same block,
between the rounds of the work itself, so that whatever slows the machine slows both.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from blackout import losses
from blackout.bench.products import BlockProducts, EvaluationProducts, seconds
from blackout.bench.words import draw_words, zipf_counts
from blackout.config import Config
from blackout.models import build_model
from blackout.models.language_model import LanguageModel
from blackout.optim import RMSProp
from blackout.text.streams import Block
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, make_step
from blackout.work import scoring_flops, training_flops

_DISTINCT_BLOCKS = 16


@dataclass(frozen=True)
class Speed:
    """Figures of a run; ``fraction_of_gemm`` is the share of the float32 matrix rate used."""

    words_per_second: float
    flops_per_word: int
    gemm_flops: float
    fraction_of_gemm: float
    peak_rss_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def peak_rss_bytes() -> int:
    """The most memory this process has had at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class TrainingBench:
    """Training blocks of made-up words, through the modules that ``blackout train`` uses."""

    def __init__(self, config: Config, vocab_size: int, impl: str = "auto") -> None:
        counts = zipf_counts(vocab_size)
        run = config.run
        self.config, self.vocab_size = config, vocab_size
        self.model: LanguageModel = build_model(config, counts, impl=impl).train()
        self.optimizer: RMSProp = build_optimizer(config, self.model, counts)
        self.optimizer.impl = impl
        self.step = make_step(self.model, self.optimizer, BlockShape(run.bptt, run.batch))
        words = draw_words(counts, (_DISTINCT_BLOCKS, run.bptt + 1, run.batch), run.seed)
        all_of_them = np.ones((run.bptt, run.batch), bool)
        self.blocks = [
            Block(some[:-1], some[1:], all_of_them, run.batch * run.bptt) for some in words
        ]
        if self.model.output.reads_text:
            self.model.output.read_text(words[:, :-1].reshape(-1), words[:, 1:].reshape(-1))
        self.done = 0

    def train_block(self) -> None:
        self.step.train(self.blocks[self.done % _DISTINCT_BLOCKS])
        self.done += 1
        if self.done % self.step.interval == 0:
            self.step.results()

    def measure(self, duration: float) -> Speed:
        """Rounds of some blocks and as many passes over the bare products."""
        for _ in range(3):
            self.train_block()
        peak = peak_rss_bytes()
        products = BlockProducts(self.config, self.vocab_size)
        speed = _measure(
            self.train_block,
            self.config.run.batch * self.config.run.bptt,
            training_flops(self.config, self.vocab_size),
            products.run,
            products.flops,
            duration,
        )
        # the arrays of the bare products are no memory of training
        return replace(speed, peak_rss_bytes=max(peak, speed.peak_rss_bytes - products.bytes))


class EvaluationBench:
    """Exact log-probabilities of made-up words, hidden states included."""

    def __init__(
        self, config: Config, vocab_size: int, impl: str = "auto", words: int = 8192
    ) -> None:
        counts = zipf_counts(vocab_size)
        self.config, self.vocab_size = config, vocab_size
        self.model = build_model(config, counts, impl=impl).eval()
        steps = 32
        self.words = steps * (words // steps)
        blocks = draw_words(counts, (steps + 1, words // steps), config.run.seed)
        self.block = torch.from_numpy(blocks)

    def score(self) -> None:
        with torch.no_grad():
            state = self.model.initial_state(self.block.shape[1])
            read = self.model.read(self.block[:-1], state)
            self.model.output.target_log_prob(read.hidden, self.block[1:], read.history)

    def measure(self, duration: float) -> Speed:
        rows = losses.find(self.config.loss.loss).scored_rows(self.config.loss, self.vocab_size)
        products = EvaluationProducts(self.config.model.hidden, round(rows))
        flops = scoring_flops(self.config, self.vocab_size)
        repeats = max(1, self.words * flops // products.flops)

        def bare() -> None:
            for _ in range(repeats):
                products.run()

        return _measure(self.score, self.words, flops, bare, products.flops * repeats, duration)


def _measure(
    work: Callable[[], None],
    words: int,
    word_flops: int,
    products: Callable[[], None],
    product_flops: int,
    duration: float,
) -> Speed:
    """Medians over rounds of work and bare products in turns."""
    work()
    products()
    each = max(1, int(0.25 / max(seconds(work), 1e-4)))  # rounds of about a quarter second
    rates: list[float] = []
    gemms: list[float] = []
    fractions: list[float] = []
    start = time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - start < duration:
        rate = words / seconds(work, each)
        gemm = product_flops / seconds(products, each)
        rates.append(rate)
        gemms.append(gemm)
        fractions.append(rate * word_flops / gemm)
    return Speed(
        statistics.median(rates),
        word_flops,
        statistics.median(gemms),
        statistics.median(fractions),
        peak_rss_bytes(),
    )
