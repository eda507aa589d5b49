"""Adagrad: PyTorch's, row-sparse equal to dense, one moment a row."""

import pytest
import torch
from torch import nn

from blackout import Adagrad


@pytest.mark.parametrize("initial", [0.0, 0.1])
def test_it_is_pytorch_s(trained, initial):
    """Damping is the initial value of PyTorch's accumulator."""
    peer = trained(
        lambda p: torch.optim.Adagrad([p], lr=0.1, initial_accumulator_value=initial, eps=1e-300)
    )
    for dense in (False, True):
        ours = trained(lambda p: Adagrad([p], lr=0.1, damping=initial, by_width=False), dense=dense)
        torch.testing.assert_close(ours, peer, rtol=1e-12, atol=1e-12)


def test_one_moment_a_row(trained):
    """v is the sum over steps of the mean of g² over the row; rows with one g behave as full."""
    p = nn.Parameter(torch.zeros(4, 2))
    optimizer = Adagrad([p], lr=1.0, damping=0.0, second_moment="row", by_width=False)
    for scale in (1.0, 2.0):
        p.grad = torch.sparse_coo_tensor([[2]], [[3.0 * scale, scale]], (4, 2)).coalesce()
        optimizer.step()
    moment = optimizer.state[p]["moment"]
    assert moment.flatten().tolist() == [0.0, 0.0, 25.0, 0.0]
    want = -torch.tensor([3.0, 1.0]) * (1 / 5**0.5 + 2 / 5)
    torch.testing.assert_close(p.detach()[2], want)
    full = trained(lambda p: Adagrad([p], lr=0.1))
    row = trained(lambda p: Adagrad([p], lr=0.1, second_moment="row"))
    assert (full - row).abs().max() > 1e-3


def test_no_clocks_are_kept():
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    optimizer = Adagrad(table.parameters(), damping=0.0)
    optimizer.step()
    assert set(optimizer.state[table.weight]) == {"step", "moment"}
