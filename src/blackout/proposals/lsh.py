"""A proposal near the hidden states: words whose vectors lie on the same sides of random planes.

Locality-sensitive hashing by signs of random projections (Charikar 2002): a table puts a word into
the bucket that the sides of 8 random planes name on which its vector lies; a state falls into a
bucket too, and words with a large product with it are likelier there than elsewhere. A draw takes
a word of the group, a table, and from the bucket of that word's state a word by Q_alpha:

    Q(w) = (1 - share) Q_alpha(w) + share · mean over the group's states and the tables of
           [w in the bucket] Q_alpha(w) / (mass of the bucket)

known exactly, given the tables, so the loss stays consistent whatever they are; where a bucket is
empty, the draw is one of Q_alpha. Vectors and states are hashed less their means: signs of states
that are all positive would tell nothing. The tables follow the vectors, anew every 200 steps.

>>> proposal = LshProposal(torch.ones(40), alpha=1.0)
>>> proposal.see_rows(torch.randn(40, 6), step=0)
>>> target, states = torch.tensor([[3, 5]]), torch.randn(1, 2, 6)
>>> drawn = proposal.draw(seed=1, step=0, target=target, samples=9, states=states)
>>> everything = torch.arange(40)[None]
>>> round(float(proposal.log_density(everything, Groups(target, states=states)).exp().sum()), 6)
1.0
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.ops.reference import random_below, random_bits
from blackout.proposals.contract import Groups
from blackout.proposals.unigram import UnigramProposal

TABLES, BITS = 8, 8  # 64 signs, which one number holds
BUCKETS = 2**BITS
_SHARE = 0.5  # of draws from buckets
_EVERY = 200  # steps for which a set of tables serves
_PLANES = 1_234_567  # the seed of the planes, the same in every run
_TILE = 8192


class _Buckets(NamedTuple):
    """What follows from the codes of words."""

    order: Tensor  # (tables, V), words by bucket
    before: Tensor  # (tables, V + 1), the mass of Q_alpha before each of these
    start: Tensor  # (tables, buckets + 1), where each bucket begins
    mass: Tensor  # (tables, buckets)


class LshProposal(UnigramProposal):
    """Half of Q_alpha, half of the buckets that the group's states fall into."""

    looks_at_states = True
    tables: ClassVar[dict[str, torch.dtype]] = {
        **UnigramProposal.tables,
        "signs": torch.int64,
        "built": torch.int64,
    }
    learned = frozenset({"signs", "built"})

    def __init__(self, counts: Tensor, alpha: float) -> None:
        super().__init__(counts, alpha)
        self.signs = torch.zeros(len(self), dtype=torch.int64)  # all tables' codes of each word
        self.built = torch.full((1,), -1)  # the step that they are of
        self._buckets: _Buckets | None = None

    @torch.no_grad()
    def see_rows(self, weight: Tensor, step: Scalar) -> None:
        """Looks at the vectors (V, h) as they are before a step; now and then hashes them anew."""
        now, built = int(step), int(self.built)
        if built >= 0 and now // _EVERY == built // _EVERY:
            return
        centre = torch.stack([tile.float().sum(0) for tile in weight.split(_TILE)]).sum(0)
        centre = centre / len(weight)
        parts = [_signs(tile.float() - centre) for tile in weight.split(_TILE)]
        self.signs, self.built = torch.cat(parts), torch.full_like(self.built, now)
        self._buckets = None

    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        codes, buckets = self._codes(groups), self._made()
        n_groups, members, _ = codes.shape
        free = self.words(seed, step, n_groups, samples, impl)
        bits = random_bits(seed, step, n_groups, 5 * samples, codes.device)
        _, coin, who, which, where = bits.split(samples, 1)  # the first have drawn the free words
        member = random_below(who, members)
        table = random_below(which, TABLES)
        code = codes.flatten(1).gather(1, member * TABLES + table)  # (G, K)
        start, end = buckets.start[table, code], buckets.start[table, code + 1]
        low = buckets.before[table, start]
        point = low + where.double() * 2.0**-53 * (buckets.before[table, end] - low)
        place = torch.empty_like(start)
        for number, before in enumerate(buckets.before):
            here = table == number
            place[here] = torch.searchsorted(before, point[here], right=True) - 1
        place = torch.minimum(torch.maximum(place, start), (end - 1).clamp(min=0))
        near = coin.double() * 2.0**-53 < _SHARE
        return torch.where(near & (end > start), buckets.order[table, place], free)

    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        codes, mass = self._codes(groups), self._made().mass
        n_groups, members, _ = codes.shape
        place = codes + torch.arange(TABLES, device=codes.device) * BUCKETS  # (G, M, tables)
        ones = torch.full(place.flatten(1).shape, 1 / (members * TABLES), dtype=torch.float64)
        hits = torch.zeros(n_groups, TABLES * BUCKETS, dtype=torch.float64, device=codes.device)
        hits.scatter_add_(1, place.flatten(1), ones.to(codes.device))
        flat = mass.flatten()
        empty = hits[:, flat == 0].sum(1, keepdim=True)  # (G, 1)
        density = torch.where(flat > 0, hits / flat, 0)
        found = torch.zeros(words.shape, dtype=torch.float64, device=codes.device)
        for number, code in enumerate(_unpacked(self.signs[words]).unbind(-1)):
            found += density.gather(1, code + number * BUCKETS)
        return self.log_q[words] + (1 - _SHARE + _SHARE * (empty + found)).log()

    def marginal(self) -> Tensor:
        """Q_alpha: what is near depends on the states."""
        return super().marginal()

    def _codes(self, groups: Groups) -> Tensor:
        """The buckets (G, M, tables) that the states fall into."""
        if groups.states is None:
            raise UserError("proposal lsh looks at the hidden states: draw(..., states=hidden)")
        states = groups.states.detach().float()
        return _unpacked(_signs(states - states.mean((0, 1))))

    def _made(self) -> _Buckets:
        if int(self.built) < 0:
            raise UserError("proposal lsh has no tables yet: proposal.see_rows(weight, 0)")
        if self._buckets is None or self._buckets.order.device != self.signs.device:
            self._buckets = _sorted(_unpacked(self.signs).mT, self.log_q.exp())
        return self._buckets

    def _load_from_state_dict(self, *given: object) -> None:  # type: ignore[override]
        super()._load_from_state_dict(*given)  # type: ignore[arg-type]
        self._buckets = None


