"""Samples that could follow the group's own words: half Q_alpha, half the text's bigrams.

A draw picks a random word of the group. With chance 1/2 it gives what follows a random occurrence
of that word's input word in the training text, otherwise a word of Q_alpha. Its density is the
group's mixture,

    Q(w) = 1/2 Q_alpha(w) + 1/2 mean_m P(w | x_m),   P the relative frequency of w after x.

>>> proposal = BigramProposal(torch.ones(5), alpha=0.0)
>>> proposal.read_text(context=torch.tensor([0, 1, 0, 2]), follower=torch.tensor([1, 0, 2, 0]))
>>> target, history = torch.tensor([[1]]), torch.tensor([[[0]]])
>>> proposal.draw(seed=1, step=0, target=target, samples=9, history=history).log_q_target.exp()
tensor([[0.3500]], dtype=torch.float64)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.ops.reference import random_below, random_bits
from blackout.proposals.contract import Groups
from blackout.proposals.unigram import UnigramProposal


class BigramProposal(UnigramProposal):
    """Needs :meth:`read_text` before its first draw, and the input words with each.

    A context that the counted text does not have is followed by words of Q_alpha.
    """

    history_words = 1
    reads_text = True
    tables: ClassVar[dict[str, torch.dtype]] = {
        **UnigramProposal.tables,
        "unigram": torch.float64,
        "pairs": torch.int64,
        "before": torch.int64,
        "start": torch.int64,
    }

    def __init__(self, counts: Tensor, alpha: float) -> None:
        super().__init__(counts, alpha)
        counts = torch.as_tensor(counts, device="cpu").double()
        self.unigram = counts / counts.sum()  # (V,)
        self.pairs: Tensor | None = None  # (U,), the distinct context · V + follower, ascending
        self.before: Tensor | None = None  # (U + 1,), occurrences of the pairs before each
        self.start: Tensor | None = None  # (V + 1,), occurrences of the contexts before each

    def read_text(self, context: ArrayLike, follower: ArrayLike) -> None:
        """Counts the pairs of a text: ``follower`` (N,) comes after ``context`` (N,)."""
        vocab = len(self)
        keys = np.asarray(context).astype(np.int64)
        keys *= vocab
        keys += np.asarray(follower)
        pairs, times = np.unique(keys, return_counts=True)
        before = np.concatenate([[0], np.cumsum(times)])
        place = np.searchsorted(pairs, np.arange(vocab + 1) * vocab)
        device = self._device
        self.pairs, self.before, self.start = (
            torch.from_numpy(table).to(device) for table in (pairs, before, before[place])
        )

    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        pairs, before, start = self._counts()
        context = _context(groups)
        free = self.words(seed, step, len(context), samples, impl)
        bits = random_bits(seed, step, len(context), 3 * samples, context.device)
        _, which, occurrence = bits.split(samples, 1)  # the first bits have drawn the free words
        choice = random_below(which, 2 * context.shape[1])  # a word of the group and a coin
        bigram = choice < context.shape[1]
        word = context.gather(1, choice % context.shape[1])
        times = start[word + 1] - start[word]
        place = start[word] + random_below(occurrence, times)
        pair = torch.searchsorted(before, place, right=True) - 1
        follower = pairs[pair.clamp(max=len(pairs) - 1)] % len(self)
        return torch.where(bigram & (times > 0), follower, free)

    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        pairs, before, start = self._counts()
        context = _context(groups)
        keys = context[:, :, None] * len(self) + words[:, None, :]  # (G, M, n)
        place = torch.searchsorted(pairs, keys).clamp_(max=len(pairs) - 1)
        times = before[place + 1] - before[place]
        times.masked_fill_(pairs[place] != keys, 0)
        total = (start[context + 1] - start[context])[:, :, None]
        free = self.log_q[words].exp()
        follows = torch.where(total > 0, times.double() / total, free[:, None, :]).mean(1)  # (G, n)
        return (0.5 * free + 0.5 * follows).log()

    def marginal(self) -> Tensor:
        return 0.5 * (super().marginal() + self.unigram)

    def _counts(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.pairs is None or self.before is None or self.start is None:
            raise UserError(
                "proposal bigram has no counts yet: layer.proposal.read_text(...) gives it"
            )
        return self.pairs, self.before, self.start


def _context(groups: Groups) -> Tensor:
    """The input words (G, M)."""
    if groups.history is None:
        raise UserError("proposal bigram needs the input words: layer(..., history=inputs)")
    return groups.history[..., 0]
