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

The other settings are those of every optimiser here: :mod:`blackout.optim.row_sparse`.

>>> import torch
>>> table = torch.nn.Embedding(1000, 8, sparse=True)
>>> optimizer = RMSProp(table.parameters(), lr=0.01, clip=1.0)
>>> table(torch.tensor([3, 3, 7])).sum().backward()
>>> optimizer.step()
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.engine import RmsProp, Rounding, Scalar
from blackout.optim.row_sparse import (
    Group,
    RowSparseOptimizer,
    Touched,
    check_setting,
    column,
    corrected,
    rate,
    steps_of,
)

Decay = Literal["exact", "paper", "none"]


class RMSProp(RowSparseOptimizer):
    """RMSProp whose cost follows the rows touched, not the size of the table.

    ``clip``: the largest global norm over all parameters of all groups; 0 for no limit.
    ``decay``: how rows age that nobody touches; ``damping``: a floor under the second moment, None
    for one of the gradients' size; ``second_moment="row"``: one moment a row instead of a table.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Scalar = 0.001,
        *,
        beta: float = 0.999,
        damping: float | None = None,
        correct_bias: bool = True,
        by_width: bool = True,
        decay: Decay = "exact",
        second_moment: Literal["full", "row"] = "full",
        weight_decay: float = 0.0,
        clip: float = 0.0,
        seed: int = 0,
        capturable: bool = False,
        impl: str = "auto",
    ) -> None:
        defaults = {
            "lr": lr,
            "beta": beta,
            "damping": damping,
            "correct_bias": correct_bias,
            "by_width": by_width,
            "decay": decay,
            "update_rate": None,
            "second_moment": second_moment,
            "weight_decay": weight_decay,
            "clip": clip,
            "seed": seed,
            "capturable": capturable,
        }
        super().__init__(params, defaults, impl)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_setting("RMSProp", group, "beta", lambda beta: 0 <= beta < 1, "at least 0, below 1")
        _check_decay(group)

    def plan(self) -> list[tuple[nn.Parameter, Group]] | None:
        """Parameters and groups, where an engine may do what :meth:`step` does to them."""
        plain = (
            type(self) is RMSProp
            and not self._optimizer_step_pre_hooks
            and not self._optimizer_step_post_hooks
            and not any(group["capturable"] or group["by_width"] for group in self.param_groups)
            and all(group["damping"] is not None for group in self.param_groups)
        )
        return [(p, group) for group, p in self._parameters()] if plain else None

    def _beta(self, group: Group) -> float:
        return float(group["beta"])

    def _change(self, touched: Touched, state: dict[str, Any], update: RmsProp) -> None:
        group = touched.group
        if group["correct_bias"]:
            update = corrected(update, steps_of(group, state))
        engine, p, gradient = touched.engine, touched.parameter, touched.gradient
        change = engine.rmsprop_dense if touched.rows is None else engine.rmsprop_rows
        change(p, state["moment"], gradient, self._row_aging(touched, state), update)

    def rates(self, p: nn.Parameter, group: Group, step: int) -> tuple[float, float, float]:
        """lr, damping and the part that a weight loses, as the step of this number has them.

        For those who change parameters themselves; of a group that has a ``damping``.
        """
        lr = rate(p, group)
        update = RmsProp(1.0, lr, group["beta"], group["damping"], Rounding(0, 0, step))
        if group["correct_bias"]:
            update = corrected(update, step)
        return float(update.lr), float(update.damping), float(lr * group["weight_decay"])

    def _row_aging(self, touched: Touched, state: dict[str, Any]) -> Tensor | float:
        """The factor of the old second moment: a number, or one for each touched row."""
        group, rows = touched.group, touched.rows
        beta: float = group["beta"]
        _check_decay(group)
        if rows is None or group["decay"] == "exact":
            return self._aging(touched, state, beta)
        clock: Tensor = state["touched"]
        clock[rows] = state["step"].to(clock.device, clock.dtype)
        if group["decay"] == "none":
            return beta
        rate = group["update_rate"]
        if rate is None:
            raise UserError('decay "paper" needs "update_rate" in the parameter group of a table')
        return column(beta ** (1 / rate[rows].double()), state["moment"])


def _check_decay(group: Group) -> None:
    if group["decay"] not in ("exact", "paper", "none"):
        raise UserError(f'decay is {group["decay"]!r}, must be "exact", "paper" or "none"')
