"""A run folder has one writer at a time, and its files belong together or are refused."""

import json
import os
import shutil

import pytest

from blackout.cli.main import main
from blackout.errors import UserError
from blackout.files.lock import LOCK
from blackout.models import load
from blackout.run_folder import RunFolder


@pytest.fixture(scope="module")
def run(lab, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    lab.train(out, epochs=2)
    return out


@pytest.fixture
def copy(run, tmp_path):
    return RunFolder(shutil.copytree(run, tmp_path / "copy"))


# ---------------------------------------------------------------------- one writer


def test_a_folder_that_is_written_is_not_trained_in(lab, tmp_path, capsys):
    out = tmp_path / "out"
    with RunFolder(out).held():
        assert main(lab.options(out)) == 1
        with pytest.raises(UserError, match="another process is writing to it"):
            lab.train(out)
    assert f"{out}: another process is writing to it" in capsys.readouterr().err
    assert not out.exists()


def test_of_two_that_train_at_once_one_is_refused(lab, tmp_path, child):
    """Were both let in, one's settings could stand beside the other's weights."""
    out, wait = tmp_path / "out", tmp_path / "go"

    def start(hidden):
        def train():
            while not wait.exists():
                pass
            return main(lab.options(out, hidden=hidden, epochs=3))

        return child(train)

    children = [start(8), start(9)]
    wait.touch()
    assert sorted(process.wait() for process in children) == [0, 1]
    hidden = json.loads((out / "config.json").read_text())["config"]["model"]["hidden"]
    assert load(out).config.hidden == hidden
    assert load(out, which="last").config.hidden == hidden


def test_the_lock_leaves_nothing_behind(run):
    assert not (run / LOCK).exists()


def test_the_lock_of_a_killed_process_is_nobodys(lab, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / LOCK).touch()
    lab.train(out, epochs=1)


# ---------------------------------------------------------------------- files that belong together


@pytest.mark.parametrize("which", ["best", "last"])
def test_weights_beside_another_runs_description_are_refused(lab, copy, tmp_path, which):
    other = tmp_path / "other"
    lab.train(other, epochs=1, seed=2)  # the same shapes, the same vocabulary
    shutil.copyfile(other / "config.json", copy.config)
    with pytest.raises(UserError, match=r"was trained with other settings than .*config\.json"):
        load(copy.path, which=which)
    with pytest.raises(UserError, match=r"step-.*is from another run than .*config\.json"):
        lab.train(copy.path, resume=True, epochs=3)


@pytest.mark.parametrize("name", ["config.json", "vocab.txt"])
@pytest.mark.parametrize("epochs", [2, 3])
def test_resuming_writes_a_missing_description_again(lab, run, copy, name, epochs):
    before = (copy.path / name).read_bytes()
    (copy.path / name).unlink()
    with pytest.raises(UserError, match=f"it has no {name}; blackout train --out .* --resume"):
        load(copy.path)
    lab.train(copy.path, resume=True, epochs=epochs)
    assert (copy.path / name).read_bytes() == before
    load(copy.path)


def test_so_it_does_after_the_run_was_made_longer(lab, copy):
    before = copy.config.read_bytes()
    lab.train(copy.path, resume=True, epochs=3)
    copy.config.unlink()
    lab.train(copy.path, resume=True, epochs=4)
    assert copy.config.read_bytes() == before
    load(copy.path)


# ---------------------------------------------------------------------- checkpoints


def _a_file(folder):
    folder.write_text("in the way")


def _a_loop(folder):
    folder.symlink_to(folder)


def _an_unmounted_disk(folder):
    folder.symlink_to(folder.with_name("nowhere"))


@pytest.mark.parametrize("make", [_a_file, _a_loop, _an_unmounted_disk])
def test_checkpoints_that_cannot_be_read_are_not_none(lab, copy, make):
    shutil.rmtree(copy.checkpoints)
    make(copy.checkpoints)
    best = copy.weights.read_bytes()
    for resume in (True, False):
        with pytest.raises(UserError, match="checkpoints: cannot be read"):
            lab.train(copy.path, resume=resume, epochs=3)
    assert copy.weights.read_bytes() == best


def test_no_checkpoint_is_none(tmp_path):
    assert RunFolder(tmp_path / "nothing").newest_checkpoint() is None
    (tmp_path / "checkpoints").mkdir()
    assert RunFolder(tmp_path).newest_checkpoint() is None


# ---------------------------------------------------------------------- the text


@pytest.mark.parametrize("part", ["train", "valid"])
def test_another_text_of_the_same_counts_is_refused(lab, copy, tmp_path, part, capsys):
    """The same sentences in another order: sizes and vocabulary do not tell."""
    lines = lab.text(part).read_text().splitlines()
    assert lines != lines[::-1]
    other = tmp_path / f"{part}.txt"
    other.write_text("\n".join(lines[::-1]) + "\n")
    options = lab.options(copy.path, epochs=3, **{part: other})
    assert main([*options, "--resume"]) == 1
    assert f"is from a run with another {part} text" in capsys.readouterr().err


def test_a_path_that_no_settings_file_can_hold_is_refused_at_the_start(lab, tmp_path, capsys):
    odd = tmp_path / os.fsdecode(b"text-\xff")
    shutil.copyfile(lab.text("train"), odd)
    assert main(lab.options(tmp_path / "out", train=odd)) == 1
    assert "train: the path '" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
