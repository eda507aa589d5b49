"""Where samples come from: word counts, the block itself, input words, the model's predictions."""

from blackout.proposals.batch import BatchProposal
from blackout.proposals.bigram import BigramProposal
from blackout.proposals.contract import Draw, Groups, Proposal
from blackout.proposals.model import ModelProposal
from blackout.proposals.unigram import UnigramProposal

PROPOSALS: dict[str, type[UnigramProposal]] = {
    "unigram": UnigramProposal,
    "batch": BatchProposal,
    "bigram": BigramProposal,
    "model": ModelProposal,
}

__all__ = [
    "PROPOSALS",
    "BatchProposal",
    "BigramProposal",
    "Draw",
    "Groups",
    "ModelProposal",
    "Proposal",
    "UnigramProposal",
]
