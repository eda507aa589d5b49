"""Tensors that do not lie in memory row by row: kernels, which go by addresses, must not care."""

import importlib.util

import pytest
import torch

import blackout
from blackout.ops import reference
from blackout.ops.dispatch import triton_engine

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def turned(matrix):
    """The same numbers, column by column."""
    return matrix.mT.contiguous().mT


def test_rows_of_a_gradient_with_gaps_between_them():
    pairs = torch.tensor([[1, 9], [2, 8], [3, 7], [1, 6]])
    values = torch.arange(16.0).view(4, 4)
    found = []
    for impl in ("reference", "triton"):
        weight = torch.nn.Parameter(torch.ones(12, 4, device=DEVICE))
        optimizer = blackout.RMSProp([weight], lr=0.1, damping=1e-3, impl=impl)
        rows = pairs.to(DEVICE)[:, :1].mT
        weight.grad = torch.sparse_coo_tensor(
            rows, values.to(DEVICE), (12, 4), check_invariants=False
        )
        optimizer.step()
        found.append(weight.detach())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("turn", ["table", "samples", "states", "target"])
def test_a_layer(turn):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 4, 8, generator=generator)
    target = torch.randint(30, (3, 4), generator=generator)
    samples = torch.randint(30, (3, 6), generator=generator)
    hidden = turned(hidden) if turn == "states" else hidden
    target = turned(target) if turn == "target" else target
    samples = turned(samples) if turn == "samples" else samples
    for given in (None, samples):
        found = []
        for impl in ("reference", "triton"):
            torch.manual_seed(1)
            layer = blackout.BlackOut(8, 30, 6, sharing="step")
            layer.impl = impl
            if turn == "table":
                layer.table.weight = torch.nn.Parameter(turned(layer.weight.detach()))
            layer = layer.to(DEVICE)
            states = hidden.to(DEVICE).requires_grad_()
            chosen = None if given is None else given.to(DEVICE)
            loss = layer(states, target.to(DEVICE), samples=chosen).loss
            grads = torch.autograd.grad(loss, [states, layer.weight])
            found.append((loss.detach(), *[grad.to_dense() for grad in grads]))
        for got, wanted in zip(*found, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_copies_of_samples():
    samples = turned(torch.tensor([[4, 1, 4, 0], [2, 2, 2, 3]])).to(DEVICE)
    for words, copies in (triton_engine().merge_copies(samples), reference.merge_copies(samples)):
        for group, drawn in enumerate(samples):
            counted = copies[group] > 0
            wanted = torch.unique(drawn, return_counts=True)
            order = words[group][counted].argsort()
            assert torch.equal(words[group][counted][order], wanted[0])
            assert torch.equal(copies[group][counted][order], wanted[1].float())
