"""Adagrad for dense and row-sparse gradients.

v <- v + g²,  theta <- theta - lr g / sqrt(v + damping)

A row that nobody touches has nothing to age, so that touching only the rows of a gradient is exact.
``second_moment="row"`` keeps the sum over steps of the mean of g² over a row: one number a row, the
row-wise Adagrad of large recommenders. ``damping`` is what other programs call the initial value of
the accumulator.

The other settings are those of every optimiser here: :mod:`blackout.optim.row_sparse`.

>>> import torch
>>> table = torch.nn.Embedding(1000, 8, sparse=True)
>>> optimizer = Adagrad(table.parameters(), lr=0.01, second_moment="row")
>>> table(torch.tensor([3, 3, 7])).sum().backward()
>>> optimizer.step()
>>> optimizer.state[table.weight]["moment"].shape
torch.Size([1000, 1])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from blackout.ops.engine import RmsProp, Scalar
from blackout.optim.row_sparse import Group, RowSparseOptimizer, Touched


class Adagrad(RowSparseOptimizer):
    """Adagrad whose cost follows the rows touched, not the size of the table.

    ``second_moment``: a sum of squares for each weight of a table, or one for each row.
    """

    row_clocks = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: Scalar = 0.01,
        *,
        damping: float | None = None,
        by_width: bool = True,
        second_moment: Literal["full", "row"] = "full",
        weight_decay: float = 0.0,
        clip: float = 0.0,
        seed: int = 0,
        capturable: bool = False,
        impl: str = "auto",
    ) -> None:
        defaults = {
            "lr": lr,
            "damping": damping,
            "by_width": by_width,
            "second_moment": second_moment,
            "weight_decay": weight_decay,
            "clip": clip,
            "seed": seed,
            "capturable": capturable,
        }
        super().__init__(params, defaults, impl)

    def _beta(self, group: Group) -> float:
        return 0.0  # a new g² counts in full, and so do the old ones

    def _change(self, touched: Touched, state: dict[str, Any], update: RmsProp) -> None:
        engine, p, gradient = touched.engine, touched.parameter, touched.gradient
        change = engine.rmsprop_dense if touched.rows is None else engine.rmsprop_rows
        change(p, state["moment"], gradient, 1.0, update)
