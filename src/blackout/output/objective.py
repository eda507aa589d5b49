"""A sampled loss of your own: J as a function of z = u - log Q, for a target and its samples.

>>> class Margin(Objective):
...     '''The target should be above every sample, by 1.'''
...     def value(self, z_target, z_samples):
...         return -(1 + z_samples - z_target[..., None]).relu().mean(-1)
>>> from blackout import Sampled
>>> layer = Sampled(16, 1000, samples=20, objective=Margin())
>>> output, loss = layer(torch.randn(8, 16), torch.randint(1000, (8,)))
>>> loss.backward()
>>> layer.weight.grad.is_sparse
True
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.reference import Objectives


class Objective(ABC):
    """J of each example, to be maximised; everything else is the layer's.

    A subclass has :meth:`value`, in plain PyTorch; its derivatives by z are autograd's, or those of
    :meth:`derivatives` where you know a shorter or safer way. The two products with the table and
    the row-sparse gradients stay the package's own.
    """

    @abstractmethod
    def value(self, z_target: Tensor, z_samples: Tensor) -> Tensor:
        """J (G, M) of z_target (G, M) and z_samples (G, M, K), u - log Q of each.

        J of an example may depend on its own z only. A sample with z = -inf does not count: such
        are there with ``collisions="remove"``, and where examples have several true classes.
        """

    def derivatives(self, z_target: Tensor, z_samples: Tensor) -> Objectives:
        """J (G, M) with its derivatives by the z of targets (G, M) and samples (G, M, K)."""
        with torch.enable_grad():
            leaves = [z.detach().requires_grad_() for z in (z_target, z_samples)]
            value = self.value(*leaves)
            self._check(value, z_target)
            found = torch.autograd.grad(value.sum(), leaves, materialize_grads=True)
        return Objectives(value.detach(), *found)

    def _check(self, value: Tensor, z_target: Tensor) -> None:
        """Refuses what is no J of each example, or has no derivatives."""
        name, shape = f"{type(self).__name__}.value", tuple(z_target.shape)
        if not isinstance(value, Tensor) or value.shape != z_target.shape:
            given = tuple(value.shape) if isinstance(value, Tensor) else value
            raise UserError(f"{name} gave {given}, must be J of each target, {shape}")
        if not value.requires_grad:
            raise UserError(f"{name} gave numbers that do not depend on z: there is no derivative")

    def __call__(
        self, z_target: Tensor, z_samples: Tensor, copies: Tensor | None = None
    ) -> Objectives:
        assert copies is None, "samples are merged for the objectives of the package only"
        return self.derivatives(z_target, z_samples)
