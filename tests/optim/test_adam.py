"""Adam: PyTorch's dense ones and its lazy one; what exact ages mean for rows touched rarely."""

import pytest
import torch
from torch import nn

from blackout import Adam


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dense_it_is_pytorch_s_adam_w(weight_decay, dtype):
    generator = torch.Generator().manual_seed(0)
    ours = nn.Parameter(torch.randn(7, 5, generator=generator, dtype=dtype))
    peer = nn.Parameter(ours.detach().clone())
    tables = nn.Parameter(ours.detach().clone())  # all rows touched in every step
    options = {"lr": 0.01, "weight_decay": weight_decay}
    optimizers = [
        Adam([ours, tables], damping=0.0, by_width=False, **options),
        torch.optim.AdamW([peer], eps=0.0, **options),
    ]
    for _ in range(50):
        peer.grad = torch.randn(7, 5, generator=generator, dtype=dtype)
        ours.grad, tables.grad = peer.grad.clone(), peer.grad.to_sparse(1)
        for optimizer in optimizers:
            optimizer.step()
    tolerance = {"rtol": 1e-11, "atol": 1e-12} if dtype == torch.float64 else {}
    torch.testing.assert_close(ours, peer, **tolerance)
    torch.testing.assert_close(tables, peer, **tolerance)


def test_without_decay_of_untouched_rows_it_is_pytorch_s_sparse_adam(trained):
    ours = trained(lambda p: Adam([p], lr=0.1, decay="none", damping=0.0, by_width=False))
    peer = trained(lambda p: torch.optim.SparseAdam([p], lr=0.1, eps=1e-300))
    torch.testing.assert_close(ours, peer, rtol=1e-11, atol=1e-12)
    assert (trained(lambda p: Adam([p], lr=0.1, by_width=False)) - peer).abs().max() > 1e-3


def test_a_rare_row_moves_at_once_as_far_as_dense_adam_moves_it_later():
    """One gradient in step 500; a table beside it keeps the steps going."""
    lazy = nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))
    dense = nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))
    options = {"lr": 0.1, "betas": (0.9, 0.9999), "damping": 0.0, "by_width": False}
    optimizers = [Adam([lazy], **options), Adam([dense], **options)]
    moved_at_once = 0.0
    for step in range(1, 701):
        row = 1 if step == 500 else 0
        gradient = torch.sparse_coo_tensor([[row]], [[2.0]], (2, 1), check_invariants=True)
        lazy.grad, dense.grad = gradient.double(), gradient.double().to_dense()
        for optimizer in optimizers:
            optimizer.step()
        if step == 500:
            moved_at_once = float(lazy.detach()[1])
    assert float(lazy.detach()[1]) == moved_at_once
    # dense Adam's second moment and its correction change a little over those steps
    assert moved_at_once == pytest.approx(float(dense.detach()[1]), rel=0.02)
    torch.testing.assert_close(lazy.detach()[0], dense.detach()[0], rtol=0.02, atol=0)


def test_the_weights_of_a_mean_add_up_whenever_a_row_is_touched():
    """Equal gradients: the corrected mean is the gradient, the step lr g / |g|."""
    p = nn.Parameter(torch.zeros(2, 3, dtype=torch.float64))
    optimizer = Adam([p], lr=0.1, betas=(0.9, 0.9), damping=0.0, by_width=False)
    for step in range(1, 41):
        row = 1 if step in (7, 8, 30) else 0
        p.grad = torch.sparse_coo_tensor(
            [[row]], [[3.0] * 3], (2, 3), check_invariants=True
        ).double()
        optimizer.step()
        mean = optimizer.state[p]["mean"][row] / (1 - 0.9**step)
        torch.testing.assert_close(mean, torch.full((3,), 3.0, dtype=torch.float64))


def test_a_table_may_change_between_sparse_and_dense_gradients(row_gradient):
    generator = torch.Generator().manual_seed(5)
    mixed, sparse = (nn.Parameter(torch.ones(20, 2, dtype=torch.float64)) for _ in range(2))
    optimizers = [Adam([mixed], lr=0.1), Adam([sparse], lr=0.1)]
    for step in range(60):
        whole = torch.randn(20, 2, generator=generator, dtype=torch.float64)
        few = row_gradient(20, 2, 4, generator)
        dense_step = step // 10 % 2 == 0
        mixed.grad = whole if dense_step else few
        sparse.grad = whole.to_sparse(1) if dense_step else few
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(mixed, sparse, rtol=1e-11, atol=1e-12)
