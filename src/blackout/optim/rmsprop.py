"""RMSProp for dense and row-sparse gradients (paper appendix C).

v <- beta v + (1 - beta) g²,  theta <- theta - lr g / sqrt(v + damping)

A step touches few rows of a huge table; the second moments v of the others should still age.
``decay`` says how a row ages while nobody touches it:

- ``"exact"``: a row remembers the step of its last update and ages by beta^(steps since), so the
  result equals the dense optimiser's up to rounding, at 4 bytes a row;
- ``"paper"``: by beta^(1/p), p the row's expected share of steps that touch it (eqs. 18-19),
  given as ``update_rate`` (V,) in the parameter group;
- ``"none"``: a row ages by beta when touched;
- ``"dense"``: every row ages every step: slow, the oracle for tests.

>>> table = torch.nn.Embedding(1000, 8, sparse=True)
>>> optimizer = RMSProp(table.parameters(), lr=0.01, clip=1.0)
>>> table(torch.tensor([3, 3, 7])).sum().backward()
>>> optimizer.step()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.dispatch import operations
from blackout.optim.clip import clip_factor, global_norm, sum_rows

Decay = Literal["exact", "paper", "none", "dense"]


class RMSProp(torch.optim.Optimizer):
    """RMSProp whose cost follows the rows touched, not the size of the table.

    ``clip``: the largest global norm over all parameters of all groups; 0 for no limit.
    ``last_norm`` is that norm, before clipping, of the latest step.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.001,
        *,
        beta: float = 0.999,
        damping: float = 1e-12,
        damping_inside: bool = True,
        decay: Decay = "exact",
        clip: float = 0.0,
        impl: str = "auto",
    ) -> None:
        if decay not in ("exact", "paper", "none", "dense"):
            raise UserError(f'decay is {decay!r}, must be "exact", "paper", "none" or "dense"')
        if not lr > 0 or not 0 <= beta < 1 or not damping >= 0 or not clip >= 0:
            raise UserError(
                f"RMSProp needs lr > 0, 0 <= beta < 1, damping >= 0 and clip >= 0, "
                f"not lr {lr}, beta {beta}, damping {damping}, clip {clip}"
            )
        defaults = {
            "lr": lr,
            "beta": beta,
            "damping": damping,
            "damping_inside": damping_inside,
            "decay": decay,
            "update_rate": None,
        }
        super().__init__(params, defaults)
        self.clip = clip
        self.impl = impl
        self.last_norm = 0.0

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update from the gradients at hand."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        touched = [
            (group, p, sum_rows(p.grad, self.impl))
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        factor = 1.0
        if self.clip:
            norm = global_norm([gradient for _, _, gradient in touched])
            self.last_norm = float(norm)
            factor = float(clip_factor(norm, self.clip))
        for group, p, gradient in touched:
            state = self.init_state(p, gradient.is_sparse)
            state["step"] += 1
            if gradient.is_sparse:
                self._update_rows(p, gradient, factor, group, state)
            else:
                self._update_dense(p, gradient, factor, group, state)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like every optimiser's, but each tensor keeps the type it was saved with.

        PyTorch would turn the row ages into floats, which cannot count beyond 2**24 steps.
        """
        super().load_state_dict(state_dict)
        parameters = [p for group in self.param_groups for p in group["params"]]
        for index, saved in state_dict["state"].items():
            p = parameters[index]
            for name, value in saved.items():
                device = value.device if name == "step" else p.device
                self.state[p][name] = value.to(device, copy=True)

    def init_state(self, p: nn.Parameter, sparse: bool) -> dict[str, Any]:
        """The state of a parameter, made on first sight, before its first step if you like.

        ``sparse``: whether its gradients are row-sparse.
        """
        state = self.state[p]
        if not state:
            dtype = torch.promote_types(p.dtype, torch.float32)
            state["step"] = torch.zeros((), dtype=torch.int64)
            state["moment"] = torch.zeros(p.shape, dtype=dtype, device=p.device)
        if sparse and "touched" not in state:
            # Where a table was updated densely so far, all its rows are as old as the last step.
            state["touched"] = torch.full(
                (len(p),), int(state["step"]), dtype=torch.int32, device=p.device
            )
        return state

    def _update_dense(
        self, p: Tensor, gradient: Tensor, factor: float, group: dict[str, Any], state: Any
    ) -> None:
        ops = operations(self.impl, p.device)
        aging: Tensor | float = group["beta"]
        if "touched" in state:  # a table that had sparse gradients before
            waited = int(state["step"]) - state["touched"]
            aging = _column(group["beta"] ** waited.double(), p)
            state["touched"].fill_(int(state["step"]))
        weight, moment = ops.rmsprop_update(
            p, state["moment"], gradient * factor, aging, *_settings(group)
        )
        p.copy_(weight)
        state["moment"].copy_(moment)

    def _update_rows(
        self, p: Tensor, gradient: Tensor, factor: float, group: dict[str, Any], state: Any
    ) -> None:
        ops = operations(self.impl, p.device)
        rows, values = gradient._indices()[0], gradient._values() * factor
        moments = state["moment"]
        if group["decay"] == "dense":
            moments *= group["beta"]
        aging = self._aging(p, rows, group, state)
        weight, moment = ops.rmsprop_update(
            p[rows], moments[rows], values, aging, *_settings(group)
        )
        p[rows] = weight
        moments[rows] = moment
        state["touched"][rows] = int(state["step"])

    def _aging(self, p: Tensor, rows: Tensor, group: dict[str, Any], state: Any) -> Tensor | float:
        """The factor of the old second moment: a number, or one for each touched row."""
        beta: float = group["beta"]
        if group["decay"] == "dense":
            return 1.0
        if group["decay"] == "none":
            return beta
        if group["decay"] == "exact":
            waited = int(state["step"]) - state["touched"][rows]
            return _column(beta ** waited.double(), p)
        rate = group["update_rate"]
        if rate is None:
            raise UserError('decay "paper" needs "update_rate" in the parameter group of a table')
        return _column(beta ** (1 / rate[rows].double()), p)


def _column(row_factors: Tensor, p: Tensor) -> Tensor:
    """One factor for each row, shaped to multiply rows of ``p``."""
    return row_factors.to(p.dtype).view(-1, *[1] * (p.ndim - 1))


def _settings(group: dict[str, Any]) -> tuple[float, float, float, bool]:
    return group["lr"], group["beta"], group["damping"], group["damping_inside"]
