"""The input table: word numbers in, rows out, with a row-sparse gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from blackout.ops.dispatch import operations
from blackout.ops.tables import empty_table, fill_uniform


class Embedding(nn.Module):
    """Like ``nn.Embedding(..., sparse=True)``, but the table may be bfloat16: rows come as float32.

    >>> table = Embedding(100, 8, storage=torch.bfloat16)
    >>> rows = table(torch.tensor([[3, 5, 3]]))
    >>> rows.sum().backward()
    >>> rows.dtype, table.weight.grad.is_sparse
    (torch.float32, True)
    """

    def __init__(
        self,
        n_words: int,
        size: int,
        *,
        init_range: float = 0.08,
        storage: torch.dtype = torch.float32,
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.impl = impl
        self.init_range = init_range
        self.weight = nn.Parameter(empty_table(n_words, size, dtype=storage))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        fill_uniform(self.weight, self.init_range)

    def forward(self, words: Tensor) -> Tensor:
        rows: Tensor = _Lookup.apply(self.weight, words, self.impl)
        return rows


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, words: Tensor, impl: str) -> Tensor:
        ctx.save_for_backward(words)
        ctx.shape, ctx.dtype = weight.shape, weight.dtype
        work = torch.promote_types(weight.dtype, torch.float32)
        rows: Tensor = operations(impl, weight.device, weight.dtype).lookup(weight, words, work)
        return rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (words,) = ctx.saved_tensors
        values = grad.reshape(-1, ctx.shape[1]).to(ctx.dtype)
        rows = words.reshape(1, -1)
        gradient = torch.sparse_coo_tensor(rows, values, ctx.shape, check_invariants=False)
        return gradient, None, None
