"""Training: the loop, its checkpoints, what it reports."""

from blackout.train.loop import TrainResult, train

__all__ = ["TrainResult", "train"]
