"""A run that is stopped and resumed equals one that never stopped, bit for bit."""

import signal

import pytest

from blackout.cli.main import main
from blackout.errors import UserError
from blackout.models.saved import load
from blackout.score.perplexity import evaluate
from blackout.train.loop import Stopped
from blackout.train.progress import LineProgress, Progress


class StopAfter(Progress):
    """Sends a signal when so many blocks are trained."""

    def __init__(self, *steps, number=signal.SIGTERM):
        self.steps, self.number = steps, number

    def block_done(self, position):
        if position.step in self.steps:
            signal.raise_signal(self.number)


def trained_until(lab, out, *stops, **settings):
    """Everything in the checkpoint after stopping, and resuming, at each of these blocks."""
    for i, step in enumerate(stops):
        with pytest.raises(Stopped, match=f"stopped by SIGTERM after step {step}; --resume"):
            lab.train(out, resume=i > 0, progress=StopAfter(step), **settings)
    (checkpoint,) = out.glob("checkpoints/*")
    assert checkpoint.name == f"step-{stops[-1]:012d}.safetensors"
    return lab.tensors(checkpoint)


NETWORKS = {
    "sigmoid": {},
    "lstm": {"cell": "lstm", "dropout": 0.3, "bias": True, "layers": 2, "context": "stream"},
    "gru": {"cell": "gru", "projection": 4, "loss": "full"},
    "relu": {"cell": "relu", "loss": "nce", "log_z": "learned", "sharing": "block"},
    "paper": {"decay": "paper", "loss": "sampled", "sharing": "word", "shuffle": False},
    "batch": {"proposal": "batch", "sharing": "block"},
    "bigram": {"proposal": "bigram", "loss": "nce", "always_sample": ["<unk>"]},
    "model": {"proposal": "model", "loss": "sampled", "context": "stream"},
    "adam": {"optimizer": "adam", "weight_decay": 0.1, "storage": "bf16"},
    "adagrad": {"optimizer": "adagrad", "second_moment": "row", "storage": "bf16"},
}
STATES = {
    "adam": {"step", "moment", "touched", "mean"},
    "adagrad": {"step", "moment"},
}


@pytest.mark.parametrize("network", NETWORKS)
def test_200_blocks_equal_100_and_100(lab, tmp_path, network):
    # 2 streams of single steps: about 190 blocks an epoch, so that the second hundred crosses
    # the end of one.
    settings = NETWORKS[network] | {"batch": 2, "bptt": 1, "epochs": 3}
    straight = trained_until(lab, tmp_path / "straight", 200, **settings)
    resumed = trained_until(lab, tmp_path / "resumed", 100, 200, **settings)
    assert lab.differing(straight, resumed) == []
    kinds = {name.split(".")[0] for name in straight}
    assert kinds == {"model", "optim", "state", "random"}
    parts = {name.rsplit(".", 1)[-1] for name in straight if name.startswith("optim.")}
    assert parts == STATES.get(network, {"step", "moment", "touched"})
    halfway = trained_until(lab, tmp_path / "half", 100, **settings)
    assert len(lab.differing(straight, halfway)) > 5, "the second hundred changed something"


@pytest.mark.parametrize("proposal", ["batch", "bigram", "model"])
def test_a_proposal_goes_on_where_it_stopped(lab, tmp_path, proposal):
    """In the second of three epochs of about 20 blocks, when a model proposal has adapted once."""
    settings = {"proposal": proposal, "epochs": 3, "dropout": 0.2, "target_weight": "one"}
    lab.train(tmp_path / "straight", **settings)
    trained_until(lab, tmp_path / "resumed", 19, 30, **settings)
    lab.train(tmp_path / "resumed", resume=True, **settings)
    straight = lab.final(tmp_path / "straight")
    assert lab.differing(straight, lab.final(tmp_path / "resumed")) == []
    lab.train(tmp_path / "other", **settings | {"proposal": "unigram"})
    assert len(lab.differing(straight, lab.final(tmp_path / "other"))) > 3
    # what training alone needs is not needed afterwards
    model, again = load(tmp_path / "resumed"), load(tmp_path / "resumed", which="last")
    for loaded in (model, again):
        assert evaluate(loaded, lab.data.shard("test")).perplexity > 1


@pytest.mark.parametrize("stops", [(1,), (5, 6, 7), (17, 18, 19, 20, 21, 22, 40)])
def test_wherever_it_stops_the_end_is_the_same(lab, tmp_path, stops):
    """Before, at and after the ends of epochs of about 20 blocks."""
    settings = {"cell": "lstm", "dropout": 0.3, "epochs": 3}
    lab.train(tmp_path / "straight", **settings)
    trained_until(lab, tmp_path / "resumed", *stops, **settings)
    lab.train(tmp_path / "resumed", resume=True, **settings)
    assert lab.differing(lab.final(tmp_path / "straight"), lab.final(tmp_path / "resumed")) == []


def test_one_seed_one_result(lab, tmp_path):
    settings = {"cell": "lstm", "dropout": 0.3}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        lab.train(tmp_path / name, seed=seed, **settings)
    a, b, c = (lab.final(tmp_path / name) for name in "abc")
    assert lab.differing(a, b) == []
    weights = {name for name in a if name.startswith("model.") and "step" not in name}
    assert weights <= set(lab.differing(a, c))


