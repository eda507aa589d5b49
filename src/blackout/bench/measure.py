"""Training and exact evaluation, timed in turns with the bare matrix products.

The machine's matrix rate, of float32 on a CPU and of the products' own type on a GPU, is measured
in the same run, on the shapes of the same block, between the rounds of the work itself, so that
whatever slows the machine slows both.
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
from blackout.bench.gpu import DeviceCopy, captured, row_traffic, waits_for
from blackout.bench.products import BlockProducts, EvaluationProducts, product_type, seconds
from blackout.bench.words import draw_words, zipf_counts
from blackout.config import Config
from blackout.models import build_model
from blackout.models.language_model import LanguageModel
from blackout.optim import RowSparseOptimizer
from blackout.ranks import Ranks
from blackout.tables import tables_on
from blackout.text.streams import Block
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, make_step
from blackout.work import scoring_flops, training_flops

_DISTINCT_BLOCKS = 16


@dataclass(frozen=True)
class Speed:
    """Figures of a run; ``fraction_of_gemm`` is the share of the matrix rate used.

    Of a GPU also two floors, as words a second: the bare products alone, and the traffic of the
    rows that a block touches at the rate of a copy inside the device's memory.
    """

    words_per_second: float
    flops_per_word: int
    gemm_flops: float
    fraction_of_gemm: float
    peak_rss_bytes: int
    peak_device_bytes: int = 0
    products_words_per_second: float = 0.0
    traffic_words_per_second: float = 0.0
    processor_seconds: float = 0.0
    """Of one piece of the work, on all threads: what other programs take does not count."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def peak_rss_bytes() -> int:
    """The most memory this process has had at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class TrainingBench:
    """Training blocks of made-up words, through the modules that ``blackout train`` uses."""

    def __init__(
        self,
        config: Config,
        vocab_size: int,
        impl: str = "auto",
        device: str = "cpu",
        ranks: Ranks | None = None,
    ) -> None:
        counts = zipf_counts(vocab_size)
        run = config.run
        self.config, self.vocab_size = config, vocab_size
        self.device = torch.device(device)
        self.model: LanguageModel = _built(config, counts, impl, self.device, ranks).train()
        self.optimizer: RowSparseOptimizer = build_optimizer(config, self.model, counts)
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
        words = self.config.run.batch * self.config.run.bptt
        columns = getattr(self.step, "columns", None)
        products = BlockProducts(self.config, self.vocab_size, self.device, columns)
        speed = _measure(
            self.train_block,
            words,
            training_flops(self.config, self.vocab_size),
            captured(products.run, self.device),
            products.flops,
            duration,
            waits_for(self.device),
        )
        if self.device.type == "cuda":
            return self._with_floors(speed, words, products.flops)
        # the arrays of the bare products are no memory of training
        return replace(speed, peak_rss_bytes=max(peak, speed.peak_rss_bytes - products.bytes))

    def _with_floors(self, speed: Speed, words: int, flops: int) -> Speed:
        peak = torch.cuda.max_memory_allocated(self.device)
        copy = DeviceCopy(self.device)
        copy.run()
        rate = copy.bytes / seconds(copy.run, 50, waits_for(self.device))
        traffic = row_traffic(self.config, self.model, self.blocks[0])
        return replace(
            speed,
            peak_device_bytes=peak,
            products_words_per_second=words * speed.gemm_flops / flops,
            traffic_words_per_second=words * rate / traffic,
        )


class EvaluationBench:
    """Exact log-probabilities of made-up words, hidden states included."""

    def __init__(
        self,
        config: Config,
        vocab_size: int,
        impl: str = "auto",
        words: int = 8192,
        device: str = "cpu",
    ) -> None:
        counts = zipf_counts(vocab_size)
        self.config, self.vocab_size = config, vocab_size
        self.device = torch.device(device)
        self.model = _built(config, counts, impl, self.device).eval()
        steps = 32
        self.words = steps * (words // steps)
        blocks = draw_words(counts, (steps + 1, words // steps), config.run.seed)
        self.block = torch.from_numpy(blocks).to(self.device)

    def score(self) -> None:
        with torch.no_grad():
            state = self.model.initial_state(self.block.shape[1])
            read = self.model.read(self.block[:-1], state)
            self.model.output.target_log_prob(read.hidden, self.block[1:], read.history)

    def measure(self, duration: float) -> Speed:
        rows = losses.find(self.config.loss.loss).scored_rows(self.config.loss, self.vocab_size)
        dtype = product_type(self.config, self.device)
        products = EvaluationProducts(
            self.config.model.hidden, round(rows), device=self.device, dtype=dtype
        )
        flops = scoring_flops(self.config, self.vocab_size)
        repeats = max(1, self.words * flops // products.flops)

        def bare() -> None:
            for _ in range(repeats):
                products.run()

        speed = _measure(
            self.score,
            self.words,
            flops,
            bare,
            products.flops * repeats,
            duration,
            waits_for(self.device),
        )
        if self.device.type != "cuda":
            return speed
        return replace(speed, peak_device_bytes=torch.cuda.max_memory_allocated(self.device))


def _built(
    config: Config,
    counts: np.ndarray,
    impl: str,
    device: torch.device,
    ranks: Ranks | None = None,
) -> LanguageModel:
    """A model made where it computes."""
    with tables_on(device):
        return build_model(config, counts, impl=impl, ranks=ranks).to(device)


def _measure(
    work: Callable[[], None],
    words: int,
    word_flops: int,
    products: Callable[[], object],
    product_flops: int,
    duration: float,
    wait: Callable[[], None],
) -> Speed:
    """Medians over rounds of work and bare products in turns."""
    work()
    products()
    # rounds of about a quarter second
    each = max(1, int(0.25 / max(seconds(work, 3, wait), 1e-4)))
    rates: list[float] = []
    gemms: list[float] = []
    fractions: list[float] = []
    processor: list[float] = []
    start = time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - start < duration:
        began = time.process_time()
        rate = words / seconds(work, each, wait)
        processor.append((time.process_time() - began) / each)
        gemm = product_flops / seconds(products, each, wait)
        rates.append(rate)
        gemms.append(gemm)
        fractions.append(rate * word_flops / gemm)
    return Speed(
        statistics.median(rates),
        word_flops,
        statistics.median(gemms),
        statistics.median(fractions),
        peak_rss_bytes(),
        processor_seconds=statistics.median(processor),
    )
