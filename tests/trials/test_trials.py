"""Many runs: none twice, none lost, each equal to a plain run with the same settings."""

import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from blackout.errors import UserError
from blackout.files.lock import locked
from blackout.run_folder import RunFolder
from blackout.text.prepared import open_prepared, prepare
from blackout.train.checkpoint import epochs_done
from blackout.trials.board import Board
from blackout.trials.crew import Worker
from blackout.trials.trial import answers, make_job
from blackout.trials.trials import Trial, Trials
from blackout.trials.worker import Orders


@pytest.fixture
def trial(lab):
    def make(keep_model=False, measure=("test",), **settings):
        folder = lab.data.folder
        return Trial(lab.config(**settings), folder, measure, keep_model)

    return make


@pytest.fixture
def no_children(monkeypatch):
    """From now on a child process is a failure."""

    def forbid():
        monkeypatch.setattr(Worker, "__init__", lambda *_: pytest.fail("a run was started"))

    return forbid


def figures(outcome):
    """What of an outcome must be the same each time."""
    curve = [(e.epoch, e.words, e.lr, e.train_loss, e.valid_perplexity) for e in outcome.curve]
    found = {p: (v.perplexity, v.words, v.unknown) for p, v in outcome.perplexity.items()}
    return curve, found, outcome.parameters


def plain(lab, out, **settings):
    """The figures of a plain run."""
    result = lab.train(out, **settings)
    events = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    names = "epoch", "words", "lr", "train_loss", "valid_perplexity"
    curve = [tuple(e[name] for name in names) for e in events if e["event"] == "epoch"]
    return curve, result.test.perplexity


def test_runs_once_and_as_a_plain_run(lab, tmp_path, trial, no_children):
    lines = []
    trials = Trials(tmp_path / "study", workers=2, say=lines.append)
    asked = [
        trial(alpha=0.0, measure=("train", "test")),
        trial(alpha=0.5),
        trial(alpha=0.0, measure=("test", "train"), keep_model=True),
        trial(alpha=0.5, epochs=1),  # before the two epochs of the same run
    ]
    outcomes = trials.run(asked)
    assert len(lines) == len(set(lines)) == 3
    assert all("alpha 0." in line and "validation perplexity" in line for line in lines)
    assert "3/3 runs done" in lines[-1]
    assert [o.model is not None for o in outcomes] == [False, False, True, False]
    assert outcomes[0] == replace(outcomes[2], model=None)

    curve, test = plain(lab, tmp_path / "plain", alpha=0.0)
    assert figures(outcomes[0])[0] == curve
    assert outcomes[0].perplexity["test"].perplexity == test
    assert outcomes[0].perplexity["train"].words == lab.data.shard("train").words
    assert outcomes[0].valid_perplexity == min(e.valid_perplexity for e in outcomes[0].curve)
    best = lab.tensors(tmp_path / "plain" / "model.safetensors")
    assert lab.differing(best, lab.tensors(outcomes[2].model / "model.safetensors")) == []
    assert outcomes[0].parameters == 8 * 8 + 2 * 8 * len(lab.data.vocab)
    curve, test = plain(lab, tmp_path / "other", alpha=0.5)
    assert figures(outcomes[1])[0] == curve
    assert figures(outcomes[3])[0] == curve[:1]
    assert outcomes[1].perplexity["test"].perplexity == test
    assert list((tmp_path / "study" / "runs").iterdir()) == []

    no_children()
    assert trials.run(asked) == outcomes
    assert Trials(tmp_path / "study").run(asked[1:2]) == outcomes[1:2]
    assert len(lines) == 3


