"""The arithmetic of mixing: P = Σ_m λ_m P_m, the weights λ by EM (paper 4.2.1).

Everything here is NumPy on natural log-probabilities, an array (n, M) for n words and M models;
where they come from is the business of :mod:`blackout.mixture.components`.

EM for the weights alone is one line: λ_m ← mean over the words of λ_m P_m / P. The log-likelihood
is concave in λ, so it finds the one optimum, and it knows how far off it is: no weights whatever
are better by more than log max_m mean(P_m / P), which is what :func:`fit_weights` stops at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blackout.errors import UserError
from blackout.perplexity import exp_mean

__all__ = [
    "Fit",
    "Tally",
    "check_weights",
    "fit_weights",
    "mix_log_probs",
    "perplexity_curve",
    "spread_unknown",
]

Floats = npt.NDArray[np.float64]

TOLERANCE = 1e-9
MAX_ITERATIONS = 10_000
_PIECE = 1 << 18  # words taken at a time, so that the temporary arrays stay small


@dataclass(frozen=True)
class Fit:
    """Weights of a mixture, on the simplex."""

    weights: Floats
    iterations: int
    """Of EM."""


def fit_weights(
    log_probs: Floats, *, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS
) -> Fit:
    """The weights under which a text is most probable, from each model's log-probabilities (n, M).

    Ends when no other weights could make the mean log-probability better by more than
    ``tolerance``. A word to which no model gives any probability says nothing about the weights
    and is left out.

    >>> fit = fit_weights(np.log([[0.5, 0.1], [0.1, 0.5], [0.5, 0.1]]))
    >>> fit.weights.round(3).tolist()  # the top of (1/4 + λ)² (5/4 − λ)
    [0.75, 0.25]
    """
    models = log_probs.shape[1]
    weights = np.full(models, 1 / models)
    for iteration in range(max_iterations + 1):
        gain = _mean_ratios(log_probs, weights)
        if gain is None or math.log(gain.max()) <= tolerance:
            break
        if iteration == max_iterations:
            break
        weights = weights * gain
        weights /= weights.sum()
    return Fit(weights, iteration)


def _mean_ratios(log_probs: Floats, weights: Floats) -> Floats | None:
    """mean(P_m / P) for each model m, over the words that some model thinks possible."""
    total, count = np.zeros(log_probs.shape[1]), 0
    for piece in _pieces(log_probs):
        highest = piece.max(axis=1, keepdims=True)
        possible = np.isfinite(highest[:, 0])
        ratios = np.exp(piece[possible] - highest[possible])
        mixed = ratios @ weights
        # only a weight of exactly 0 on all models that think a word possible leaves it nothing
        total += (ratios / np.maximum(mixed, np.finfo(np.float64).tiny)[:, None]).sum(axis=0)
        count += len(ratios)
    return total / count if count else None


def mix_log_probs(log_probs: Floats, weights: Sequence[float] | Floats) -> Floats:
    """log Σ_m λ_m P_m of each word, from the models' log-probabilities (n, M).

    >>> mix_log_probs(np.log([[0.5, 0.1]]), [0.25, 0.75]).round(6).tolist()  # log 0.2
    [-1.609438]
    """
    weights = np.asarray(weights, np.float64)
    used = np.flatnonzero(weights > 0)  # 0 · P(w) is 0 also where log P(w) is -∞
    terms = log_probs[:, used] + np.log(weights[used])
    highest = terms.max(axis=1)
    base = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        mixed: Floats = base + np.log(np.exp(terms - base[:, None]).sum(axis=1))
    return mixed


def perplexity_curve(log_probs: Floats, weights: Floats, model: int, grid: Floats) -> Floats:
    """Perplexity when ``model`` gets each weight of ``grid`` and the others share the rest.

    They keep their proportions to each other; if they have none, they share it evenly.
    """
    others = np.delete(weights, model)
    others = others / others.sum() if others.sum() > 0 else np.full(len(others), 1 / len(others))
    result = np.empty(len(grid))
    for i, value in enumerate(grid):
        trial = np.insert((1 - value) * others, model, value)
        total = sum(float(mix_log_probs(piece, trial).sum()) for piece in _pieces(log_probs))
        result[i] = exp_mean(-total, len(log_probs))
    return result


def check_weights(weights: Sequence[float], models: int) -> Floats:
    """Weights that somebody gave, if they are weights."""
    if len(weights) != models:
        raise UserError(f"weights: {len(weights)} numbers for {models} models")
    values = np.array(weights, np.float64)
    if not (np.isfinite(values).all() and values.min() >= 0 and abs(values.sum() - 1) < 1e-6):
        shown = " ".join(f"{value:g}" for value in weights)
        raise UserError(f"weights {shown} must be 0 or more and sum to 1")
    return values / values.sum()


def spread_unknown(unigram: Floats, outside: npt.NDArray[np.bool_], how: str) -> Floats:
    """log of each word's share in a shortlist's ``<unk>``: of the words ``outside`` the shortlist.

    In proportion to their unigram probability, or ``how = "uniform"``; the shares sum to 1, words
    of the shortlist have none (-∞).

    >>> shares = spread_unknown(np.array([0.4, 0.1, 0.3]), np.array([False, True, True]), "unigram")
    >>> np.exp(shares).round(3).tolist()
    [0.0, 0.25, 0.75]
    """
    share = np.where(outside, unigram if how == "unigram" else 1.0, 0.0)
    if share.sum() <= 0:  # a closed n-gram has no probability for <unk>, the only one outside
        share = outside.astype(np.float64)
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(share / share.sum())
    return logs


class Tally:
    """Sums log-probabilities of M models, with and without the unknown words, piece by piece."""

    def __init__(self, models: int) -> None:
        self.tokens = self.unknown = self.sentence_ends = 0
        self._total = np.zeros(models)
        self._known = np.zeros(models)

    def add(
        self, logs: Floats, unknown: npt.NDArray[np.bool_], ends: npt.NDArray[np.bool_]
    ) -> None:
        """Counts n words: their log-probabilities (n, M) and which are what."""
        self.tokens += len(logs)
        self.unknown += int(unknown.sum())
        self.sentence_ends += int(ends.sum())
        self._total += logs.sum(axis=0)
        self._known += logs[~unknown].sum(axis=0)

    @property
    def words(self) -> int:
        """Words, unknown ones among them, sentence ends not."""
        return self.tokens - self.sentence_ends

    def perplexities(self) -> list[float]:
        return [exp_mean(-total, self.tokens) for total in self._total.tolist()]

    def perplexities_without_unk(self) -> list[float]:
        known = self.tokens - self.unknown
        return [exp_mean(-total, known) for total in self._known.tolist()]


def _pieces(log_probs: Floats) -> Iterator[Floats]:
    for start in range(0, len(log_probs), _PIECE):
        yield log_probs[start : start + _PIECE]
