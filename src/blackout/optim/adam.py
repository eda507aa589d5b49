"""Adam for dense and row-sparse gradients, lazily: rows that nobody touches stay where they are.

m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g²
theta <- theta - lr m / sqrt(v + damping), m and v corrected for having begun at 0

Dense Adam goes on moving a row along m after its gradient has passed. Lazily, a row moves only when
a step touches it; ``decay`` says what became of its moments meanwhile:

- ``"exact"``: after w steps v has aged by beta2^w, as dense Adam's, and m by beta1^w, while the new
  gradient stands for all of them: m <- beta1^w m + (1 - beta1^w) g. A row touched in every step
  moves as under dense Adam; one touched now and then moves at once as far as dense Adam would move
  it in the steps that follow. 4 bytes a row.
- ``"none"``: both age when touched, by beta1 and beta2, as in ``torch.optim.SparseAdam``. A row
  touched for the first time late in a run then hardly moves along m.

With ``weight_decay`` it is AdamW. The other settings are those of every optimiser here:
:mod:`blackout.optim.row_sparse`.

>>> import torch
>>> table = nn.Embedding(1000, 8, sparse=True)
>>> optimizer = Adam(table.parameters(), lr=0.01, clip=1.0)
>>> table(torch.tensor([3, 3, 7])).sum().backward()
>>> optimizer.step()
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.engine import RmsProp, Scalar
from blackout.optim.row_sparse import (
    Group,
    RowSparseOptimizer,
    Touched,
    check_setting,
    column,
    corrected,
    steps_of,
)
from blackout.optim.saved import work_type
from blackout.tables import zero_table


class Adam(RowSparseOptimizer):
    """Adam whose cost follows the rows touched, not the size of the table.

    ``decay``: what becomes of the moments of rows that nobody touches.
    """

    moments = ("mean", "moment")

    def __init__(
        self,
        params: Iterable[Any],
        lr: Scalar = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        damping: float | None = None,
        by_width: bool = True,
        decay: Literal["exact", "none"] = "exact",
        second_moment: Literal["full", "row"] = "full",
        weight_decay: float = 0.0,
        clip: float = 0.0,
        seed: int = 0,
        capturable: bool = False,
        impl: str = "auto",
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "damping": damping,
            "by_width": by_width,
            "decay": decay,
            "second_moment": second_moment,
            "weight_decay": weight_decay,
            "clip": clip,
            "seed": seed,
            "capturable": capturable,
        }
        super().__init__(params, defaults, impl)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_setting("Adam", group, "betas", _are_betas, "two numbers, at least 0, below 1")
        if group["decay"] not in ("exact", "none"):
            raise UserError(f'Adam: decay is {group["decay"]!r}, must be "exact" or "none"')

    def _beta(self, group: Group) -> float:
        return float(group["betas"][1])

    def _add_state(self, p: nn.Parameter, sparse: bool, state: dict[str, Any]) -> None:
        state["mean"] = zero_table(tuple(p.shape), work_type(p), p.device)

    def _change(self, touched: Touched, state: dict[str, Any], update: RmsProp) -> None:
        group, engine, p = touched.group, touched.engine, touched.parameter
        momentum, aging = self._memories(touched, state)
        steps = steps_of(group, state)
        update = corrected(update, steps)
        update = update._replace(lr=update.lr / (1 - group["betas"][0] ** steps))
        change = engine.adam_dense if touched.rows is None else engine.adam_rows
        change(p, state["mean"], state["moment"], touched.gradient, momentum, aging, update)

    def _memories(
        self, touched: Touched, state: dict[str, Any]
    ) -> tuple[Tensor | float, Tensor | float]:
        """The factors of the old mean and of the old moment: numbers, or one for each row."""
        first, second = touched.group["betas"]
        clock: Tensor | None = state.get("touched")
        if clock is None:
            return first, second
        rows = slice(None) if touched.rows is None else touched.rows
        now = state["step"].to(clock.device, clock.dtype)
        if touched.rows is not None and touched.group["decay"] == "none":
            clock[rows] = now
            return first, second
        waited = now - clock[rows]
        aging = self._aging(touched, state, second)
        return column(first ** waited.double(), state["mean"]), aging


def _are_betas(betas: Any) -> bool:
    first, second = betas
    return 0 <= first < 1 and 0 <= second < 1
