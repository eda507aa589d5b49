"""Killed at any write that matters, preparing leaves whole files only, and can be done again."""

import os

import pytest

from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.text.prepared import open_prepared, prepare

OLD = TextConfig()
NEW = TextConfig(min_count=2)
KILLED = 9


def prepare_and_die(folder, config, call, *, after):
    """Prepares in a child that dies at its call-th fsync or rename; False when it lived."""
    child = os.fork()
    if child == 0:
        left = [call]

        def dying(function):
            def wrapped(*arguments):
                left[0] -= 1
                if left[0] < 0 and not after:
                    os._exit(KILLED)
                result = function(*arguments)
                if left[0] < 0:
                    os._exit(KILLED)
                return result

            return wrapped

        os.fsync, os.replace = dying(os.fsync), dying(os.replace)
        try:
            prepare(folder / "train", folder / "out", config, valid=folder / "valid")
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


def content(prepared):
    parts = (prepared.shard("train"), prepared.shard("valid"))
    return prepared.vocab.words, [part.tokens.tolist() for part in parts]


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_fsync_and_rename(tmp_path, after):
    (tmp_path / "train").write_text("a b c\na b\n" * 20 + "d\n")
    (tmp_path / "valid").write_text("b a d\n")
    texts = {"valid": tmp_path / "valid"}
    whole = {
        config: content(prepare(tmp_path / "train", tmp_path / str(i), config, **texts))
        for i, config in enumerate((OLD, NEW))
    }
    assert whole[OLD] != whole[NEW]
    prepare(tmp_path / "train", tmp_path / "out", OLD, **texts)
    call, config = 0, NEW
    while prepare_and_die(tmp_path, config, call, after=after):
        try:
            assert content(open_prepared(tmp_path / "out")) in whole.values()
        except UserError as error:
            assert "made with another vocabulary" in str(error)  # noqa: PT017
        again = prepare(tmp_path / "train", tmp_path / "out", config, **texts)
        assert content(again) == whole[config]
        assert len(list((tmp_path / "out").iterdir())) == 3  # nothing is left behind
        call, config = call + 1, OLD if config is NEW else NEW
    assert call == 9  # three files, each with two fsyncs and a rename
    assert content(open_prepared(tmp_path / "out")) == whole[config]
