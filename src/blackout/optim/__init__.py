"""The optimiser: RMSProp and clipping for dense and row-sparse gradients, the schedule."""

from blackout.optim.clip import clip_grad_norm_, global_norm
from blackout.optim.rmsprop import RMSProp
from blackout.optim.schedule import Schedule

__all__ = ["RMSProp", "Schedule", "clip_grad_norm_", "global_norm"]
