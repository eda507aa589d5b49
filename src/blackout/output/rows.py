"""The table that a sampled loss reads: the layer's own, or the rows it names as a small one.

Where logits are not those of the table itself but of its rows made otherwise, such as divided by
their norms, the rows are looked up once, changed with autograd watching, and the engine is given
them as its table. Any engine will do, and gradients find their way back to the rows.

>>> rows, words = gathered(torch.tensor([[7, 3]]), torch.tensor([[3, 9, 9]]))
>>> rows, words[0], words[1]
(tensor([3, 7, 9]), tensor([[1, 0]]), tensor([[0, 2, 2]]))
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from blackout.ops.autograd import RowGradientMaker, SampledWords
from blackout.output.geometry import Geometry
from blackout.tables import Table


class SomeRows(NamedTuple):
    """Rows of a table by their place in what is given: the table itself, or the rows named."""

    weight: Tensor
    bias: Tensor | None
    target: Tensor
    samples: Tensor
    row_dtype: torch.dtype
    gradients: tuple[RowGradientMaker, RowGradientMaker | None]


def gathered_rows(
    table: Table,
    biases: Table | None,
    target: Tensor,
    samples: Tensor,
    geometry: Geometry,
    product_dtype: torch.dtype,
) -> SomeRows:
    """Rows ``target`` and ``samples`` of the part of a table that is here, as ``geometry`` has."""
    bias: Tensor | None = None if biases is None else biases.weight
    of_bias = None if biases is None else biases.row_gradient
    if not geometry.normalize:
        makers = (table.row_gradient, of_bias)
        dtype = table.gradient_dtype(product_dtype)
        return SomeRows(table.weight, bias, target, samples, dtype, makers)
    rows, (target, samples) = gathered(target, samples)
    weight = geometry.vectors(table.here(rows))
    bias = None if biases is None else biases.here(rows)
    makers = (partial(_dense, weight), None if bias is None else partial(_dense, bias))
    return SomeRows(weight, bias, target, samples, weight.dtype, makers)


class LookedAt(NamedTuple):
    """What a sampled loss reads, and the way of the gradients back into it."""

    weight: Tensor  # (V, h), or only the rows that are named
    bias: Tensor | None
    words: SampledWords
    row_dtype: torch.dtype
    gradients: tuple[RowGradientMaker, RowGradientMaker | None]


def whole_table(
    table: Table, biases: Table | None, words: SampledWords, product_dtype: torch.dtype
) -> LookedAt:
    """The table as it is."""
    return LookedAt(
        table.weight,
        None if biases is None else biases.weight,
        words,
        table.gradient_dtype(product_dtype),
        (table.row_gradient, None if biases is None else biases.row_gradient),
    )


def rows_of(
    table: Table, biases: Table | None, words: SampledWords, geometry: Geometry
) -> LookedAt:
    """The rows that words name, as ``geometry`` has them, as a table of their own."""
    rows, (target, samples) = gathered(words.target, words.samples)
    weight = geometry.vectors(table(rows))
    bias = None if biases is None else biases(rows)
    return LookedAt(
        weight,
        bias,
        words._replace(target=target, samples=samples),
        weight.dtype,
        (partial(_dense, weight), None if bias is None else partial(_dense, bias)),
    )


def gathered(*words: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The distinct words (U,), and the given ones as places among them."""
    flat = torch.cat([part.reshape(-1) for part in words])
    rows, places = flat.unique(return_inverse=True)
    parts = places.split([part.numel() for part in words])
    return rows, [part.view(like.shape) for part, like in zip(parts, words, strict=True)]


def _dense(table: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """The gradient of a small table whose row ``rows[i]`` has ``values[i]``; repeated rows add."""
    return torch.zeros_like(table).index_add_(0, rows, values.to(table.dtype))
