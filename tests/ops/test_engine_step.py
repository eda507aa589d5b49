"""A whole training step of an engine is the composed one, faster: for every loss, cell and option.

``tests/train/test_step.py`` has the same over hundreds of blocks of a text.
"""

import itertools

import numpy as np
import pytest
import torch

from blackout.config import Config
from blackout.models import build_model
from blackout.models.language_model import LanguageModel
from blackout.ops.cpu.step import WholeStep
from blackout.optim import Adam, RMSProp
from blackout.text.streams import Block
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, ComposedStep, make_step

VOCAB, STEPS, STREAMS = 70, 5, 6
SECTIONS = {
    "model": (
        "cell",
        "hidden",
        "layers",
        "bias",
        "context",
        "storage",
        "dropout",
        "projection",
        "tie",
    ),
    "optim": ("second_moment", "decay", "clip", "correct_bias", "rates"),
    "run": ("precision",),
}


def config(**settings) -> Config:
    tables = {"model": {"hidden": 12}, "loss": {"samples": 9}, "optim": {}, "run": {}}
    for name, value in settings.items():
        place = next((table for table, names in SECTIONS.items() if name in names), "loss")
        tables[place][name] = value
    tables["run"] |= {"batch": STREAMS, "bptt": STEPS}
    return Config.from_dict(tables)


def build(settings: Config, always=()) -> tuple[LanguageModel, RMSProp]:
    counts = np.arange(VOCAB, 0, -1) ** 2
    model = build_model(settings, counts, always_sample=always).train()
    return model, build_optimizer(settings, model, counts)


def blocks(count: int) -> list[Block]:
    """Blocks of words, sentence ends among them; streams that are over in some."""
    rng = np.random.default_rng(1)
    words = rng.integers(VOCAB, size=(count, STEPS + 1, STREAMS)) * (
        rng.random((count, STEPS + 1, STREAMS)) > 0.2
    )
    masks = [np.ones((STEPS, STREAMS), bool) for _ in words]
    for mask, some in zip(masks[3::5], words[3::5], strict=True):
        mask[2:, 4:] = False
        some[3:, 4:] = 0  # as the streams of a text pad
    return [
        Block(some[:-1], some[1:], mask, int(mask.sum()))
        for some, mask in zip(words, masks, strict=True)
    ]


def train(make, settings: Config, count: int = 12, always=()):
    model, optimizer = build(settings, always)
    step = make(model, optimizer, BlockShape(STEPS, STREAMS))
    for number, block in enumerate(blocks(count)):
        for group in optimizer.param_groups:
            group["lr"] = group["first_lr"] * (1 - number / count)
        step.train(block)
    return model, optimizer, step


def require_same(ours, theirs, relative: float) -> None:
    """Weights, optimiser states, network states and results of two trainings."""
    (our_model, our_optimizer, our_step), (their_model, their_optimizer, their_step) = ours, theirs

    def near(got, want, name):
        gap = float((got.double() - want.double()).norm())
        assert gap <= relative * float(want.double().norm()) + 1e-9, name

    for (name, p), q in zip(our_model.named_parameters(), their_model.parameters(), strict=True):
        near(p.detach(), q.detach(), name)
        ours_state, theirs_state = our_optimizer.state[p], their_optimizer.state[q]
        assert ours_state.keys() == theirs_state.keys()
        for part, value in theirs_state.items():
            near(ours_state[part], value, f"{name} {part}")
    near(our_step.state.layers, their_step.state.layers, "state")
    assert our_model.state_dict().keys() == their_model.state_dict().keys()
    for got, want in zip(our_step.results(), their_step.results(), strict=True):
        assert got.loss == pytest.approx(want.loss, rel=relative)
        assert got.norm == pytest.approx(want.norm, rel=10 * relative)


LOSSES = [
    {"loss": "blackout"},
    {"loss": "blackout", "negatives": "nce", "collisions": "remove"},
    {"loss": "sampled", "target_weight": "one"},
    {"loss": "nce", "log_z": "learned"},
    {"loss": "nce", "log_z": 2.0},
]
CELLS = ["sigmoid", "tanh", "relu", "lstm", "gru"]
OPTIONS = [
    {"sharing": "block", "alpha": 0.3},
    {"sharing": "word", "cell": "gru"},
    {"second_moment": "row", "decay": "none", "clip": 0.0},
    {"decay": "paper", "correct_bias": False, "rates": "same", "clip": 0.01},
    {"context": "stream", "cell": "lstm", "bias": True},
    {"samples": 300, "hidden": 33, "cell": "gru", "layers": 3},
    {"hidden": 1},
    *({"dropout": 0.3, "cell": cell, "layers": 2} for cell in CELLS),
    {"dropout": 0.6, "hidden": 33},
    {"dropout": 0.2, "cell": "lstm", "bias": True, "context": "stream"},
]