def test_the_key_is_what_decides_the_result(lab, trial, tmp_path):
    def keys(asked, data=lab.data):
        job = make_job(asked, data)
        return job.key, job.run_key

    base = keys(trial())
    same = ({"threads": 7}, {"device": "auto"}, {"checkpoint_minutes": 1.0}, {"alpha": 1.0})
    assert {keys(trial(**settings)) for settings in same} == {base}
    whole_number = trial(alpha=0.0)
    loss = replace(whole_number.config.loss, alpha=0)
    assert keys(replace(whole_number, config=replace(whole_number.config, loss=loss))) == keys(
        whole_number
    )
    elsewhere = prepare(lab.text("train"), tmp_path, valid=lab.text("valid"), test=lab.text("test"))
    assert keys(trial(), elsewhere) == base
    no_test = open_prepared(tmp_path, ("train", "valid"))
    assert keys(trial(), no_test)[0] == keys(trial(measure=()))[0]

    longer = keys(trial(epochs=9))
    assert longer[0] != base[0]
    assert longer[1] == base[1]
    measured = keys(trial(measure=("train", "test")))
    assert measured[0] != base[0]
    assert measured[1] == base[1]
    others = [keys(trial(seed=2)), keys(trial(lr=0.03)), keys(trial(min_count=2))]
    (tmp_path / "text").write_text(lab.text("valid").read_text() + "the cat\n")
    other_text = prepare(lab.text("train"), tmp_path / "b", valid=tmp_path / "text")
    others.append(keys(trial(), other_text))
    assert len({base, *others}) == len({base[1], *(key[1] for key in others)}) == 5


def test_more_epochs_go_on_bit_for_bit(lab, tmp_path, trial, monkeypatch):
    begun = fractions(monkeypatch)
    trials = Trials(tmp_path / "study", workers=1)
    settings = {"cell": "lstm", "dropout": 0.3, "bias": True}
    trials.run([trial(epochs=2, **settings)], keep_checkpoints=True)
    assert len(list(tmp_path.glob("study/runs/*/checkpoints/*"))) == 1
    begun.clear()
    longer = trial(epochs=4, keep_model=True, **settings)
    shorter = trial(epochs=1, keep_model=True, **settings)
    (outcome,) = trials.run([longer], keep_checkpoints=True)
    assert begun[0] == 0.5
    (short,) = trials.run([shorter], keep_checkpoints=True)  # begins anew: the run is past it
    for name, found, epochs in (("four", outcome, 4), ("one", short, 1)):
        curve, _ = plain(lab, tmp_path / name, epochs=epochs, **settings)
        assert figures(found)[0] == curve
        weights = lab.tensors(found.model / "model.safetensors")
        straight = lab.tensors(tmp_path / name / "model.safetensors")
        assert lab.differing(straight, weights) == []
    (checkpoint,) = tmp_path.glob("study/runs/*/checkpoints/*")
    (straight,) = tmp_path.glob("four/checkpoints/*")
    assert lab.differing(lab.tensors(straight), lab.tensors(checkpoint)) == []
    trials.drop_checkpoints([longer])
    assert list((tmp_path / "study" / "runs").iterdir()) == []


def fractions(monkeypatch):
    """How far runs are, as the board is told."""
    told = []
    monkeypatch.setattr(Board, "fraction", lambda self, job, fraction: told.append(fraction))
    return told


@pytest.mark.parametrize("way", ["child killed", "Ctrl-C", "parent killed"])
def test_what_was_stopped_goes_on(lab, tmp_path, trial, monkeypatch, child, way):
    asked = [trial(epochs=5000, measure=())]
    trials = Trials(tmp_path / "study", workers=1)
    children = []
    hand_out = Worker.do
    monkeypatch.setattr(Worker, "do", lambda *a: (children.append(a[0]), hand_out(*a)))

    def has_checkpoint():
        while not list(tmp_path.glob("study/runs/*/checkpoints/step-*")):
            time.sleep(0.01)

    def stop():
        has_checkpoint()
        if way == "Ctrl-C":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            os.kill(children[0].process.pid, signal.SIGKILL)

    if way == "parent killed":
        parent = child(lambda: trials.run(asked))
        has_checkpoint()
        parent.kill()
        parent.wait()
    else:
        threading.Thread(target=stop).start()
        named = {
            "Ctrl-C": "stopped by SIGINT; run the same command again: 0 of 1 runs are done",
            "child killed": "killed by SIGKILL; run the same command again.*hidden 8",
        }
        with pytest.raises(UserError, match=named[way]):
            trials.run(asked)
        assert all(c.process.poll() is not None for c in children)
    assert list(tmp_path.glob("study/results/*")) == []
    begun = fractions(monkeypatch)
    (run,) = tmp_path.glob("study/runs/*")
    with locked(run):  # a child whose parent was killed has ended
        epochs = epochs_done(RunFolder(run)) + 2
    (outcome,) = trials.run([trial(epochs=epochs, measure=())])
    assert begun[0] > 0.99 - 2 / epochs, "it went on where it was"
    assert figures(outcome)[0] == plain(lab, tmp_path / "plain", epochs=epochs)[0]


