"""The training step: what a block's loss is, and that every kind of step means the same."""

import itertools
import math

import numpy as np
import pytest
import torch

from blackout.models.saved import new_model
from blackout.text.streams import Block, Streams
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, ComposedStep, make_step


def prepare(lab, **settings):
    """A model, its optimiser, and the first blocks of the text."""
    config = lab.config(**settings)
    run = config.run
    model = new_model(config, lab.data.vocab).train()
    optimizer = build_optimizer(config, model, lab.data.vocab.counts)
    streams = Streams(lab.data.shard("train"), run.batch, run.bptt, shuffle=False, seed=1, epoch=0)
    return model, optimizer, BlockShape(run.bptt, run.batch), streams


def test_a_word_weighs_the_same_in_a_nearly_empty_block(lab, monkeypatch):
    """The gradient of one word among padding is a B·T-th of its own, not all of it."""
    model, optimizer, shape, streams = prepare(lab, loss="full")
    gradients = {}
    monkeypatch.setattr(
        optimizer,
        "step",
        lambda: gradients.update(
            {name: p.grad.to_dense().clone() for name, p in model.named_parameters()}
        ),
    )
    block = next(streams)
    mask = np.zeros_like(block.mask)
    mask[0, 0] = True
    step = make_step(model, optimizer, shape)
    step.train(Block(block.inputs, block.targets, mask, 1))
    (result,) = step.results()

    hidden, _ = model(torch.from_numpy(block.inputs), model.initial_state(shape.streams))
    word = model.output.objective(hidden, torch.from_numpy(block.targets))[0, 0]
    model.zero_grad()
    loss = -word / mask.size
    loss.backward()
    assert result.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad.to_dense(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss": "nce", "log_z": "learned", "bias": True, "cell": "lstm"},
        {"loss": "sampled", "cell": "gru", "layers": 2},
        {"negatives": "nce", "cell": "tanh", "context": "stream", "second_moment": "row"},
        {"cell": "relu", "decay": "paper"},
        {"rates": "same", "lr": 0.01, "correct_bias": False, "schedule": "validation"},
        {"loss": "sampled", "proposal": "batch", "context": "stream", "cell": "gru"},
        {"loss": "full", "layers": 2, "projection": 3, "clip": 0.0},
    ],
    ids=str,
)
def test_every_step_means_the_same(lab, settings):
    """Whatever an engine provides is the composed step, faster: also after 300 blocks.

    With enough damping that rounding errors are not blown up to full steps, as the tiny blocks of
    the lab do otherwise: two composed runs would go apart as well.
    """
    ways = []
    for make in (make_step, ComposedStep):
        model, optimizer, shape, streams = prepare(lab, **{"damping": 1e-3, **settings})
        step = make(model, optimizer, shape)
        for block in itertools.islice(itertools.cycle(list(streams)), 300):
            step.train(block)
        ways.append((model, step.state, step.results()))
    (ours, our_state, our_results), (theirs, their_state, their_results) = ways
    assert len(our_results) == len(their_results) == 300
    for got, want in zip(our_results, their_results, strict=True):
        assert got.loss == pytest.approx(want.loss, rel=1e-4)
        assert got.norm == pytest.approx(want.norm, rel=1e-3)
    pairs = zip(ours.named_parameters(), theirs.parameters(), strict=True)
    for name, p, q in [
        ("state", our_state.layers, their_state.layers),
        *((name, p.detach(), q.detach()) for (name, p), q in pairs),
    ]:
        assert float((p - q).norm()) <= 1e-4 * float(q.norm()), name


def test_results_are_read_when_asked_for(lab):
    model, optimizer, shape, streams = prepare(lab)
    step = make_step(model, optimizer, shape)
    assert step.results() == []
    for block, _ in zip(streams, range(3), strict=False):
        step.train(block)
    results = step.results()
    assert len(results) == 3
    assert all(math.isfinite(result.loss) and result.norm > 0 for result in results)
    assert step.results() == []
