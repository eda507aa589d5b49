"""What training on many GPUs should cost, from what one costs and the bytes that ranks exchange.

    python benchmarks/rank_cost.py

Every rank trains the words that one GPU trains in a block today, so that R ranks train R times as
many in a block. A block then takes

    the block of one GPU + bytes from GPUs of the same machine / NVLink
    + bytes from other machines / (Ethernet / GPUs of a machine) + exchanges x latency

with nothing overlapped. A rank multiplies R times as many words with 1/R of the samples, so its
products are those of one GPU, and its rows no more. Blocks are measured (docs/performance.md, one
H200, bf16 products); bytes are those of the formula that tests count; rates, latencies and the
number of GPUs in a machine are assumptions, printed with the result. Nothing here was run on more
than one GPU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WORDS = 2560  # of a rank, B T = 128 x 20
STATE, STORED = 2, 4  # bytes of a number: hidden states in bf16, tables in float32
NVLINK = 450e9  # bytes/s that a GPU receives from those of its machine
ETHERNET = {"100 Gb/s": 12.5e9, "400 Gb/s": 50e9}  # bytes/s that a machine receives from others
EXCHANGES = 10  # of a block of the toolkit on more than two ranks
NEAR, FAR = 15e-6, 40e-6  # seconds before the first byte, inside a machine and between them
EAGER = 3.3e-3  # the layer's forward, backward and update, launched by Python, as ranks do now

RANKS = [(2, 1), (4, 1), (8, 1), (16, 2), (32, 4), (64, 8), (64, 16)]  # GPUs, machines


class Model(NamedTuple):
    """A size of network and the seconds that one GPU takes for a block of it, as one graph."""

    vocab: int
    hidden: int
    samples: int
    block: float


MODELS = [
    Model(64_000, 1024, 500, 428e-6),
    Model(1_000_000, 2048, 2000, 958e-6),
]


def distinct_words(vocab: int, words: int) -> float:
    """How many different ones are expected among so many, with counts that fall as 1/rank."""
    p = 1 / np.arange(1, vocab + 1)
    return float(-np.expm1(words * np.log1p(-p / p.sum())).sum())


def bytes_from(model: Model, peers: int, ranks: int) -> float:
    """What a rank receives in a block from so many of the others."""
    states = WORDS * (model.hidden * (STATE + 4) + 16 * ranks + 24)
    rows = distinct_words(model.vocab, WORDS) * (8 + model.hidden * (STORED + 4))
    body = 8 * model.hidden**2  # a simple cell: one matrix
    return peers * (states + (rows + body) / ranks)


def block_seconds(model: Model, ranks: int, machines: int, ethernet: float, work: float) -> float:
    """One block on all ranks, where its work alone takes ``work`` seconds."""
    each = ranks // machines
    near = bytes_from(model, each - 1, ranks) / NVLINK
    far = bytes_from(model, ranks - each, ranks) / (ethernet / each)
    return work + near + far + EXCHANGES * (FAR if machines > 1 else NEAR)


def main() -> None:
    print(
        f"assumed: NVLink {NVLINK / 1e9:g} GB/s a GPU; {NEAR * 1e6:g} and {FAR * 1e6:g} us an "
        f"exchange, {EXCHANGES} of them; {WORDS:,} words a rank; nothing overlapped\n"
        "M words/s of all ranks: each block as one graph, in brackets launched by Python as now"
    )
    for model in MODELS:
        print(
            f"\nV {model.vocab:,}, h {model.hidden}, K {model.samples}: one GPU "
            f"{WORDS / model.block / 1e6:.2f} ({WORDS / EAGER / 1e6:.2f})\n"
            f"GPUs  machines  MB a rank  {'  '.join(f'{name:>14}' for name in ETHERNET)}"
        )
        for ranks, machines in RANKS:
            figures = []
            for rate in ETHERNET.values():
                graph, eager = (
                    ranks * WORDS / block_seconds(model, ranks, machines, rate, work) / 1e6
                    for work in (model.block, max(EAGER, model.block))
                )
                figures.append(f"{graph:6.2f} ({eager:.2f})".rjust(14))
            received = bytes_from(model, ranks - 1, ranks) / 1e6
            print(f"{ranks:4}  {machines:8}  {received:9.1f}  {'  '.join(figures)}")


if __name__ == "__main__":
    main()
