"""Trainer of Hugging Face transformers for models with row-sparse gradients.

Theirs measures and clips gradients with a function that refuses sparse ones, and makes an AdamW
that does too. This one differs in these two places only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.optim import Adam, clip_grad_norm_

__all__ = ["Trainer"]


class Trainer(transformers.Trainer):
    """``transformers.Trainer`` whose clipping and whose default optimiser take sparse gradients.

    The optimiser is :class:`blackout.Adam` with the rate, betas and weight decay of the arguments;
    another one goes in as ``optimizers=(optimizer, None)``.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.args.label_smoothing_factor:
            raise UserError(
                f"label_smoothing_factor is {self.args.label_smoothing_factor}: it would take the "
                "loss over all words in the place of the model's own; must be 0"
            )
        self.accelerator.clip_grad_norm_ = self._clip

    def _clip(self, parameters: Iterable[Tensor], max_norm: float, norm_type: int = 2) -> Tensor:
        self.accelerator.unscale_gradients()
        return clip_grad_norm_(parameters, max_norm)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Adam for dense and row-sparse gradients, unless an optimiser was given."""
        if self.optimizer is None:
            trained: Any = self.model if model is None else model
            decayed = set(self.get_decay_parameter_names(trained))
            split: dict[bool, list[nn.Parameter]] = {True: [], False: []}
            for name, parameter in trained.named_parameters():
                if parameter.requires_grad:
                    split[name in decayed].append(parameter)
            self.optimizer = Adam(
                [
                    {"params": split[True], "weight_decay": self.args.weight_decay},
                    {"params": split[False]},
                ],
                lr=self.args.learning_rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
            )
        return self.optimizer