def test_a_run_that_fails(lab, tmp_path, trial):
    trials = Trials(tmp_path / "study", workers=2)
    good, bad = trial(epochs=100_000, lr=0.01), trial(lr=1e30)  # it outlasts any start
    with pytest.raises(UserError, match=r"the .* is .* after .* blocks.*\(.*lr 1e\+30"):
        trials.run([good, bad])
    assert list(tmp_path.glob("study/results/*")) == []
    wide = trials.run([replace(bad, may_diverge=True), replace(bad, may_diverge=True, measure=())])
    assert all("try a smaller --lr" in outcome.failure for outcome in wide)
    assert all(outcome.perplexity == {} for outcome in wide)
    assert answers(wide[0], [], may_diverge=True)
    assert not answers(wide[0], [], may_diverge=False)


def test_a_run_that_was_stopped_before_it_began_does_not_begin(child):
    def stopped_at_once():
        read, write = os.pipe()
        os.write(write, b"{}\n")
        os.close(write)
        os.dup2(read, 0)
        orders = Orders()
        for thread in set(threading.enumerate()) - {threading.current_thread()}:
            thread.join()
        return 0 if orders.next() is None else 1

    assert child(stopped_at_once).wait() == 0


def test_damaged_files(lab, tmp_path, trial, no_children):
    data = prepare(lab.text("train"), tmp_path / "data", valid=lab.text("valid"))
    lines = []
    trials = Trials(tmp_path / "study", workers=1, say=lines.append)
    asked = [replace(trial(epochs=1), data=data.folder)]
    (outcome,) = trials.run(asked)
    assert outcome.perplexity == {}  # there is no test text
    (result,) = tmp_path.glob("study/results/*")
    whole = result.read_bytes()
    result.write_bytes(whole.replace(b'"valid_perplexity": 1', b'"valid_perplexity": 2'))
    assert result.read_bytes() != whole
    lines.clear()
    (again,) = trials.run(asked)
    assert str(result) in lines[0]
    assert "damaged" in lines[0]
    assert figures(again) == figures(outcome)

    shard = bytearray((tmp_path / "data" / "train.shard").read_bytes())
    shard[5000] ^= 1
    (tmp_path / "data" / "train.shard").write_bytes(shard)
    with pytest.raises(UserError, match=r"train\.shard: damaged.*epochs 2"):
        trials.run([replace(trial(epochs=2), data=data.folder)])
    no_children()
    assert trials.run(asked) == [again]


def test_out_of_time(lab, tmp_path, trial):
    trials = Trials(tmp_path / "study", workers=1)
    trials.run([trial(epochs=1)], keep_checkpoints=True)
    long, late = trial(epochs=100_000), trial(epochs=200_000, seed=2)
    begun, never = trials.run([long, late], minutes=0.01)
    assert 1 <= len(begun.curve) < 100_000
    assert begun.perplexity["test"].words == lab.data.shard("test").words
    assert never.curve == ()
    assert never.valid_perplexity == float("inf")
    assert len(list(tmp_path.glob("study/results/*"))) == 1, "neither is a result to remember"


def test_one_process_at_a_time_in_a_run_folder(tmp_path, child):
    with locked(tmp_path / "run") as held:
        assert held

        def look():
            with locked(tmp_path / "run", wait=False) as also:
                return int(also)

        assert child(look).wait() == 0
    assert child(look).wait() == 1
