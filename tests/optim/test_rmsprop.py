"""RMSProp: the formula, row-sparse against dense, the decays, clipping."""

import pytest
import torch
from torch import nn

from blackout.errors import UserError
from blackout.optim import RMSProp, clip_grad_norm_, global_norm


@pytest.fixture
def run(trained):
    """A table after hundreds of steps with this decay."""

    def with_decay(decay: str, dense: bool = False, **options) -> torch.Tensor:
        rate = torch.linspace(0.9, 0.01, 40, dtype=torch.float64)
        options |= {"lr": 0.01, "beta": 0.97, "damping": 1e-6, "decay": decay, "by_width": False}
        group = {"update_rate": rate}
        return trained(lambda p: RMSProp([{"params": [p], **group}], **options), 300, dense)

    return with_decay


def test_the_other_decays_are_other_optimisers(run):
    exact = run("exact")
    for decay in ("paper", "none"):
        assert (run(decay) - exact).abs().max() > 1e-3


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_exact_decay_equals_dense_gradients_over_hundreds_of_steps(run, clip):
    exact, dense = run("exact", clip=clip), run("exact", clip=clip, dense=True)
    torch.testing.assert_close(exact, dense, rtol=1e-11, atol=1e-12)


def test_dense_parameters_follow_the_formula():
    generator = torch.Generator().manual_seed(0)
    p = nn.Parameter(torch.randn(7, 5, generator=generator, dtype=torch.float64))
    weight, moment = p.detach().clone(), torch.zeros(7, 5, dtype=torch.float64)
    optimizer = RMSProp([p], lr=0.01, beta=0.9, damping=1e-3, correct_bias=False, by_width=False)
    for _ in range(50):
        g = p.grad = torch.randn(7, 5, generator=generator, dtype=torch.float64)
        optimizer.step()
        moment = 0.9 * moment + 0.1 * g**2
        weight -= 0.01 * g / (moment + 1e-3).sqrt()
    torch.testing.assert_close(p.detach(), weight, rtol=1e-12, atol=1e-12)


def test_without_damping_it_is_pytorch_s():
    generator = torch.Generator().manual_seed(0)
    ours = nn.Parameter(torch.randn(7, 5, generator=generator, dtype=torch.float64))
    peer = nn.Parameter(ours.detach().clone())
    our_optimizer = RMSProp(
        [ours], lr=0.01, beta=0.9, damping=0.0, correct_bias=False, by_width=False
    )
    their_optimizer = torch.optim.RMSprop([peer], lr=0.01, alpha=0.9, eps=0.0)
    for _ in range(50):
        ours.grad = torch.randn(7, 5, generator=generator, dtype=torch.float64)
        peer.grad = ours.grad.clone()
        our_optimizer.step()
        their_optimizer.step()
    torch.testing.assert_close(ours, peer, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_with_its_bias_corrected_it_is_adam_without_momentum(sparse):
    generator = torch.Generator().manual_seed(0)
    ours = nn.Parameter(torch.randn(7, 5, generator=generator, dtype=torch.float64))
    peer = nn.Parameter(ours.detach().clone())
    our_optimizer = RMSProp([ours], lr=0.01, beta=0.9, damping=0.0, by_width=False)
    their_optimizer = torch.optim.Adam([peer], lr=0.01, betas=(0.0, 0.9), eps=0.0)
    for _ in range(50):
        peer.grad = torch.randn(7, 5, generator=generator, dtype=torch.float64)
        ours.grad = peer.grad.to_sparse(1) if sparse else peer.grad.clone()
        our_optimizer.step()
        their_optimizer.step()
    torch.testing.assert_close(ours, peer, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("width", [16, 256, 2048])
def test_a_step_is_smaller_where_more_inputs_add_up(width):
    matrix, bias = (nn.Parameter(torch.zeros(*s)) for s in ((3, width), (3,)))
    optimizer = RMSProp([matrix, bias], lr=0.01, damping=0.0)
    matrix.grad, bias.grad = torch.ones(3, width), torch.ones(3)
    optimizer.step()
    torch.testing.assert_close(-matrix, torch.full((3, width), 0.01 * (256 / width) ** (2 / 3)))
    torch.testing.assert_close(-bias, torch.full((3,), 0.01))


@pytest.mark.parametrize("sparse", [False, True])
def test_by_default_the_scale_of_the_loss_does_not_matter(row_gradient, sparse):
    found = []
    for scale in (1.0, 1e-4):
        generator = torch.Generator().manual_seed(0)
        p = nn.Parameter(torch.zeros(40, 3, dtype=torch.float64))
        optimizer = RMSProp([p], lr=0.01, beta=0.9)
        for _ in range(20):
            gradient = row_gradient(40, 3, 6, generator) * scale
            p.grad = gradient if sparse else gradient.to_dense()
            optimizer.step()
        found.append(p.detach())
    torch.testing.assert_close(*found, rtol=1e-9, atol=0)
    assert found[0].abs().max() > 0.01


@pytest.mark.parametrize("decay", ["exact", "paper", "none"])
def test_one_row_by_hand(decay):
    """A row touched at steps 1 and 4, update rate 1/2."""
    p = nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))
    rate = torch.tensor([0.5, 0.5], dtype=torch.float64)
    groups = [{"params": [p], "update_rate": rate}]
    optimizer = RMSProp(
        groups, lr=0.1, beta=0.5, damping=0.01, decay=decay, correct_bias=False, by_width=False
    )
    for row, g in [(0, 2.0), (1, 1.0), (1, 1.0), (0, 3.0)]:
        p.grad = torch.sparse_coo_tensor(
            [[row]], [[g]], (2, 1), dtype=torch.float64, check_invariants=True
        )
        optimizer.step()
    first_aging, second_aging = {"exact": (0.5, 0.5**3), "paper": (0.25, 0.25), "none": (0.5, 0.5)}[
        decay
    ]
    v1 = first_aging * 0 + 0.5 * 4
    v2 = second_aging * v1 + 0.5 * 9
    expected = -0.1 * 2 / (v1 + 0.01) ** 0.5 - 0.1 * 3 / (v2 + 0.01) ** 0.5
    assert float(p.detach()[0, 0]) == pytest.approx(expected, rel=1e-12)


