"""Where samples come from: counts, the block itself, input words, the model, hidden states."""

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.reference import random_below, random_bits
from blackout.proposals.batch import BatchProposal
from blackout.proposals.bigram import BigramProposal
from blackout.proposals.contract import Draw, Groups, Proposal
from blackout.proposals.in_batch import InBatchProposal
from blackout.proposals.lsh import LshProposal
from blackout.proposals.mixture import MixtureProposal
from blackout.proposals.model import ModelProposal
from blackout.proposals.strata import StrataProposal
from blackout.proposals.unigram import UnigramProposal

PROPOSALS: dict[str, type[UnigramProposal]] = {
    "unigram": UnigramProposal,
    "batch": BatchProposal,
    "bigram": BigramProposal,
    "model": ModelProposal,
    "lsh": LshProposal,
}


def make_proposal(
    kind: str | Proposal, n_words: int, counts: Tensor | None, alpha: float
) -> Proposal:
    """A proposal over ``n_words`` by its name, or the one given; without counts all are alike."""
    if isinstance(kind, Proposal):
        if len(kind) != n_words:
            raise UserError(f"proposal is over {len(kind)} words, there are {n_words} classes")
        if counts is not None:
            raise UserError("counts belong into the proposal that is given, not beside it")
        return kind
    if kind not in PROPOSALS:
        raise UserError(f"proposal is {kind!r}, must be one of {', '.join(PROPOSALS)}")
    if counts is None:
        if kind == "batch":
            return InBatchProposal(n_words)
        counts = torch.ones(n_words, device="cpu")  # whatever the default device
    return PROPOSALS[kind](counts, alpha)


__all__ = [
    "PROPOSALS",
    "BatchProposal",
    "BigramProposal",
    "Draw",
    "Groups",
    "InBatchProposal",
    "LshProposal",
    "MixtureProposal",
    "ModelProposal",
    "Proposal",
    "StrataProposal",
    "UnigramProposal",
    "make_proposal",
    "random_below",
    "random_bits",
]
