"""The step that a GPU runs by itself: the same weights as the composed step, in any order of calls.

On a machine without a GPU the same code runs in Triton's interpreter, without a graph.
"""

import importlib.util

import numpy as np
import pytest
import torch

from blackout.config import Config
from blackout.models import build_model
from blackout.ops.dispatch import triton_engine
from blackout.tables import tables_on
from blackout.text.streams import Block
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, ComposedStep, make_step

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPE = BlockShape(3, 2)


def settings(**changes):
    """A small run; ``changes`` by section."""
    sections = {
        "model": {"hidden": 5, "context": "sentence"},
        "loss": {"samples": 6},
        # enough damping that a gradient of rounding errors does not make a full step
        "optim": {"lr": 0.05, "damping": 1e-3, "clip": 0.3},
        "run": {"batch": SHAPE.streams, "bptt": SHAPE.steps},
    }
    for section, values in changes.items():
        sections[section] |= values
    return Config.from_dict(sections)


def blocks(vocab, count):
    """Random blocks with sentence ends; the last one lacks some words."""
    words = np.random.default_rng(1).integers(vocab, size=(count, SHAPE.steps + 1, SHAPE.streams))
    words[:, 1, 0] = 0
    masks = np.ones((count, SHAPE.steps, SHAPE.streams), bool)
    masks[-1, 1:, 1] = False
    return [
        Block(some[:-1], some[1:], mask, int(mask.sum()))
        for some, mask in zip(words, masks, strict=True)
    ]


def made(config, vocab, impl):
    counts = np.arange(vocab, 0, -1)
    device = DEVICE if impl == "triton" else torch.device("cpu")
    with tables_on(device):
        model = build_model(config, counts, impl=impl).to(device)
    optimizer = build_optimizer(config, model, counts)
    optimizer.impl = impl
    return model.train(), optimizer


def weights(model, optimizer):
    found = {name: p.detach().float().cpu() for name, p in model.named_parameters()}
    for number, p in enumerate(model.parameters()):
        state = optimizer.state[p]
        found |= {f"{number} {name}": value.float().cpu() for name, value in state.items()}
    return found


CASES = {
    "sigmoid": {},
    "many samples, merged": {"loss": {"samples": 100}},
    "one sample": {"loss": {"samples": 1}},
    "three samples, copies removed": {"loss": {"samples": 3, "collisions": "remove"}},
    "no clipping, the state carried on": {"optim": {"clip": 0.0}, "model": {"context": "stream"}},
    "two tanh layers, sampled": {
        "model": {"cell": "tanh", "layers": 2},
        "loss": {"loss": "sampled", "samples": 100},
    },
    "relu, the paper's decay": {"model": {"cell": "relu"}, "optim": {"decay": "paper"}},
    "lstm, nce, one set a block": {
        "model": {"cell": "lstm"},
        "loss": {"loss": "nce", "sharing": "block"},
    },
    "gru, copies removed": {"model": {"cell": "gru"}, "loss": {"collisions": "remove"}},
    "row moments, no decay": {"optim": {"second_moment": "row", "decay": "none"}},
}


@pytest.mark.parametrize("case", CASES)
def test_it_gives_the_weights_of_the_composed_step(case):
    config, vocab = settings(**CASES[case]), 20
    model, optimizer = made(config, vocab, "triton")
    plain, plain_optimizer = made(config, vocab, "reference")
    plain.load_state_dict(model.state_dict())
    step = make_step(model, optimizer, SHAPE)
    composed = ComposedStep(plain, plain_optimizer, SHAPE)
    assert type(step).__name__ == "GraphStep"
    for block in blocks(vocab, 3):
        step.train(block)
        composed.train(block)
    for got, want in zip(step.results(), composed.results(), strict=True):
        assert got.loss == pytest.approx(want.loss, rel=2e-5)
        assert got.norm == pytest.approx(want.norm, rel=2e-4)
    wanted = weights(plain, plain_optimizer)
    for name, value in weights(model, optimizer).items():
        torch.testing.assert_close(value, wanted[name], rtol=2e-4, atol=2e-5, msg=name)
    torch.testing.assert_close(step.state.layers.cpu(), composed.state.layers, rtol=1e-4, atol=1e-5)
    assert int(model.output.step) == int(plain.output.step) == 3