def test_clipping_is_global_over_sparse_and_dense():
    table = nn.Parameter(torch.zeros(10, 2, dtype=torch.float64))
    matrix = nn.Parameter(torch.zeros(3, 3, dtype=torch.float64))

    def set_gradients() -> None:
        table.grad = torch.sparse_coo_tensor(
            [[4, 4, 1]], [[1.0, 0.0], [2.0, 0.0], [0.0, 4.0]], (10, 2), dtype=torch.float64
        )
        matrix.grad = torch.full((3, 3), 4.0, dtype=torch.float64)

    set_gradients()
    norm = (3**2 + 4**2 + 9 * 4**2) ** 0.5  # the repeated row counts as its sum
    assert float(global_norm([table.grad, matrix.grad])) == pytest.approx(norm, rel=1e-14)
    assert float(clip_grad_norm_([table, matrix], 2.0)) == pytest.approx(norm, rel=1e-14)
    assert float(global_norm([table.grad, matrix.grad])) == pytest.approx(2.0, rel=1e-14)
    clipped_by_hand = [p.grad.to_dense().clone() for p in (table, matrix)]

    set_gradients()
    optimizer = RMSProp([table, matrix], lr=1.0, beta=0.0, damping=1e30, clip=2.0, by_width=False)
    optimizer.step()  # damping swamps the moment: the step is the clipped gradient / 1e15
    assert optimizer.last_norm == pytest.approx(norm, rel=1e-14)
    for p, g in zip((table, matrix), clipped_by_hand, strict=True):
        torch.testing.assert_close(p.detach() * -1e15, g, rtol=1e-9, atol=0)


def test_small_gradients_are_not_scaled_up():
    p = nn.Parameter(torch.zeros(2, 2))
    p.grad = torch.full((2, 2), 0.1)
    clip_grad_norm_([p], 5.0)
    assert torch.equal(p.grad, torch.full((2, 2), 0.1))


def test_a_table_may_change_between_sparse_and_dense_gradients(row_gradient):
    generator = torch.Generator().manual_seed(5)
    mixed = nn.Parameter(torch.ones(20, 2, dtype=torch.float64))
    dense = nn.Parameter(torch.ones(20, 2, dtype=torch.float64))
    mixed_optimizer, dense_optimizer = RMSProp([mixed], beta=0.9), RMSProp([dense], beta=0.9)
    for step in range(60):
        gradient = row_gradient(20, 2, 4, generator)
        mixed.grad = gradient if step // 10 % 2 else gradient.to_dense()
        dense.grad = gradient.to_dense()
        mixed_optimizer.step()
        dense_optimizer.step()
    torch.testing.assert_close(mixed, dense, rtol=1e-11, atol=1e-12)


def test_no_gradient_and_no_damping_is_no_movement():
    p = nn.Parameter(torch.ones(2, 2))
    p.grad = torch.zeros(2, 2)
    RMSProp([p], damping=0.0).step()
    assert torch.equal(p.detach(), torch.ones(2, 2))


def test_paper_decay_without_rates_is_refused():
    p = nn.Parameter(torch.zeros(2, 1))
    p.grad = torch.sparse_coo_tensor([[0]], [[1.0]], (2, 1))
    with pytest.raises(UserError, match="update_rate"):
        RMSProp([p], decay="paper").step()
