"""Weights for rescoring, tuned against references: the fewest word errors on a set of lists.

The number of errors is a step function of the weights, so there is no gradient to follow: a grid
finds the region, then one weight after another is moved by steps that grow smaller. A change must
lower the number of errors; without one the weights stay as they were.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blackout.errors import UserError
from blackout.rescore.formats.lines import read_table
from blackout.rescore.nbest import NBest, parse_words
from blackout.rescore.score import ScoredLists
from blackout.rescore.weights import Weights
from blackout.rescore.wer import word_errors

__all__ = ["ListErrors", "count_errors", "read_references", "tune"]

_LM_GRID = [0.0, *(2.0**k for k in range(-4, 6))]
_PENALTY_GRID = [0.0, -0.5, 0.5, -1.0, 1.0, -2.0, 2.0, -4.0, 4.0]  # times the lm_weight
_MIX_GRID = [0.25, 0.5, 0.75]
_SMALLEST_STEP = 1 / 32


@dataclass(frozen=True)
class ListErrors:
    """Word errors of every hypothesis against the reference of its utterance."""

    errors: np.ndarray  # (N,)
    first: np.ndarray  # (U + 1,)
    words: int
    """Words of the references."""

    def rate(self, chosen: np.ndarray) -> float:
        """Word error rate of one hypothesis for each utterance."""
        return self.count(chosen) / self.words

    def count(self, chosen: np.ndarray) -> int:
        return int(self.errors[chosen].sum())

    @property
    def listed(self) -> float:
        """Word error rate of the hypotheses that stand first."""
        return self.rate(self.first[:-1])

    @property
    def oracle(self) -> float:
        """Word error rate of the best hypotheses there are."""
        return int(np.minimum.reduceat(self.errors, self.first[:-1]).sum()) / self.words


def read_references(path: Path) -> dict[str, tuple[str, ...]]:
    """Lines ``utterance words…``."""
    return {
        key: parse_words(text, f"{path}: line {n}") for key, (n, text) in read_table(path).items()
    }


def count_errors(nbest: NBest, references: dict[str, tuple[str, ...]], path: Path) -> ListErrors:
    """Compares each hypothesis with its reference; ``path`` is where references came from."""
    counts, words = [], 0
    for utterance in nbest.utterances:
        reference = references.get(utterance.name)
        if reference is None:
            raise UserError(f"{path}: has no reference for the utterance {utterance.name}")
        words += len(reference)
        counts.append(word_errors(reference, [h.words for h in utterance.hypotheses]))
    if words == 0:
        raise UserError(f"{path}: there are no words in the references of these lists")
    first = np.cumsum([0] + [len(count) for count in counts])
    return ListErrors(np.concatenate(counts), first, words)


def tune(scored: ScoredLists, errors: ListErrors, start: Weights) -> Weights:
    """The weights with the fewest word errors found; ``start`` if none are better.

    ``lm_weight`` and ``word_penalty`` are tuned, ``old_lm_weight`` where the lists have such
    scores, and ``weight`` where there is an n-gram; ``am_weight`` fixes the scale and
    ``oov_penalty`` is the user's choice.
    """

    def count(weights: Weights) -> int:
        return errors.count(scored.best(scored.totals(weights)))

    best, fewest = start, count(start)
    for weights in _grid(scored, start):
        if (found := count(weights)) < fewest:
            best, fewest = weights, found
    step = 1.0
    while step >= _SMALLEST_STEP:
        better = False
        for weights in _neighbours(scored, best, step):
            if (found := count(weights)) < fewest:
                best, fewest, better = weights, found, True
                break
        if not better:
            step /= 2
    return best


def _grid(scored: ScoredLists, start: Weights) -> Iterator[Weights]:
    mixes = [start.weight] if scored.ngram is None else [start.weight, *_MIX_GRID]
    old = [start.old_lm_weight]
    if scored.old_lm.any():
        old += [0.0, 1.0]
    for mix, old_lm, lm, penalty in itertools.product(
        mixes, dict.fromkeys(old), _LM_GRID, _PENALTY_GRID
    ):
        yield dataclasses.replace(
            start,
            weight=mix,
            old_lm_weight=old_lm * (lm or 1.0) if old_lm != start.old_lm_weight else old_lm,
            lm_weight=lm,
            word_penalty=penalty * (lm or 1.0),
        )


def _neighbours(scored: ScoredLists, weights: Weights, step: float) -> Iterator[Weights]:
    """One weight moved up or down."""
    scale = weights.lm_weight or 1.0
    for sign in (step, -step):
        yield dataclasses.replace(weights, lm_weight=weights.lm_weight * 2**sign)
        yield dataclasses.replace(weights, word_penalty=weights.word_penalty + scale * sign)
        if scored.old_lm.any():
            old = max(0.0, weights.old_lm_weight + scale * sign / 2)
            yield dataclasses.replace(weights, old_lm_weight=old)
        if scored.ngram is not None:
            mix = min(1.0, max(0.0, weights.weight + sign / 4))
            yield dataclasses.replace(weights, weight=mix)
