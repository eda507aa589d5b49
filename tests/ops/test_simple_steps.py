"""A step as one kernel is the product and the two kernels that it stands for."""

import importlib.util

import pytest
import torch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def recurrent():
    from blackout.ops.dispatch import triton_engine

    triton_engine()
    from blackout.ops.triton import recurrent as found

    return found


@pytest.mark.parametrize("cell", ["sigmoid", "tanh", "relu"])
@pytest.mark.parametrize("looks_up", [False, True])
@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("size", [37, 48])
def test_triton_step_is_what_it_stands_for(recurrent, monkeypatch, cell, looks_up, forgets, size):
    from blackout.ops.triton.simple_steps import Tile

    steps, streams, length = 3, 19, 11
    generator = torch.Generator().manual_seed(1)

    def numbers(*shape):
        return torch.randn(*shape, generator=generator).to(DEVICE)

    def words():
        return torch.randint(length, (steps, streams), generator=generator).to(DEVICE)

    inputs = numbers(length if looks_up else steps * streams, size)
    if not looks_up:
        inputs = inputs.view(steps, streams, size)
    state, matrix = numbers(1, streams, size), numbers(size, size) / 6
    looked_up = words() if looks_up else None
    keep = (numbers(steps, streams) > 0).float() if forgets else None
    grad = numbers(steps, streams, size)
    targets = recurrent.Targets(words(), numbers(length, size), numbers(steps, streams))
    found = []
    for tile in (None, Tile(16, 16, 16, 1, 4)):
        monkeypatch.setattr(recurrent, "tile_of", lambda streams, matrix, tile=tile: tile)
        forward = recurrent.forward(
            cell, inputs, state, matrix, None, keep, torch.float32, looked_up
        )
        gates, operands = forward.saved.gates, forward.saved.operands
        backward = recurrent.backward(cell, forward.saved, grad, torch.float32)
        more = recurrent.backward(cell, forward.saved, grad, torch.float32, targets)
        found.append((forward.outputs, gates, operands, backward.deltas, more.deltas))
    for two, one in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