def test_a_finished_run_can_be_resumed_with_more_epochs(lab, tmp_path):
    lab.train(tmp_path / "straight", epochs=4)
    lab.train(tmp_path / "resumed", epochs=2)
    result = lab.train(tmp_path / "resumed", resume=True, epochs=4)
    assert result.epochs == 4
    assert lab.differing(lab.final(tmp_path / "straight"), lab.final(tmp_path / "resumed")) == []


def test_resuming_a_finished_run_changes_nothing(lab, tmp_path):
    out = tmp_path / "out"
    first = lab.train(out)
    before, metrics = lab.final(out), (out / "metrics.jsonl").read_text().splitlines()
    again = lab.train(out, resume=True)
    assert again.test.perplexity == first.test.perplexity
    assert again.valid_perplexity == first.valid_perplexity
    assert lab.differing(before, lab.final(out)) == []
    assert (out / "metrics.jsonl").read_text().splitlines()[:-1] == metrics[:-1]
    assert len((out / "metrics.jsonl").read_text().splitlines()) == len(metrics)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_command(lab, tmp_path, monkeypatch, capsys, number):
    """One line, status 1, a checkpoint; --resume needs nothing but the folder."""
    straight, out = tmp_path / "straight", tmp_path / "out"
    assert main(lab.options(straight, epochs=2)) == 0
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(LineProgress, "block_done", StopAfter(10, number=number).block_done)
        assert main(lab.options(out, epochs=2)) == 1
    assert capsys.readouterr().err == (
        f"blackout train: stopped by {number.name} after step 10; --resume goes on\n"
    )
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert main(["train", "--out", str(out), "--resume"]) == 0
    assert lab.differing(lab.final(straight), lab.final(out)) == []


def test_the_command_goes_on_after_the_epoch_it_was_to_stop_after(lab, tmp_path, capsys):
    """A plain --resume trains the other epochs, and says so where there is none."""
    straight, out = tmp_path / "straight", tmp_path / "out"
    assert main(lab.options(straight, epochs=3)) == 0
    assert main(lab.options(out, epochs=3, stop_after=1)) == 0
    resume = ["train", "--out", str(out), "--resume"]
    assert main([*resume, "--stop-after", "2"]) == 0
    capsys.readouterr()
    assert main([*resume, "--stop-after", "2"]) == 0
    said = capsys.readouterr().err
    assert "epoch 2 of 3 is done, where --stop-after 2 ends the run: nothing to train" in said
    assert main(resume) == 0
    assert lab.differing(lab.final(straight), lab.final(out)) == []
    capsys.readouterr()
    assert main(resume) == 0
    assert "all 3 epochs are done: nothing to train; --epochs says more" in capsys.readouterr().err


def test_a_signal_during_validation_is_not_lost(lab, tmp_path):
    class StopInValidation(Progress):
        def validation_begins(self):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        lab.train(tmp_path / "out", progress=StopInValidation())
    lab.train(tmp_path / "straight")
    lab.train(tmp_path / "out", resume=True)
    assert lab.differing(lab.final(tmp_path / "straight"), lab.final(tmp_path / "out")) == []


def test_a_second_signal_stops_at_once(lab, tmp_path):
    class Impatient(Progress):
        def block_done(self, position):
            if position.step == 3:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        lab.train(tmp_path / "out", progress=Impatient())
    assert not list((tmp_path / "out").glob("checkpoints/*"))


def test_what_belongs_to_another_run_is_refused(lab, tmp_path):
    out = tmp_path / "out"
    lab.train(out, epochs=1)
    before = lab.final(out)
    changes = {
        "hidden": (8, 9),
        "seed": (1, 2),
        "samples": (5, 6),
        "alpha": (1.0, 0.5),
        "lr": (0.02, 0.5),
        "cell": ("sigmoid", "tanh"),
        "loss": ("blackout", "full"),
        "batch": (4, 5),
        "precision": ("fp32", "bf16"),
        "context": ("sentence", "stream"),
        "dropout": (0.0, 0.5),
    }
    for key, (was, now) in changes.items():
        with pytest.raises(UserError) as caught:
            lab.train(out, resume=True, epochs=2, **{key: now})
        message = str(caught.value)
        assert "step-" in message
        assert f".{key} was {was!r}, is {now!r} now" in message
    assert lab.differing(before, lab.final(out)) == []
    lab.train(out, resume=True, epochs=2, checkpoint_minutes=5.0)


def test_a_checkpoint_with_another_vocabulary_is_refused(lab, tmp_path):
    from blackout.text.prepared import prepare
    from blackout.train import train

    out = tmp_path / "out"
    lab.train(out, epochs=1)
    (tmp_path / "other.txt").write_text(lab.text("train").read_text() + "the zebra\n")
    other = prepare(tmp_path / "other.txt", tmp_path / "data", valid=lab.text("valid"))
    with pytest.raises(UserError, match=r"step-.*is from a run with another vocabulary"):
        train(lab.config(), other, out, resume=True)


def test_no_run_to_resume(lab, tmp_path):
    with pytest.raises(UserError, match=r"out: no run to resume: it has no run\.toml"):
        lab.train(tmp_path / "out", resume=True)
    assert not (tmp_path / "out").exists()


def test_a_run_is_not_overwritten(lab, tmp_path):
    lab.train(tmp_path / "out", epochs=1)
    before = lab.final(tmp_path / "out")
    with pytest.raises(UserError, match="out: holds a run already; --resume"):
        lab.train(tmp_path / "out", epochs=1)
    assert lab.differing(before, lab.final(tmp_path / "out")) == []
