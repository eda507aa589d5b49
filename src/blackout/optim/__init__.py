"""The optimisers for dense and row-sparse gradients, clipping over both, the schedule."""

from blackout.optim.adagrad import Adagrad
from blackout.optim.adam import Adam
from blackout.optim.clip import clip_grad_norm_, global_norm
from blackout.optim.rmsprop import RMSProp
from blackout.optim.row_sparse import RowSparseOptimizer
from blackout.optim.schedule import Schedule

__all__ = [
    "Adagrad",
    "Adam",
    "RMSProp",
    "RowSparseOptimizer",
    "Schedule",
    "clip_grad_norm_",
    "global_norm",
]
