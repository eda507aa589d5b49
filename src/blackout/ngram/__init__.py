"""Back-off n-gram models: Kneser-Ney estimation, ARPA and binary files, perplexity.

Stands beside the networks and needs neither them nor PyTorch.
"""

from blackout.ngram.estimate import Estimate, train
from blackout.ngram.evaluate import Perplexity, evaluate
from blackout.ngram.model import NGram

__all__ = ["Estimate", "NGram", "Perplexity", "evaluate", "train"]
