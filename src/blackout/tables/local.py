"""A table of word vectors: one row for each word, all of them here.

A table is looked up, has row-sparse gradients, knows which rows of the whole it holds, and fills
itself: its initial values are a pure function of seed, row and column, so that they are the same
on every device and for every division of a table. Both word tables of a model are such tables, and
biases are tables of one number a row.

>>> table = Table(100, 8, init_range=0.1, storage=torch.bfloat16)
>>> rows = table(torch.tensor([[3, 5, 3]]))
>>> rows.sum().backward()
>>> rows.dtype, table.weight.grad.is_sparse
(torch.float32, True)
"""

from __future__ import annotations

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from blackout.errors import UserError
from blackout.ops import autograd
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Engine
from blackout.tables.memory import empty_table


class Table(nn.Embedding):
    """``n_rows`` rows of ``size`` numbers, or of one number where ``size`` is None.

    It is an ``nn.Embedding`` so that those who ask PyTorch which parameters have sparse gradients
    (``DistributedDataParallel`` does) get the right answer.

    ``init_range``: weights start uniformly in ± this; 0 for zeros. ``storage``: the type of the
    numbers; looked-up rows of a bfloat16 table come as float32. ``sparse``: whether gradients are
    row-sparse. ``seed``: decides the initial values; None takes it from PyTorch's generator.
    """

    weight: nn.Parameter
    update_rate: Tensor | None = None
    """How often a block is expected to touch each row, for optimisers that want to know."""
    borrowed = False
    """Whether the weights are somebody else's, who gives them their initial values."""

    def __init__(
        self,
        n_rows: int,
        size: int | None,
        *,
        init_range: float,
        storage: torch.dtype = torch.float32,
        sparse: bool = True,
        impl: str = "auto",
        seed: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        nn.Module.__init__(self)
        shape = (n_rows,) if size is None else (n_rows, size)
        self.num_embeddings, self.embedding_dim = n_rows, 1 if size is None else size
        self.padding_idx = self.max_norm = None
        self.norm_type, self.scale_grad_by_freq, self.sparse = 2.0, False, sparse
        self.init_range, self.impl = init_range, impl
        self.weight = nn.Parameter(empty_table(*shape, dtype=storage, device=device))
        self.reset_parameters(seed)

    @classmethod
    def of(cls, embedding: nn.Embedding, n_rows: int, size: int, impl: str = "auto") -> Table:
        """The table of an embedding, which stays its owner and fills it: one parameter for both."""
        if isinstance(embedding, Table):
            table = embedding
        elif not isinstance(embedding, nn.Embedding):
            kind = type(embedding).__name__
            raise UserError(f"tied_to is a {kind}, must be an nn.Embedding, whose table it is")
        else:
            table = cls(n_rows, size, init_range=0.0, sparse=embedding.sparse, device="meta")
            table.weight, table.impl, table.borrowed = embedding.weight, impl, True  # type: ignore
        shape = len(table.weight) if table.owned is None else table.n_rows, *table.weight.shape[1:]
        if shape != (n_rows, size):
            raise UserError(f"tied_to has a table {shape}, the layer's is {(n_rows, size)}")
        return table

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, sparse={self.sparse}"

    @property
    def n_rows(self) -> int:
        """Rows of the whole table."""
        return self.num_embeddings

    @property
    def owned(self) -> Tensor | None:
        """The numbers of the rows that ``weight`` holds; None where these are all."""
        return None

    def reset_parameters(self, seed: int | None = None) -> None:
        """Gives all rows their initial values."""
        if seed is None:
            seed = int(torch.randint(2**63 - 1, (), device="cpu"))
        if self.weight.is_meta or self.borrowed:
            return
        with torch.no_grad():
            if self.init_range == 0:
                self.weight.zero_()
                return
            engine = engine_for(self.impl, self.weight.device, self.weight.dtype)
            engine.fill_uniform(self.weight, self.init_range, seed, self.owned)

    def forward(self, words: Tensor) -> Tensor:
        """Rows of these words, (..., size), float32 or wider."""
        return self.here(words)

    def here(self, rows: Tensor) -> Tensor:
        """Rows of ``weight`` by their place in it, (..., size), float32 or wider."""
        return autograd.lookup(self.weight, rows, self._engine(), self.row_gradient)

    def _engine(self) -> Engine:
        impl = self.impl if self.weight.ndim > 1 else "reference"  # numbers need no kernel
        return engine_for(impl, self.weight.device, self.weight.dtype)

    def of_owned(self, values: Tensor) -> Tensor:
        """Of values for each row of the whole table, those of the rows held here."""
        return values

    def row_gradient(self, rows: Tensor, values: Tensor) -> Tensor:
        """The gradient of ``weight`` whose row ``rows[i]`` has ``values[i]``; repeated rows add."""
        if self.sparse and not is_parametrized(self):  # those want to see all of it
            shape = self.weight.shape
            return torch.sparse_coo_tensor(rows[None], values, shape, check_invariants=False)
        return torch.zeros_like(self.weight).index_add_(0, rows, values.to(self.weight.dtype))

    def keep_product_gradients(self) -> None:
        """Leaves row gradients in the type that products in bf16 give them, at half the traffic.

        For optimisers that take a gradient of another type than its parameter, as ours does; where
        PyTorch is too old for such gradients, nothing changes.
        """
        if self.sparse and hasattr(self.weight, "grad_dtype"):
            self.weight.grad_dtype = None

    def gradient_dtype(self, product_dtype: torch.dtype) -> torch.dtype:
        """The type of row gradients that come out of products in ``product_dtype``."""
        if not self.weight.is_leaf:  # made of something else, by a parametrization
            return self.weight.dtype
        kept = getattr(self.weight, "grad_dtype", self.weight.dtype) is None
        return product_dtype if kept else self.weight.dtype

    @torch.no_grad()
    def set_row(self, row: int, values: ArrayLike) -> None:
        """Puts numbers into one row of the whole table."""
        self.weight[row] = torch.as_tensor(values)
