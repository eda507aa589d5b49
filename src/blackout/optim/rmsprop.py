"""RMSProp for dense and row-sparse gradients (paper appendix C).

v <- beta v + (1 - beta) g²,  theta <- theta - lr g / sqrt(v + damping)

A step touches few rows of a huge table; the second moments v of the others should still age.
``decay`` says how a row ages while nobody touches it:

- ``"exact"``: a row remembers the step of its last update and ages by beta^(steps since), so the
  result equals the dense optimiser's up to rounding, at 4 bytes a row;
- ``"paper"``: by beta^(1/p), p the row's expected share of steps that touch it (eqs. 18-19),
  given as ``update_rate`` (V,) in the parameter group;
- ``"none"``: a row ages by beta when touched.

``correct_bias``: v begins at 0, so that after t steps it is a mean with weights that add up to
1 - beta^t only; divided by that, as Adam does, it is one from the first step on. Without, the first
step of a weight is 1 / sqrt(1 - beta) times as large as later ones.

``by_width``: a step moves every weight by about lr, so a sum over n of them, such as a logit, by up
to n times that. ``lr`` is for weights with 256 inputs; those with n get lr (256/n)^⅔, no more than
those with 16, and what suits a narrow network does not ruin a wide one.

``damping`` is a floor under v, so that weights whose gradients are nearly 0 do not move at the full
rate all the same. None: what a gradient of ordinary size adds to v, seen at a parameter's first
step; it does not matter then whether a loss is a mean or a sum.

``second_moment="row"`` keeps one number for each row of a table, the mean of g² over the row,
instead of a second table. A bfloat16 table is rounded at random after each update, so that steps
smaller than its resolution count in the mean; the random bits follow ``seed`` and the step.

>>> table = torch.nn.Embedding(1000, 8, sparse=True)
>>> optimizer = RMSProp(table.parameters(), lr=0.01, clip=1.0)
>>> table(torch.tensor([3, 3, 7])).sum().backward()
>>> optimizer.step()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Engine, RmsProp, Rounding, Scalar
from blackout.optim.clip import clip_factor, norm_of_squares
from blackout.tables import zero_table

Decay = Literal["exact", "paper", "none"]
_WIDTH, _NARROW = 256, 16


class RMSProp(torch.optim.Optimizer):
    """RMSProp whose cost follows the rows touched, not the size of the table.

    ``clip``: the largest global norm over all parameters of all groups; 0 for no limit.
    ``last_norm`` is that norm, before clipping, of the latest step; on a GPU a tensor, which
    nobody waits for unless it is read.
    """

    last_norm: Scalar

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.001,
        *,
        beta: float = 0.999,
        damping: float | None = None,
        correct_bias: bool = True,
        by_width: bool = True,
        decay: Decay = "exact",
        second_moment: Literal["full", "row"] = "full",
        clip: float = 0.0,
        seed: int = 0,
        impl: str = "auto",
    ) -> None:
        if decay not in ("exact", "paper", "none"):
            raise UserError(f'decay is {decay!r}, must be "exact", "paper" or "none"')
        if second_moment not in ("full", "row"):
            raise UserError(f'second_moment is {second_moment!r}, must be "full" or "row"')
        if not lr > 0 or not 0 <= beta < 1 or not (damping or 0) >= 0 or not clip >= 0:
            raise UserError(
                f"RMSProp needs lr > 0, 0 <= beta < 1, damping >= 0 and clip >= 0, "
                f"not lr {lr}, beta {beta}, damping {damping}, clip {clip}"
            )
        defaults = {
            "lr": lr,
            "beta": beta,
            "damping": damping,
            "correct_bias": correct_bias,
            "by_width": by_width,
            "decay": decay,
            "update_rate": None,
            "second_moment": second_moment,
        }
        super().__init__(params, defaults)
        self.clip = clip
        self.seed = seed
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
            (number, group, p, *self._gradient(p))
            for number, (group, p) in enumerate(self._parameters())
            if p.grad is not None
        ]
        factor: Scalar = 1.0
        if self.clip:
            squares = [engine.squared_norm(gradient) for *_, engine, gradient in touched]
            self.last_norm = norm_of_squares(squares)
            factor = clip_factor(self.last_norm, self.clip)
        for number, group, p, engine, gradient in touched:
            state = self.init_state(p, p.grad.is_sparse)  # type: ignore[union-attr]
            state["step"] += 1
            if group["damping"] is None and "damping" not in state:
                state["damping"] = _typical_square(engine.squared_norm(gradient), gradient, group)
            update = RmsProp(
                factor,
                *_rate_and_damping(p, group, state),
                Rounding(self.seed, number, state["step"]),
            )
            change = engine.rmsprop_dense if isinstance(gradient, Tensor) else engine.rmsprop_rows
            aging = self._aging(engine, gradient, group, state)
            change(p, state["moment"], gradient, aging, update)
        return loss

    def _parameters(self) -> Iterator[tuple[dict[str, Any], nn.Parameter]]:
        return ((group, p) for group in self.param_groups for p in group["params"])

    def _gradient(self, p: nn.Parameter) -> tuple[Engine, Any]:
        """Who computes for this parameter, and its gradient: dense, or its touched rows."""
        gradient = p.grad
        assert gradient is not None
        impl = self.impl if p.is_contiguous() else "reference"
        engine = engine_for(impl, p.device, p.dtype, gradient.dtype)
        if not gradient.is_sparse:
            return engine, gradient
        return engine, engine.collect_rows(gradient._indices()[0], gradient._values(), len(p))

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
            (group,) = [group for group, other in self._parameters() if other is p]
            by_row = sparse and group["second_moment"] == "row"
            shape = (len(p), *[1] * (p.ndim - 1)) if by_row else tuple(p.shape)
            dtype = torch.promote_types(p.dtype, torch.float32)
            state["step"] = torch.zeros((), dtype=torch.int64)
            state["moment"] = zero_table(shape, dtype, p.device)
        if sparse and "touched" not in state:
            # Where a table was updated densely so far, all its rows are as old as the last step.
            state["touched"] = torch.full(
                (len(p),), int(state["step"]), dtype=torch.int32, device=p.device
            )
        return state

    def _aging(
        self, engine: Engine, gradient: Any, group: dict[str, Any], state: Any
    ) -> Tensor | float:
        """The factor of the old second moment: a number, or one for each touched row.

        Marks the rows as touched by this step.
        """
        beta: float = group["beta"]
        step, touched = state["step"], state.get("touched")
        if touched is None:
            return beta
        if isinstance(gradient, Tensor):  # a table that had sparse gradients before
            waited = step.to(touched.device, touched.dtype) - touched
            touched.copy_(step)
            return _column(beta ** waited.double(), state["moment"])
        rows = gradient.rows
        if group["decay"] == "exact":
            return _column(engine.exact_aging(touched, rows, step, beta), state["moment"])
        touched[rows] = step.to(touched.device, touched.dtype)
        if group["decay"] == "none":
            return beta
        rate = group["update_rate"]
        if rate is None:
            raise UserError('decay "paper" needs "update_rate" in the parameter group of a table')
        return _column(beta ** (1 / rate[rows].double()), state["moment"])


def _typical_square(square: Scalar, gradient: Any, group: dict[str, Any]) -> Tensor:
    """What a gradient of ordinary size adds to a second moment."""
    values = gradient if isinstance(gradient, Tensor) else gradient.values
    size = (
        values.numel() if isinstance(gradient, Tensor) else len(gradient.rows) * values[:1].numel()
    )
    return torch.tensor((1 - group["beta"]) * float(square) / max(size, 1), dtype=torch.float64)


def _rate_and_damping(
    p: nn.Parameter, group: dict[str, Any], state: Any
) -> tuple[float, float, float]:
    """lr, beta and damping with which v as it is does what v / (1 - beta^step) would do.

    lr g / sqrt(v / c + damping) = lr sqrt(c) g / sqrt(v + c damping).
    """
    lr, beta, damping = group["lr"], group["beta"], group["damping"]
    if group["by_width"] and p.ndim > 1:
        lr *= (_WIDTH / max(p.shape[-1], _NARROW)) ** (2 / 3)
    if damping is None:
        damping = float(state["damping"])
    if not group["correct_bias"]:
        return lr, beta, damping
    seen = 1 - beta ** int(state["step"])
    return lr * math.sqrt(seen), beta, damping * seen


def _column(row_factors: Tensor, moment: Tensor) -> Tensor:
    """One factor for each row, shaped to multiply rows of ``moment``."""
    return row_factors.to(moment.dtype).view(-1, *[1] * (moment.ndim - 1))