def _signs(vectors: Tensor) -> Tensor:
    """The sides (..., ) of 64 random planes that vectors (..., h) lie on, as bits."""
    generator = torch.Generator().manual_seed(_PLANES)
    planes = torch.randn(vectors.shape[-1], TABLES * BITS, generator=generator)
    above = vectors @ planes.to(vectors.device) > 0
    weights = torch.ones(TABLES * BITS, dtype=torch.int64) << torch.arange(TABLES * BITS)
    return (above * weights.to(vectors.device)).sum(-1)


def _unpacked(signs: Tensor) -> Tensor:
    """The bucket in each table, (..., tables), of bits (...)."""
    shifts = torch.arange(0, TABLES * BITS, BITS, device=signs.device)
    return (signs[..., None] >> shifts) & (BUCKETS - 1)


def _sorted(codes: Tensor, q: Tensor) -> _Buckets:
    """The buckets of words with codes (tables, V) and chances q (V,)."""
    order = codes.argsort(dim=1, stable=True)
    ends = q[order].cumsum(1)
    before = torch.cat([ends.new_zeros(TABLES, 1), ends], 1)
    asked = torch.arange(BUCKETS + 1, device=codes.device).expand(TABLES, -1).contiguous()
    start = torch.searchsorted(codes.gather(1, order), asked)
    mass = before.gather(1, start).diff(dim=1)
    return _Buckets(order, before, start, mass)
