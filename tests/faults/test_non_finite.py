"""A loss that is not finite stops the run; the last good checkpoint stays."""

import math

import pytest
import torch

import blackout
from blackout.cli.main import main
from blackout.errors import UserError
from blackout.run_folder import RunFolder
from blackout.train.loop import Trainer
from blackout.train.metrics import read_metrics
from blackout.train.progress import Progress


class Breaks(Progress):
    """Spoils the weights before block number ``step``, as a bad gradient would."""

    def __init__(self, step, value, layer="output", every_weight=False):
        self.step, self.value, self.layer, self.every = step, value, layer, every_weight
        self.trainer = None

    def block_done(self, position):
        if position.step == self.step:
            weight = getattr(self.trainer.model, self.layer).weight
            with torch.no_grad():
                weight[... if self.every else 3] = self.value


def spoiled(lab, out, breaks, resume=False, **settings):
    """Trains with a network that goes wrong at some step."""
    trainer = Trainer(lab.config(**settings), lab.data, RunFolder(out), resume, breaks)
    breaks.trainer = trainer
    return trainer.run()


@pytest.fixture(scope="module")
def straight(lab):
    """What runs of three epochs come to that nothing spoils, each done once."""
    known = {}

    def make(**settings):
        name = str(sorted(settings.items()))
        if name not in known:
            out = lab.folder / f"never-spoiled-{len(known)}"
            lab.train(out, epochs=3, **settings)
            known[name] = lab.final(out)
        return known[name]

    return make


@pytest.mark.parametrize(
    ("value", "layer"), [(math.nan, "output"), (math.inf, "embedding"), (math.inf, "output")]
)
@pytest.mark.parametrize("settings", [{}, {"clip": 0.0}, {"checkpoint_minutes": 1e-9}])
@pytest.mark.parametrize("loss", ["blackout", "full"])
def test_spoiled_weights_are_never_saved(lab, tmp_path, straight, value, layer, settings, loss):
    out = tmp_path / "out"
    settings = settings | {"loss": loss}
    with pytest.raises(UserError, match=r"after \d+ blocks; the last checkpoint is intact; try a"):
        spoiled(lab, out, Breaks(25, value, layer), epochs=3, **settings)
    saved = lab.final(out)
    assert all(t.isfinite().all() for t in saved.values() if t.is_floating_point())
    # It can be loaded, and the run can go on from it, to the same end.
    blackout.load(out, which="last")
    lab.train(out, resume=True, epochs=3, **settings)
    assert lab.differing(lab.final(out), straight(**settings)) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_in_the_last_block_of_an_epoch(lab, tmp_path, value):
    """No loss comes after it to tell: validation and the weights themselves do."""
    out = tmp_path / "out"
    lab.train(out, epochs=1, clip=0.0)
    (first,) = out.glob("checkpoints/*")
    blocks = int(first.stem.split("-")[1])
    before = lab.final(out)
    breaks = Breaks(2 * blocks, value, every_weight=True)
    with pytest.raises(UserError, match="the last checkpoint is intact"):
        spoiled(lab, out, breaks, resume=True, epochs=3, clip=0.0)
    assert lab.differing(before, lab.final(out)) == []


def test_before_the_first_checkpoint(lab, tmp_path):
    with pytest.raises(UserError, match=r"the loss is nan after 4 blocks; no checkpoint was saved"):
        spoiled(lab, tmp_path / "out", Breaks(4, math.nan, every_weight=True))


@pytest.mark.parametrize("lr", ["1e30", "1e38"])
@pytest.mark.parametrize("cell", ["relu", "sigmoid"])
def test_a_huge_learning_rate(lab, tmp_path, capsys, lr, cell):
    out = tmp_path / "out"
    options = lab.options(out, lr=lr, cell=cell, clip=0, epochs=2, loss="full")
    assert main(options) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "try a smaller --lr" in said[0]
    assert f"(now {float(lr):g})" in said[0]
    assert not list(out.glob("checkpoints/*"))
    assert main(lab.options(out, cell=cell, clip=0, epochs=2, loss="full")) == 0


class BreaksLater(Progress):
    """Spoils the weights after ``block`` blocks; counts all that were trained."""

    def __init__(self, block):
        self.block, self.trained, self.trainer = block, 0, None

    def block_done(self, position):
        self.trained += 1
        if self.trained == self.block:
            with torch.no_grad():
                self.trainer.model.output.weight[:] = math.nan


def test_losses_may_be_read_now_and_then(lab, tmp_path):
    """As on a GPU, where looking makes the host wait: the same run, and nothing bad is saved."""
    lab.train(tmp_path / "each", epochs=2)
    some = Trainer(lab.config(epochs=2), lab.data, RunFolder(tmp_path / "some"), False, Progress())
    some.step.interval = 7
    some.run()
    assert lab.differing(lab.final(tmp_path / "each"), lab.final(tmp_path / "some")) == []
    losses = [
        [
            event["train_loss"]
            for event in read_metrics(tmp_path / out / "metrics.jsonl")
            if "lr" in event
        ]
        for out in ("each", "some")
    ]
    assert losses[0] == losses[1]

    breaks = BreaksLater(10)
    bad = Trainer(lab.config(epochs=2), lab.data, RunFolder(tmp_path / "bad"), False, breaks)
    bad.step.interval, breaks.trainer = 7, bad
    with pytest.raises(UserError, match="the loss is nan after 10 blocks; no checkpoint"):
        bad.run()
    assert breaks.trained < 14, "noticed within the interval"