@pytest.mark.parametrize(
    "settings",
    [
        *({**loss, "cell": cell} for loss, cell in itertools.product(LOSSES, CELLS)),
        *({"cell": cell, "layers": 2, "bias": True, "loss": "nce"} for cell in CELLS),
        *OPTIONS,
    ],
    ids=str,
)
def test_the_native_step_is_the_composed_one(settings):
    given = config(**settings)
    ours = train(make_step, given, always=(1, 5))
    assert isinstance(ours[2], WholeStep)
    require_same(ours, train(ComposedStep, given, always=(1, 5)), 2e-5)


@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
@pytest.mark.parametrize("storage", ["fp32", "bf16"])
def test_products_in_bf16_are_the_composed_ones_up_to_their_rounding(cell, storage):
    dropout = 0.2 if storage == "fp32" else 0.0
    given = config(
        cell=cell, storage=storage, precision="bf16", hidden=40, bias=True, dropout=dropout
    )
    ours, theirs = train(make_step, given), train(ComposedStep, given)
    assert isinstance(ours[2], WholeStep)
    for got, want in zip(ours[2].results(), theirs[2].results(), strict=True):
        assert got.loss == pytest.approx(want.loss, rel=2e-3)
        assert got.norm == pytest.approx(want.norm, rel=3e-2)
    for p, q in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
        assert p.dtype == q.dtype
        gap = float((p.detach().float() - q.detach().float()).norm())
        assert gap <= 0.05 * float(q.detach().float().norm()) + 1e-3


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("settings", [{}, {"cell": "gru", "bias": True}, {"sharing": "block"}])
def test_the_result_does_not_depend_on_the_threads(settings, precision):
    """Not even in the last bit."""
    given = config(samples=60, hidden=40, precision=precision, **settings)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        model, _, step = train(make_step, given)
        found.append((model, step.results()))
    torch.set_num_threads(before)
    for model, results in found[1:]:
        assert results == found[0][1]
        for p, q in zip(model.parameters(), found[0][0].parameters(), strict=True):
            assert torch.equal(p, q)


class Louder(LanguageModel):
    def forward(self, inputs, state):
        hidden, after = super().forward(inputs, state)
        return 2 * hidden, after


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "full"},
        {"proposal": "batch"},
        {"projection": 4},
        {"tie": True},
    ],
)
def test_what_native_code_does_not_cover_is_composed(settings):
    model, optimizer = build(config(**settings))
    assert isinstance(make_step(model, optimizer, BlockShape(STEPS, STREAMS)), ComposedStep)


def test_whoever_changes_what_a_step_does_is_heard():
    """A hook, a frozen weight, a model or layer of one's own, another optimiser."""
    shape = BlockShape(STEPS, STREAMS)

    def composed(model, optimizer) -> bool:
        return isinstance(make_step(model, optimizer, shape), ComposedStep)

    model, optimizer = build(config())
    assert not composed(model, optimizer)
    hook = model.layers[0].register_forward_hook(lambda *_: None)
    assert composed(model, optimizer)
    hook.remove()
    model.embedding.weight.requires_grad_(False)
    assert composed(model, optimizer)
    model.embedding.weight.requires_grad_(True)
    assert not composed(model, optimizer)
    optimizer.register_step_post_hook(lambda *_: None)
    assert composed(model, optimizer)
    assert composed(model, Adam(model.parameters()))
    assert composed(model, RMSProp(model.parameters()))  # its damping comes with the gradients
    louder = Louder(config().model, model.embedding, model.output)
    assert composed(louder, RMSProp(louder.parameters(), damping=1.0, by_width=False))


def test_a_word_outside_the_vocabulary_is_refused():
    model, optimizer = build(config())
    step = make_step(model, optimizer, BlockShape(STEPS, STREAMS))
    (good,) = blocks(1)
    for name in ("inputs", "targets"):
        words = {"inputs": good.inputs, "targets": good.targets}
        words[name] = np.full_like(good.inputs, VOCAB)
        with pytest.raises(IndexError, match=f"{name[:-1]} {VOCAB} is not in 0 … {VOCAB - 1}"):
            step.train(Block(**words, mask=good.mask, words=good.words))


def test_an_optimiser_whose_state_was_loaded_goes_on_with_it():
    """Loading gives it other tensors; native code must not write to the old ones."""
    given = config(cell="gru")
    straight, straight_optimizer, _ = train(make_step, given, 6)
    model, optimizer = build(given)
    step = make_step(model, optimizer, BlockShape(STEPS, STREAMS))
    for number, block in enumerate(blocks(6)):
        for group in optimizer.param_groups:
            group["lr"] = group["first_lr"] * (1 - number / 6)
        if number == 3:
            optimizer.load_state_dict(optimizer.state_dict())
        step.train(block)
    for p, q in zip(model.parameters(), straight.parameters(), strict=True):
        assert torch.equal(p, q)
        moments = optimizer.state[p]["moment"], straight_optimizer.state[q]["moment"]
        assert torch.equal(*moments)
