"""Appendix A: the noise distribution of eq. 13 has expectation Q.

With q_j = 1 / Q(j), eq. 13 reads p_n(i | s) = Q(i) X, where X = mean over the samples j of
p(j | s) / Q(j), one number for all words. X has expectation 1 when the samples are drawn from Q
freely. But the samples of a target i leave out i itself, and then the mean of X is
(1 - p(i | s)) / (1 - Q(i)): the more certain the network, the less noise is left.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from blackout.bench.words import zipf_counts
from blackout.pages.picture import Curve, Panel
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab

VOCABULARY, SAMPLES, ALPHA = 1000, 50, 0.4
_CONFIDENCE = 2.576  # 99 % of a normal distribution lie within this many standard errors
TARGETS = (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
"""Probabilities that the network gives the target."""

Floats = npt.NDArray[np.float64]


def study(lab: Lab) -> Finding:
    sets = 2_000 if lab.quick else 100_000
    counts = zipf_counts(VOCABULARY).astype(np.float64)
    powers = counts**ALPHA
    q = powers / powers.sum()
    random = np.random.default_rng(1)
    rows = [_row(chance, q, sets, random) for chance in TARGETS]
    panel = Panel(
        "p(target | s)",
        "mean of p_n(target | s) / Q(target)",
        [
            _curve("samples drawn freely", rows, "free", "free ±"),
            _curve("copies of the target taken out", rows, "without target", "without ±"),
            Curve(
                "(1 − p) / (1 − Q)",
                TARGETS,
                [row["(1 − p) / (1 − Q)"] for row in rows],
                expected=6,
            ),
        ],
    )
    return Finding(
        title="The expectation of the noise distribution",
        claim="p_n of eq. 13 has expectation Q, so samples of Q may stand for samples of p_n.",
        setting=(
            f"{sets:,} sample sets of {SAMPLES} words from Q with α {ALPHA} over {VOCABULARY:,} "
            "words, for a network that gives the target a probability p and the others shares of "
            "the rest at random; p_n / Q with 99 % confidence bounds."
        ),
        rows=rows,
        panels=[panel],
    )


def _row(chance: float, q: Floats, sets: int, random: np.random.Generator) -> dict[str, Any]:
    target = len(q) // 10
    p = random.dirichlet(q * 300)  # peaked, as predictions are, on words that Q likes
    p[target] = 0.0
    p *= (1 - chance) / p.sum()
    p[target] = chance
    ratio = p / q
    samples = random.choice(len(q), (sets, SAMPLES), p=q)
    free = ratio[samples].mean(1)
    kept = samples != target
    without = (ratio[samples] * kept).sum(1) / np.maximum(kept.sum(1), 1)
    return {
        "p(target)": chance,
        "free": float(free.mean()),
        "free ±": _bound(free),
        "1 within": bool(abs(free.mean() - 1) <= _bound(free)),
        "without target": float(without.mean()),
        "without ±": _bound(without),
        "(1 − p) / (1 − Q)": float((1 - chance) / (1 - q[target])),
    }


def _bound(values: Floats) -> float:
    return float(_CONFIDENCE * values.std() / math.sqrt(len(values)))


def _curve(label: str, rows: list[dict[str, Any]], mean: str, bound: str) -> Curve:
    low = [row[mean] - row[bound] for row in rows]
    high = [row[mean] + row[bound] for row in rows]
    return Curve(label, TARGETS, [row[mean] for row in rows], low, high)
