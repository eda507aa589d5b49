"""Whether a run has been ruined, by its validation perplexity.

A model that gives every word the same chance knows nothing; one that is worse than that has learned
something wrong. One that only knows how often each word occurs is the least that training must
beat, once there has been some. And validation does not get worse by a factor from one epoch to the
next unless numbers have gone astray.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blackout.text.shards import Shard
from blackout.text.vocab import Vocab

FACTOR = 2.0
"""How much worse than the best so far is a ruin, and no overfitting."""
ENOUGH_BLOCKS = 1000
"""After so many blocks a model must be better than counting words."""


@dataclass(frozen=True)
class Verdict:
    """What a validation perplexity says about a run."""

    warning: str = ""
    """A sentence about what is wrong; empty where nothing is."""
    ruined: bool = False
    """Whether going on is of no use."""


@dataclass(frozen=True)
class Judge:
    """Knows what the simplest models make of a text.

    >>> judge = Judge(uniform=10_000.0, unigram=600.0)
    >>> judge.judge(95.0, best_before=90.0, blocks=5000)
    Verdict(warning='', ruined=False)
    >>> judge.judge(1e9, best_before=90.0, blocks=5000).warning
    'validation perplexity 1e+09 is worse than giving all words the same chance (1e+04)'
    >>> judge.judge(200.0, best_before=90.0, blocks=5000).warning
    'validation perplexity 200 is more than twice the best so far (90)'
    >>> judge.judge(700.0, best_before=math.inf, blocks=50)
    Verdict(warning='validation perplexity 700 is worse than counting words (600)', ruined=False)
    """

    uniform: float
    unigram: float

    @classmethod
    def of(cls, vocab: Vocab, text: Shard) -> Judge:
        """For validation on this text."""
        counts = np.maximum(np.asarray(vocab.counts, dtype=np.float64), 1.0)
        log_prob = np.log(counts / counts.sum())
        return cls(float(len(vocab)), math.exp(-float(log_prob[text.tokens].mean())))

    def judge(self, perplexity: float, best_before: float, blocks: int) -> Verdict:
        """``blocks``: how many were trained so far."""
        if perplexity > self.uniform:
            worse = f"worse than giving all words the same chance ({self.uniform:.3g})"
        elif perplexity > FACTOR * best_before:
            worse = f"more than twice the best so far ({best_before:.3g})"
        elif perplexity > self.unigram:
            worse = f"worse than counting words ({self.unigram:.3g})"
        else:
            return Verdict()
        ruined = blocks >= ENOUGH_BLOCKS or perplexity > min(self.uniform, FACTOR * best_before)
        return Verdict(f"validation perplexity {perplexity:.3g} is {worse}", ruined)
