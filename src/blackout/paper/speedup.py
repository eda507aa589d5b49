"""The speed of training against V and K, beside the V / K that the paper promises."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from blackout.bench.measure import TrainingBench
from blackout.config import Config
from blackout.pages.picture import Curve, Panel
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.runtime import set_threads

VOCABULARIES = (4_000, 16_000, 64_000, 256_000, 1_000_000)
SAMPLES = (100, 500, 2000)
HIDDEN, BATCH, BPTT = 256, 128, 20
EXACT_BATCH = 8
"""The exact softmax holds words × V numbers several times: small blocks where V is large."""


def study(lab: Lab) -> Finding:
    vocabularies = (1_000, 4_000) if lab.quick else VOCABULARIES
    samples = (20, 100) if lab.quick else SAMPLES
    duration = 0.3 if lab.quick else 2.0
    threads = set_threads(0)
    rows: list[dict[str, Any]] = []
    for size in vocabularies:
        exact = _speed(size, "full", 1, EXACT_BATCH if size > 64_000 else BATCH, duration)
        for k in samples:
            ours = _speed(size, "blackout", k, BATCH, duration)
            rows.append(
                {
                    "V": size,
                    "K": k,
                    "BlackOut, words/s": ours,
                    "exact, words/s": exact,
                    "times faster": ours / exact,
                    "V / K": size / k,
                }
            )
    return Finding(
        title="Speed against V and K",
        claim="a step costs K instead of V in the output layer: V / K times less.",
        setting=(
            f"Training words a second on {threads} cores, {HIDDEN} sigmoid units, blocks of "
            f"{BATCH} × {BPTT} made-up words (of {EXACT_BATCH} × {BPTT} for the exact softmax "
            "above 64,000 words), float32."
        ),
        rows=rows,
        panels=_panels(rows, vocabularies, samples),
    )


def _speed(vocab_size: int, loss: str, samples: int, batch: int, duration: float) -> float:
    config = Config.from_dict(
        {
            "model": {"cell": "sigmoid", "hidden": HIDDEN, "context": "stream"},
            "loss": {"loss": loss, "samples": samples},
            "run": {"batch": batch, "bptt": BPTT},
        }
    )
    bench = TrainingBench(config, vocab_size)
    return batch * BPTT * _rate(bench.train_block, duration)


def _rate(work: Callable[[], None], duration: float) -> float:
    """How often a second ``work`` can be done; the first time does not count."""
    work()
    start, times = time.perf_counter(), 0
    while True:
        work()
        times += 1
        if (spent := time.perf_counter() - start) >= duration:
            return times / spent


def _panels(
    rows: list[dict[str, Any]], vocabularies: tuple[int, ...], samples: tuple[int, ...]
) -> list[Panel]:
    def curve(label: str, k: int, column: str) -> Curve:
        return Curve(label, vocabularies, [row[column] for row in rows if row["K"] == k])

    speeds = [curve(f"BlackOut, K = {k:,}", k, "BlackOut, words/s") for k in samples]
    speeds.append(curve("exact softmax", samples[0], "exact, words/s"))
    gains = [curve(f"measured, K = {k:,}", k, "times faster") for k in samples]
    promises = [
        replace(curve(f"V / K, K = {k:,}", k, "V / K"), expected=i) for i, k in enumerate(samples)
    ]
    both = [("training words a second", speeds), ("times faster than exact", [*gains, *promises])]
    return [
        Panel("V, words", label, curves, x_log=True, y_log=True, x_ticks=vocabularies)
        for label, curves in both
    ]
