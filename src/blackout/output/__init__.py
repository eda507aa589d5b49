"""Output layers over a huge vocabulary: one signature, four training losses, exact evaluation."""

from blackout.output.blackout import BlackOut
from blackout.output.full import Full
from blackout.output.layer import OutputLayer
from blackout.output.nce import NCE
from blackout.output.proposal import Proposal
from blackout.output.sampled import Sampled

__all__ = ["NCE", "BlackOut", "Full", "OutputLayer", "Proposal", "Sampled"]
