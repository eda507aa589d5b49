"""The sampled words of a block that one rank owns, as columns of its logits."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from blackout.ops.engine import Engine, Scalar
from blackout.proposals import Groups, Proposal, StrataProposal
from blackout.ranks import Division


class Columns(NamedTuple):
    """Each word once, with its number of copies; groups with fewer are filled up with 0 copies."""

    target: Tensor  # (G, M), of all ranks; -1 where there is none
    samples: Tensor  # (G, C), numbers of words
    copies: Tensor  # (G, C)
    log_q_samples: Tensor  # (G, C)
    log_q_target: Tensor  # (G, M)
    replaced: Tensor | None
    """(G, M): the column of which the target of a word takes one copy's place; -1 for none here."""


def drawn_columns(
    proposal: Proposal,
    groups: Groups,
    division: Division,
    engine: Engine,
    *,
    seed: int,
    step: Scalar,
    samples: int,
    always: tuple[int, ...],
    impl: str,
    log_draws: bool,
    replace: bool,
) -> Columns:
    """This rank's share of the samples of a step; every rank draws for itself what is its own.

    ``groups``: the targets of all ranks. ``log_draws``: whether the densities count how many are
    drawn, K Q instead of Q, as NCE wants. ``replace``: with strata, whether the true word takes the
    last place of its own stratum.
    """
    known = groups._replace(target=groups.target.clamp(min=0))
    replaced = None
    if isinstance(proposal, StrataProposal):
        own = division.own_strata
        words = proposal.draw_strata(seed, step, len(known.target), own)
        found, copies = engine.merge_copies(words)
        if replace:
            last = words[:, proposal.last_places(own)]  # (G, own strata)
            replaced = _column_of(last, found, copies, groups.target, division)
        constant = 0.0  # K_r is in the densities
    else:
        words = proposal.sample(seed, step, known, samples, impl)
        if always:
            words = torch.cat([words, words.new_tensor(always).expand(len(words), -1)], 1)
        here = division.owner(words) == division.rank
        found, copies = engine.merge_copies(words.masked_fill(~here, division.n_rows))
        missing = found == division.n_rows
        copies = copies.masked_fill(missing, 0)
        found = found.masked_fill(missing, int(words[here][0]) if here.any() else division.rank)
        constant = math.log(words.shape[1]) if log_draws else 0.0
    return Columns(
        groups.target,
        found,
        copies,
        proposal.log_density(found, known) + constant,
        proposal.log_density(known.target, known) + constant,
        replaced,
    )


def _column_of(
    last: Tensor, found: Tensor, copies: Tensor, target: Tensor, division: Division
) -> Tensor:
    """(G, M): where the word at the last place of a target's stratum stands, if it is here."""
    there = (found[:, None, :] == last[:, :, None]) & (copies > 0)[:, None, :]
    column = there.to(torch.uint8).argmax(-1)  # (G, own strata)
    own = (target >= 0) & (division.owner(target) == division.rank)
    stratum = (target % division.strata // division.size).where(own, 0)
    return column.gather(1, stratum).where(own, -1)
