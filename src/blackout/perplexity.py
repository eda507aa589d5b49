"""What every model is measured by, network or n-gram.

>>> Perplexity.of(math.log(0.5) * 4 + math.log(0.1), math.log(0.1), 5, 1, 1, seconds=1.0)
Perplexity(perplexity=2.759..., perplexity_without_unk=2.0, words=4, ...)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from blackout.errors import UserError

__all__ = ["Perplexity", "exp_mean"]


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-probability over all words and sentence ends of a text."""

    perplexity: float
    perplexity_without_unk: float
    words: int
    """Words, unknown ones among them, sentence ends not."""
    sentence_ends: int
    unknown: int
    words_per_second: float
    """Scored words and sentence ends, a second."""

    @classmethod
    def of(
        cls,
        total: float,
        unknown_total: float,
        tokens: int,
        sentence_ends: int,
        unknown: int,
        seconds: float,
    ) -> Perplexity:
        """From sums of natural log-probabilities: of all tokens, and of the unknown words."""
        return cls(
            perplexity=exp_mean(-total, tokens),
            perplexity_without_unk=exp_mean(unknown_total - total, tokens - unknown),
            words=tokens - sentence_ends,
            sentence_ends=sentence_ends,
            unknown=unknown,
            words_per_second=tokens / max(seconds, 1e-9),
        )

    def checked(self, text: object) -> Perplexity:
        """Itself; refuses that of a text which no number says, under weights that are ruined."""
        if math.isinf(self.perplexity):
            raise UserError(
                f"{text}: its perplexity is beyond every number under this model, "
                "whose weights are ruined"
            )
        return self

    def __str__(self) -> str:
        return (
            f"perplexity      {self.perplexity:.2f}\n"
            f"  without <unk> {self.perplexity_without_unk:.2f}\n"
            f"words           {self.words:,} ({self.unknown:,} unknown), "
            f"{self.sentence_ends:,} sentence ends\n"
            f"speed           {self.words_per_second:,.0f} words/s"
        )


def exp_mean(total: float, count: int) -> float:
    """exp(total / count); infinite where it overflows, NaN over nothing.

    >>> exp_mean(0.0, 3), exp_mean(1e9, 1), exp_mean(0.0, 0)
    (1.0, inf, nan)
    """
    mean = total / count if count else math.nan
    return math.inf if mean >= 700 else math.exp(mean)
