"""Output layers over a huge vocabulary: one signature, many training losses, exact evaluation."""

from blackout.output.adaptive import Adaptive
from blackout.output.blackout import BlackOut
from blackout.output.classes import Classes
from blackout.output.contract import LayerSpec, OutputLayer
from blackout.output.flat import FlatSoftmax
from blackout.output.full import Full
from blackout.output.hierarchical import Hierarchical
from blackout.output.nce import NCE
from blackout.output.objective import Objective
from blackout.output.results import OutputWithLoss, TopK
from blackout.output.sampled import Sampled
from blackout.output.sampling import SamplingLayer
from blackout.output.self_normalised import SelfNormalised, SelfNormalisedFull
from blackout.output.spherical import Spherical

__all__ = [
    "NCE",
    "Adaptive",
    "BlackOut",
    "Classes",
    "FlatSoftmax",
    "Full",
    "Hierarchical",
    "LayerSpec",
    "Objective",
    "OutputLayer",
    "OutputWithLoss",
    "Sampled",
    "SamplingLayer",
    "SelfNormalised",
    "SelfNormalisedFull",
    "Spherical",
    "TopK",
]
