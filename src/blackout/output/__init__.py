"""Output layers over a huge vocabulary: one signature, many training losses, exact evaluation."""

from blackout.output.blackout import BlackOut
from blackout.output.contract import LayerSpec, OutputLayer, OutputWithLoss, TopK
from blackout.output.flat import FlatSoftmax
from blackout.output.full import Full
from blackout.output.nce import NCE
from blackout.output.sampled import Sampled
from blackout.output.sampling import SamplingLayer

__all__ = [
    "NCE",
    "BlackOut",
    "FlatSoftmax",
    "Full",
    "LayerSpec",
    "OutputLayer",
    "OutputWithLoss",
    "Sampled",
    "SamplingLayer",
    "TopK",
]
