"""What only a real GPU can show: repetition bit for bit, graphs, compilation.

`make test-gpu` runs these together with the conformance suite of the engines; elsewhere they are
skipped.
"""

import copy

import numpy as np
import pytest
import torch

import blackout
from blackout.bench.words import draw_words, zipf_counts
from blackout.config import Config
from blackout.models import build_model
from blackout.ops.dispatch import engine_for, triton_missing
from blackout.proposals import UnigramProposal
from blackout.text.streams import Block
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, ComposedStep, make_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
GPU = torch.device("cuda")
VOCAB, STEPS, STREAMS = 64000, 20, 128


def config(**model):
    return Config.from_dict(
        {
            "model": {"hidden": 512, **model},
            "loss": {"samples": 500},
            "run": {"batch": STREAMS, "bptt": STEPS, "precision": "bf16"},
        }
    )


def blocks(count):
    words = draw_words(zipf_counts(VOCAB), (count, STEPS + 1, STREAMS), seed=1)
    mask = np.ones((STEPS, STREAMS), bool)
    return [Block(some[:-1], some[1:], mask, mask.size) for some in words]


def made(settings, composed=False):
    counts = zipf_counts(VOCAB)
    model = build_model(settings, counts).to(GPU).train()
    optimizer = build_optimizer(settings, model, counts)
    shape = BlockShape(STEPS, STREAMS)
    step = (ComposedStep if composed else make_step)(model, optimizer, shape)
    return model, optimizer, step


def numbers(model, optimizer):
    states = [value for p in model.parameters() for value in optimizer.state[p].values()]
    return [p.detach().clone() for p in model.parameters()] + [value.clone() for value in states]


def test_triton_computes_here():
    assert triton_missing(GPU) == ""
    assert engine_for("auto", GPU, torch.float32, torch.bfloat16).name == "triton"
    assert engine_for("auto", GPU, torch.float64).name == "reference"


@pytest.mark.parametrize(
    "model", [{}, {"cell": "lstm"}, {"storage": "bf16"}], ids=["sigmoid", "lstm", "bf16"]
)
def test_two_hundred_blocks_are_a_hundred_and_a_hundred(model):
    """Bit for bit: again from the beginning, and after a resumption in the middle."""
    settings, given = config(**model), blocks(200)
    first, optimizer, step = made(settings)
    for number, block in enumerate(given):
        if number == 100:
            half = copy.deepcopy((first.state_dict(), optimizer.state_dict(), step.state))
        step.train(block)
    whole = numbers(first, optimizer)
    losses = step.results()
    assert all(np.isfinite(result.loss) for result in losses)
    again, again_optimizer, again_step = made(settings)
    for block in given:
        again_step.train(block)
    assert again_step.results() == losses
    for one, other in zip(whole, numbers(again, again_optimizer), strict=True):
        assert torch.equal(one, other)
    resumed, resumed_optimizer, resumed_step = made(settings)
    resumed.load_state_dict(half[0])
    resumed_optimizer.load_state_dict(half[1])
    resumed_step.state = half[2]
    for block in given[100:]:
        resumed_step.train(block)
    for one, other in zip(whole, numbers(resumed, resumed_optimizer), strict=True):
        assert torch.equal(one, other)


def test_the_graph_trains_like_the_composed_step():
    settings, given = config(), blocks(40)
    losses = []
    for composed in (False, True):
        _, _, step = made(settings, composed)
        for block in given:
            step.train(block)
        losses.append([result.loss for result in step.results()])
    torch.testing.assert_close(*(torch.tensor(some) for some in losses), rtol=5e-2, atol=5e-2)
    assert losses[0][-1] < losses[0][0]


def test_samples_are_those_of_the_cpu():
    proposal = UnigramProposal(torch.as_tensor(zipf_counts(VOCAB)), 1.0)
    here = [proposal.words(3, torch.tensor(step), 20, 500) for step in range(20)]
    proposal.follow(GPU)
    for step, words in enumerate(here):
        there = proposal.words(3, torch.tensor(step, device=GPU), 20, 500)
        assert torch.equal(there.cpu(), words)


def head_and_optimizer():
    torch.manual_seed(0)
    head = blackout.BlackOut(64, 5000, samples=100, counts=torch.as_tensor(zipf_counts(5000)))
    head = head.to(GPU)
    optimizer = blackout.RMSProp(
        head.parameters(), lr=0.002, damping=1e-8, clip=1.0, capturable=True
    )
    return head, optimizer


def test_a_divided_head_on_one_rank_of_nccl(tmp_path):
    """A group of one is the layer alone: the same samples, loss and gradients."""
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        group = torch.distributed.group.WORLD
        for kind, more in ((blackout.BlackOut, {"samples": 100}), (blackout.Full, {})):
            found = []
            for given in ({}, {"process_group": group}):
                torch.manual_seed(1)
                layer = kind(64, 5000, **more, **given).to(GPU)
                hidden = torch.randn(96, 64, device=GPU, requires_grad=True)
                loss = layer(hidden, torch.arange(96, device=GPU)).loss
                loss.backward()
                grad = layer.weight.grad
                found.append((loss, hidden.grad, grad.to_dense() if grad.is_sparse else grad))
            for alone, one in zip(*found, strict=True):
                torch.testing.assert_close(one, alone, rtol=1e-4, atol=1e-6)
    finally:
        torch.distributed.destroy_process_group()


def test_a_users_own_graph():
    """Forward, backward and step of a layer, captured: samples go on from replay to replay."""
    generator = torch.Generator().manual_seed(1)
    inputs = [
        (torch.randn(96, 64, generator=generator), torch.randint(5000, (96,), generator=generator))
        for _ in range(6)
    ]
    eager, eager_optimizer = head_and_optimizer()
    wanted = []
    for hidden, target in inputs:
        loss = eager(hidden.to(GPU), target.to(GPU)).loss
        eager_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        eager_optimizer.step()
        wanted.append(float(loss.detach()))

    head, optimizer = head_and_optimizer()
    hidden, target = (part.to(GPU) for part in inputs[0])

    def one():
        optimizer.zero_grad(set_to_none=True)
        loss = head(hidden, target).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    before = copy.deepcopy((head.state_dict(), optimizer.state_dict()))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            one()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = one()
    head.load_state_dict(before[0])
    for p in head.parameters():  # in place: the graph knows the addresses
        for value in optimizer.state[p].values():
            value.zero_()
    found = []
    for given in inputs:
        hidden.copy_(given[0])
        target.copy_(given[1])
        graph.replay()
        found.append(float(loss))
    assert found == pytest.approx(wanted, rel=1e-4)


def test_a_compiled_network():
    """One break, where the layer is; the same loss and gradients."""
    body = torch.nn.Linear(64, 64).to(GPU)
    head, _ = head_and_optimizer()
    features = torch.randn(32, 64, device=GPU)
    target = torch.randint(5000, (32,), device=GPU)

    def network(x, y):
        return head(torch.relu(body(x)), y).loss

    found = []
    for run in (network, torch.compile(network)):
        head.step.zero_()
        body.zero_grad()
        head.zero_grad(set_to_none=True)
        loss = run(features, target)
        loss.backward()
        found.append((loss.detach(), body.weight.grad.clone(), head.weight.grad.to_dense()))
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(plain, compiled, rtol=1e-4, atol=1e-6)
