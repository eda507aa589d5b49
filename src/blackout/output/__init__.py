"""Output layers over a huge vocabulary: one signature, four training losses, exact evaluation."""

from blackout.output.batch_proposal import BatchProposal
from blackout.output.bigram_proposal import BigramProposal
from blackout.output.blackout import BlackOut
from blackout.output.full import Full
from blackout.output.layer import OutputLayer
from blackout.output.model_proposal import ModelProposal
from blackout.output.nce import NCE
from blackout.output.proposal import Proposal
from blackout.output.sampled import Sampled

__all__ = [
    "NCE",
    "BatchProposal",
    "BigramProposal",
    "BlackOut",
    "Full",
    "ModelProposal",
    "OutputLayer",
    "Proposal",
    "Sampled",
]
