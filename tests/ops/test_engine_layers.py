"""Layers, cells and optimiser on every engine: the same samples, losses, gradients and weights."""

import pytest
import torch
from torch import Tensor

from blackout.config import Config
from blackout.models import build_model
from blackout.models.cells import SimpleLayer
from blackout.optim import RMSProp
from blackout.output import NCE, BlackOut, Full, Sampled


def layers(**options):
    common = {"counts": torch.arange(1, 61), "seed": 3, **options}
    return [
        BlackOut(12, 60, 9, **common),
        BlackOut(12, 60, 9, negatives="nce", **common),
        Sampled(12, 60, 9, **common),
        NCE(12, 60, 9, log_z="learned", **common),
        Full(12, 60, bias=options.get("bias", False), impl=options["impl"]),
    ]


@pytest.mark.parametrize("sharing", ["step", "block", "word"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_whole_layers_give_the_same_samples_losses_and_gradients(sharing, bias, sparse):
    options = {"sharing": sharing, "bias": bias, "always_sample": (1, 5), "sparse": sparse}
    generator = torch.Generator().manual_seed(0)
    hidden, target = (
        torch.randn(4, 5, 12, generator=generator),
        torch.randint(60, (4, 5), generator=generator),
    )
    for ours, theirs in zip(
        layers(impl="native", **options), layers(impl="reference", **options), strict=True
    ):
        theirs.load_state_dict(ours.state_dict())
        losses, gradients = [], []
        for layer in (ours, theirs):
            leaf = hidden.clone().requires_grad_()
            loss = layer(leaf, target).loss
            loss.backward()
            losses.append(loss.detach())
            gradients.append([leaf.grad, *(p.grad.to_dense() for p in layer.parameters())])
            assert layer.weight.grad.is_sparse == (sparse and not isinstance(layer, Full))
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
        for got, want in zip(*gradients, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-7)
        ours.eval()
        theirs.eval()
        torch.testing.assert_close(
            ours(hidden, target).output, theirs(hidden, target).output, rtol=1e-5, atol=1e-5
        )


def train(config: Config, impl: str, blocks: int = 6) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(9)
    model = build_model(config, torch.arange(1, 81), impl=impl)
    # enough damping that a gradient of rounding errors does not make a full step
    optimizer = RMSProp(model.parameters(), lr=0.01, damping=1e-2, clip=1.0, impl=impl)
    state = model.initial_state(4)
    for _ in range(blocks):
        words = torch.randint(80, (7, 4), generator=generator)
        hidden, state = model(words[:-1], state)
        optimizer.zero_grad()
        model.output(hidden, words[1:]).loss.backward()
        optimizer.step()
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("cell", ["sigmoid", "tanh", "relu", "lstm", "gru"])
@pytest.mark.parametrize("loss", ["blackout", "nce", "sampled", "full"])
def test_training_gives_the_same_weights(cell, loss):
    config = Config.from_dict(
        {"model": {"cell": cell, "hidden": 10, "layers": 2}, "loss": {"loss": loss, "samples": 6}}
    )
    native, plain = train(config, "native"), train(config, "reference")
    for name, value in native.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-4, atol=1e-5)


def test_training_is_deterministic_for_each_number_of_threads(threads):
    config = Config.from_dict(
        {
            "model": {"hidden": 64, "storage": "bf16"},
            "loss": {"samples": 300},
            "run": {"precision": "bf16"},
        }
    )
    first, second = train(config, "native"), train(config, "native")
    for name, value in first.items():
        assert torch.equal(value, second[name])
        assert value.dtype == (torch.bfloat16 if "layers" not in name else torch.float32)


def test_row_gradients_may_stay_in_bf16_where_torch_allows_it():
    layer = BlackOut(4, 30, 5, precision="bf16")
    layer.table.keep_product_gradients()
    if not hasattr(layer.weight, "grad_dtype"):
        pytest.skip("this PyTorch has gradients of the parameter's type only")
    layer(torch.randn(6, 4), torch.randint(30, (6,))).loss.backward()
    assert layer.weight.grad.dtype == torch.bfloat16
    before = layer.weight.detach().clone()
    RMSProp(layer.parameters(), lr=0.01, clip=1.0).step()
    assert layer.weight.dtype == torch.float32
    assert not torch.equal(layer.weight, before)


def test_gradients_of_two_blocks_add_up():
    """Buffers are used again, but never while a gradient still lives in one."""
    layer = BlackOut(300, 500, 100, seed=1)
    generator = torch.Generator().manual_seed(3)
    blocks = [
        (
            torch.randn(3, 64, 300, generator=generator),
            torch.randint(500, (3, 64), generator=generator),
        )
        for _ in range(2)
    ]
    total = torch.zeros(500, 300)
    for hidden, target in blocks:
        layer.weight.grad = None
        layer(hidden, target).loss.backward()
        total += layer.weight.grad.to_dense()
    layer.weight.grad = None
    layer.step.zero_()
    for hidden, target in blocks:
        layer(hidden, target).loss.backward()
    torch.testing.assert_close(layer.weight.grad.to_dense(), total)


def test_a_table_changed_between_forward_and_backward_is_noticed():
    layer = BlackOut(4, 30, 5)
    loss = layer(torch.randn(6, 4), torch.randint(30, (6,))).loss
    with torch.no_grad():
        layer.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_simple_layer_takes_its_precision():
    layer = SimpleLayer("tanh", 0, 16, False, "bf16", "native")
    layer.reset_parameters(0.5)
    inputs, state = torch.randn(5, 3, 16), torch.zeros(1, 3, 16)
    half, _ = layer(inputs, state, None)
    layer.precision = "fp32"
    full, _ = layer(inputs, state, None)
    assert not torch.equal(half, full)
    torch.testing.assert_close(half, full, rtol=2e-2, atol=2e-2)
