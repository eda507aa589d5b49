"""The whole native step over a tree is the composed one, for every option that reaches it."""

import numpy as np
import pytest
import torch

from blackout.config import Config
from blackout.models import build_model
from blackout.ops.cpu.step import WholeStep
from blackout.text.streams import Block
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, ComposedStep, make_step

VOCAB, STEPS, STREAMS = 70, 5, 6
CASES = [
    {},
    {"loss": {"tree_arity": 5}},
    {"loss": {"loss": "classes"}},
    {"model": {"bias": True, "cell": "gru", "layers": 2}},
    {"model": {"storage": "bf16"}},
    {"run": {"precision": "bf16"}, "optim": {"second_moment": "row"}},
    {"optim": {"decay": "paper", "clip": 0.0}},
    {"model": {"context": "stream", "dropout": 0.3}},
]


def blocks(count):
    """Words, sentence ends among them; streams that are over in the last block."""
    rng = np.random.default_rng(1)
    made = []
    for i in range(count):
        words = rng.integers(VOCAB, size=(STEPS + 1, STREAMS)) * (
            rng.random((STEPS + 1, STREAMS)) > 0.2
        )
        mask = np.ones((STEPS, STREAMS), bool)
        if i == count - 1:
            mask[2:, 1:] = False
        inputs, targets = (np.ascontiguousarray(part) for part in (words[:-1], words[1:]))
        made.append(Block(inputs, targets, mask, int(mask.sum())))
    return made


def trained(settings, whole, threads):
    torch.set_num_threads(threads)
    config = Config.from_dict(settings)
    counts = np.arange(VOCAB, 0, -1) ** 2
    model = build_model(config, counts).train()
    optimizer = build_optimizer(config, model, counts)
    shape = BlockShape(STEPS, STREAMS)
    step = make_step(model, optimizer, shape) if whole else ComposedStep(model, optimizer, shape)
    assert isinstance(step, WholeStep) == whole
    torch.manual_seed(7)
    for block in blocks(6):
        step.train(block)
    return model.state_dict(), step.results(), step.state.layers


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole_and_composed(case):
    settings = {
        "model": {"hidden": 20, **case.get("model", {})},
        "loss": {"loss": "hierarchical", **case.get("loss", {})},
        "optim": case.get("optim", {}),
        "run": {"batch": STREAMS, "bptt": STEPS, **case.get("run", {})},
    }
    before = torch.get_num_threads()
    try:
        (ours, results, state), (theirs, others, other) = (
            trained(settings, whole, 1) for whole in (True, False)
        )
        again, repeated, _ = trained(settings, True, 2)
    finally:
        torch.set_num_threads(before)
    half = "bf16" in str(case)
    close = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-4, "atol": 1e-5}
    for one, two in zip(results, others, strict=True):
        assert one.loss == pytest.approx(two.loss, rel=2e-2 if half else 1e-5)
        assert one.norm == pytest.approx(two.norm, rel=5e-2 if half else 1e-4)
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], **close, msg=name)
        assert torch.equal(value, again[name]), f"{name}: threads"
    assert results == repeated
    torch.testing.assert_close(state, other, **close)
