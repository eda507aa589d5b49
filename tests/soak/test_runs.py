"""Whole networks with any settings: engines agree, a resumed run is the uninterrupted one."""

from __future__ import annotations

import signal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from blackout.errors import UserError
from blackout.models.saved import new_model
from blackout.text.streams import Streams
from blackout.train.loop import Stopped
from blackout.train.progress import Progress
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, ComposedStep, make_step

NUMBERS = settings.get_profile("numbers")
FEWER = settings(NUMBERS, max_examples=max(NUMBERS.max_examples // 4, 3))


def config_of(lab: Any, chosen: dict[str, Any], **more: Any) -> Any:
    """A config, where the settings go together."""
    try:
        return lab.config(**chosen, **more)
    except UserError:
        assume(False)


def stepped(lab: Any, config: Any, make: Any, blocks: int, impl: str) -> tuple[Any, list[Any]]:
    """A model after some blocks, and what they came to."""
    try:
        model = new_model(config, lab.data.vocab, impl=impl).train()
    except UserError:
        assume(False)
    text = torch.arange(60) % len(lab.data.vocab)
    model.output.read_text(text[:-1], text[1:])
    optimizer = build_optimizer(config, model, lab.data.vocab.counts)
    run = config.run
    shard = lab.data.shard("train")
    streams = Streams(shard, run.batch, run.bptt, shuffle=False, seed=1, epoch=0)
    step = make(model, optimizer, BlockShape(run.bptt, run.batch))
    for block in islice(streams, blocks):
        step.train(block)
    return model, step.results()


@NUMBERS
@given(data=st.data())
def test_engines_agree_on_training(data: Any, drawn: Any, lab: Any) -> None:
    """The whole native step and the reference, put together by autograd, after some blocks.

    With enough damping that rounding errors are not blown up to full steps.
    """
    chosen = data.draw(drawn.run)
    chosen |= {"storage": "fp32", "dropout": 0.0, "proposal": "unigram"}
    event(chosen["loss"])
    _train_on_engines(lab, chosen)


@pytest.mark.parametrize(
    "chosen",
    [
        # the only sample is the target, whose derivative is then 0: native code did not touch its
        # features, the reference did, and Adam's lazy moments tell the two apart
        {
            "hidden": 1,
            "samples": 1,
            "alpha": 0.0,
            "collisions": "remove",
            "maxent": 2,
            "maxent_bits": 5,
            "optimizer": "adam",
            "lr": 0.1,
            "beta": 0.9,
        },
    ],
)
def test_where_engines_differed_once(lab: Any, chosen: dict[str, Any]) -> None:
    """What rounds of `make soak` have found."""
    _train_on_engines(lab, chosen)


def _train_on_engines(lab: Any, chosen: dict[str, Any]) -> None:
    config = config_of(lab, {**chosen, "damping": 1e-2})
    ours, our_results = stepped(lab, config, make_step, 5, "auto")
    theirs, their_results = stepped(lab, config, ComposedStep, 5, "reference")
    for got, want in zip(our_results, their_results, strict=True):
        assert got.loss == pytest.approx(want.loss, rel=1e-3, abs=1e-5)
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        difference = float((p.detach() - q.detach()).norm())
        assert difference <= 2e-3 * float(q.detach().norm()) + 1e-5, name


@NUMBERS
@given(data=st.data())
def test_after_any_words_probabilities_sum_to_one(data: Any, drawn: Any, lab: Any) -> None:
    config = config_of(lab, data.draw(drawn.run))
    model, _ = stepped(lab, config, make_step, 2, "auto")
    model.eval()
    words = torch.randint(len(lab.data.vocab), (4, 3), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        read = model.read(words, model.initial_state(3))
        logs = model.output.log_prob(read.hidden, history=read.history)
    assert float((logs.double().exp().sum(-1) - 1).abs().max()) < 1e-4


class StopAfter(Progress):
    """Sends a signal when so many blocks are trained."""

    def __init__(self, step: int) -> None:
        self.step = step

    def block_done(self, position: Any) -> None:
        if position.step == self.step:
            signal.raise_signal(signal.SIGTERM)


@FEWER
@given(data=st.data(), stop=st.integers(1, 35))
def test_a_resumed_run_is_the_uninterrupted_one(
    data: Any, stop: int, drawn: Any, lab: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bit for bit, whatever the settings and wherever it stopped."""
    chosen = {**data.draw(drawn.run), "keep_going": True, "epochs": 2}
    config_of(lab, chosen)
    _stop_and_resume(lab, tmp_path_factory.mktemp("resumed"), chosen, stop)


@pytest.mark.parametrize(
    "chosen",
    [
        # a tied table made the features' gradients count as row-sparse, which they are not
        {"loss": "full", "tie": True, "maxent": 2, "maxent_bits": 3},
        # features of which no block before the checkpoint gave a gradient
        {
            "cell": "sigmoid",
            "hidden": 1,
            "samples": 1,
            "alpha": 0.0,
            "sampling": "strata",
            "maxent": 2,
            "maxent_bits": 3,
            "beta": 0.9,
            "lr": 0.1,
        },
    ],
)
def test_what_did_not_resume_once(lab: Any, tmp_path: Path, chosen: dict[str, Any]) -> None:
    """What rounds of `make soak` have found."""
    _stop_and_resume(lab, tmp_path, {**chosen, "epochs": 2}, stop=1)


def _stop_and_resume(lab: Any, folder: Path, chosen: dict[str, Any], stop: int) -> None:
    try:
        lab.train(folder / "straight", **chosen)
    except UserError:
        assume(False)
    with pytest.raises(Stopped):
        lab.train(folder / "resumed", progress=StopAfter(stop), **chosen)
    lab.train(folder / "resumed", resume=True, **chosen)
    straight, resumed = lab.final(folder / "straight"), lab.final(folder / "resumed")
    assert lab.differing(straight, resumed) == []
