"""The speed of training on several ranks, and what they exchange for it.

Every rank trains the same number of blocks between two barriers; words a second are those of all
ranks together. Seconds in collectives include the waiting for slower ranks.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from blackout.bench.gpu import waits_for
from blackout.bench.measure import TrainingBench, peak_rss_bytes
from blackout.bench.products import BlockProducts, seconds
from blackout.config import Config
from blackout.ranks import Ranks
from blackout.tables import tables_of
from blackout.work import training_flops

__all__ = ["RanksSpeed", "measure_over_ranks"]


@dataclass(frozen=True)
class RanksSpeed:
    """Figures of all ranks together; bytes and memory are those of the rank that has most."""

    ranks: int
    words_per_second: float
    flops_per_word: int
    gemm_flops: float
    fraction_of_gemm: float
    bytes_per_block: int
    """What a rank receives from others."""
    bytes_by_exchange: dict[str, int]
    communication_share: float
    """The part of the time that a rank spends in collectives, waiting included."""
    table_bytes: int
    """Word tables of a rank, without their moments."""
    peak_rss_bytes: int
    processor_seconds: float
    """Of one block on a rank, waiting left out."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_over_ranks(
    config: Config, vocab_size: int, ranks: Ranks, impl: str, device: torch.device, duration: float
) -> RanksSpeed:
    """Trains blocks of made-up words on all ranks for about ``duration`` seconds."""
    bench = TrainingBench(config, vocab_size, impl, device.type, ranks)
    wait, words = waits_for(device), config.run.batch * config.run.bptt
    for _ in range(3):
        bench.train_block()
    each = seconds(bench.train_block, 3, wait)
    (first, *_) = ranks.gather_numbers([max(3, int(duration / each))], "agreement")
    ranks.traffic.clear()
    started, began = time.perf_counter(), time.process_time()
    for _ in range(first[0]):
        bench.train_block()
    wait()
    spent = time.perf_counter() - started
    processor = (time.process_time() - began) / first[0]
    peak, traffic = peak_rss_bytes(), ranks.traffic
    by_exchange = {name: count // first[0] for name, count in traffic.bytes.items()}
    share = sum(traffic.seconds.values()) / spent
    tables = sum(t.weight.numel() * t.weight.element_size() for t in tables_of(bench.model))
    products = BlockProducts(config, vocab_size, device, None)
    products.run()
    gemm = products.flops / seconds(products.run, 3, wait)
    figures = [words * first[0] / spent, gemm, share, processor]
    told = ranks.gather(torch.tensor(figures, dtype=torch.float64, device=ranks.device))
    rates, gemms, shares, processors = torch.stack(told).T.tolist()
    sizes = ranks.gather_numbers([sum(by_exchange.values()), tables, peak])
    received, table_bytes, peaks = (max(numbers) for numbers in zip(*sizes, strict=True))
    flops = training_flops(config, vocab_size)
    return RanksSpeed(
        ranks.size,
        min(rates),
        flops,
        sum(gemms),
        min(rates) * flops / sum(gemms),
        received,
        by_exchange,
        sum(shares) / len(shares),
        table_bytes,
        peaks,
        max(processors),
    )
