"""What the tests of the optimisers share."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


def row_gradient(
    vocab: int, size: int, n: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Tensor:
    """An uncoalesced row-sparse gradient with repeated rows, mostly of frequent words."""
    rows = (torch.rand(n, generator=generator) ** 4 * vocab).long()
    values = torch.randn(n, size, generator=generator, dtype=dtype)
    return torch.sparse_coo_tensor(rows[None], values, (vocab, size), check_invariants=True)


def trained(
    make: Callable[[nn.Parameter], torch.optim.Optimizer], steps: int = 100, dense: bool = False
) -> Tensor:
    """A table after row-sparse gradients, or after the same made dense."""
    generator = torch.Generator().manual_seed(5)
    p = nn.Parameter(torch.ones(40, 3, dtype=torch.float64))
    optimizer = make(p)
    for _ in range(steps):
        gradient = row_gradient(40, 3, 6, generator)
        p.grad = gradient.to_dense() if dense else gradient
        optimizer.step()
    return p.detach()


@pytest.fixture(name="row_gradient")
def row_gradient_maker():
    return row_gradient


@pytest.fixture(name="trained")
def trained_table():
    return trained