@pytest.mark.parametrize(
    "model",
    [
        {"cell": "sigmoid"},
        {"cell": "tanh", "layers": 2, "context": "stream"},
        {"cell": "lstm", "layers": 2},
        {"cell": "gru"},
    ],
    ids=str,
)
def test_it_drops_what_the_composed_step_drops(model):
    config, vocab = settings(model=model | {"dropout": 0.4}), 20
    model, optimizer = made(config, vocab, "triton")
    plain, plain_optimizer = made(config, vocab, "reference")
    plain.load_state_dict(model.state_dict())
    step, composed = make_step(model, optimizer, SHAPE), ComposedStep(plain, plain_optimizer, SHAPE)
    assert type(step).__name__ == "GraphStep"
    states = []
    for number, block in enumerate(blocks(vocab, 3)):
        for each in (step, composed):
            torch.manual_seed(number)  # both draw their keys from PyTorch's generator
            each.train(block)
            states.append(torch.get_rng_state())
    assert all(torch.equal(*pair) for pair in zip(states[::2], states[1::2], strict=True))
    for got, want in zip(step.results(), composed.results(), strict=True):
        assert got.loss == pytest.approx(want.loss, rel=2e-5)
        assert got.norm == pytest.approx(want.norm, rel=2e-4)
    wanted = weights(plain, plain_optimizer)
    for name, value in weights(model, optimizer).items():
        torch.testing.assert_close(value, wanted[name], rtol=2e-4, atol=2e-5, msg=name)
    torch.testing.assert_close(step.state.layers.cpu(), composed.state.layers, rtol=1e-4, atol=1e-5)


def test_products_and_tables_in_bfloat16():
    config = settings(model={"storage": "bf16"}, run={"precision": "bf16"})
    model, optimizer = made(config, 20, "triton")
    plain, plain_optimizer = made(config, 20, "reference")
    plain.load_state_dict(model.state_dict())
    step, composed = make_step(model, optimizer, SHAPE), ComposedStep(plain, plain_optimizer, SHAPE)
    for block in blocks(20, 2):
        step.train(block)
        composed.train(block)
    assert model.embedding.weight.dtype == torch.bfloat16
    wanted = weights(plain, plain_optimizer)
    for name, value in weights(model, optimizer).items():
        scale = float(wanted[name].abs().max()) + 1e-6
        torch.testing.assert_close(value, wanted[name], rtol=0.1, atol=0.05 * scale, msg=name)


def test_a_step_goes_on_with_weights_and_states_that_were_put_in_place():
    """As a checkpoint does: all of the optimiser's arrays are new ones, the weights filled."""
    config = settings()
    first, first_optimizer = made(config, 20, "triton")
    step = make_step(first, first_optimizer, SHAPE)
    given = blocks(20, 4)
    for block in given[:2]:
        step.train(block)
    second, second_optimizer = made(config, 20, "triton")
    resumed = make_step(second, second_optimizer, SHAPE)
    resumed.train(given[3])  # something else happened before
    second.load_state_dict(first.state_dict())
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    resumed.state.layers.copy_(step.state.layers)
    for block in given[2:]:
        step.train(block)
        resumed.train(block)
    wanted = weights(first, first_optimizer)
    for name, value in weights(second, second_optimizer).items():
        assert torch.equal(value, wanted[name]), name
    assert step.results()[2:] == resumed.results()[1:]


def test_results_wait_until_they_are_asked_for():
    config = settings()
    model, optimizer = made(config, 20, "triton")
    step = make_step(model, optimizer, SHAPE)
    assert step.results() == []
    for block in blocks(20, 2):
        step.train(block)
    found = step.results()
    assert len(found) == 2
    assert optimizer.last_norm == found[-1].norm > 0
    assert step.results() == []


def test_a_loss_that_is_no_number_is_seen():
    config = settings()
    model, optimizer = made(config, 20, "triton")
    with torch.no_grad():
        model.layers[0].plan().recurrent.fill_(float("nan"))
    step = make_step(model, optimizer, SHAPE)
    for block in blocks(20, 2):
        step.train(block)
    assert all(np.isnan(result.loss) for result in step.results())


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"projection": 3}},
        {"model": {"bias": True}},
        {"loss": {"loss": "full"}},
        {"loss": {"sharing": "word"}},
        {"loss": {"proposal": "batch"}},
    ],
)
def test_what_it_is_not_made_for_is_composed(changes):
    model, optimizer = made(settings(**changes), 20, "triton")
    assert triton_engine().whole_step(model, optimizer, SHAPE) is None
    assert isinstance(make_step(model, optimizer, SHAPE), ComposedStep)
