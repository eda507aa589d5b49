"""Preparing a folder: what it makes, what it uses again, what it refuses."""

import os
import subprocess

import pytest

from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.text.prepared import open_prepared, prepare

TRAIN = "the cat sat\nthe dog sat down\n\na cat\n"


@pytest.fixture
def texts(tmp_path):
    for name, text in (("train", TRAIN), ("valid", "the cat\n"), ("test", "a bird sat\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


def make(texts, **changes):
    settings = {"valid": texts / "valid", "test": texts / "test", **changes}
    config = settings.pop("config", TextConfig())
    return prepare(texts / "train", texts / "out", config, **settings)


def inodes(texts):
    return {path.name: path.stat().st_ino for path in (texts / "out").iterdir()}


def test_prepare_then_open(texts):
    made = make(texts)
    assert sorted(p.name for p in (texts / "out").iterdir()) == [
        "test.shard",
        "train.shard",
        "valid.shard",
        "vocab.txt",
    ]
    for prepared in (made, open_prepared(texts / "out")):
        assert prepared.vocab.words == ["</s>", "<unk>", "cat", "sat", "the", "a", "dog", "down"]
        assert prepared.vocab.counts.tolist() == [3, 0, 2, 2, 2, 1, 1, 1]
        assert prepared.shard("train").tokens.tolist() == [4, 2, 3, 0, 4, 6, 3, 7, 0, 5, 2, 0]
        assert prepared.shard("train").types == 6
        assert prepared.shard("valid").tokens.tolist() == [4, 2, 0]
        assert prepared.shard("test").tokens.tolist() == [5, 1, 3, 0]
        assert prepared.shard("test").unknown == 1


def test_the_same_again_makes_nothing(texts):
    make(texts)
    before = inodes(texts)
    make(texts)
    assert inodes(texts) == before


@pytest.mark.parametrize(
    ("changed", "remade"),
    [
        ({"text": "valid"}, {"valid.shard"}),
        ({"text": "train"}, {"train.shard", "valid.shard", "test.shard", "vocab.txt"}),
        ({"vocab_size": 5}, {"train.shard", "valid.shard", "test.shard", "vocab.txt"}),
        ({"min_count": 2}, {"train.shard", "valid.shard", "test.shard", "vocab.txt"}),
        ({"keep_empty": True}, {"train.shard", "valid.shard", "test.shard", "vocab.txt"}),
        ({"touch": "train"}, set()),
    ],
)
def test_what_changed_is_made_again(texts, changed, remade):
    make(texts)
    before = inodes(texts)
    changed = dict(changed)
    if "text" in changed:
        # Same size, and the same time too: only the bytes tell.
        path = texts / changed.pop("text")
        info = path.stat()
        path.write_text(path.read_text().replace("cat", "sat"))
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    if "touch" in changed:
        os.utime(texts / changed.pop("touch"), ns=(10**18, 10**18))
    after = inodes(texts) if make(texts, config=TextConfig(**changed)) else None
    assert {name for name in before if before[name] != after[name]} == remade


def test_a_damaged_shard_is_made_again_but_not_opened(texts):
    make(texts)
    path = texts / "out" / "valid.shard"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"valid\.shard.*truncated"):
        open_prepared(texts / "out")
    make(texts)
    assert path.stat().st_size == len(whole)
    open_prepared(texts / "out")


def test_a_foreign_vocabulary_is_not_overwritten(texts):
    (texts / "out").mkdir()
    (texts / "out" / "vocab.txt").write_text("precious")
    with pytest.raises(UserError, match="not made by prepare"):
        make(texts)
    assert (texts / "out" / "vocab.txt").read_text() == "precious"


def test_held_out_text_with_other_words_is_refused(texts):
    (texts / "valid").write_text("un chat assis\nune souris\n")
    with pytest.raises(UserError, match=r"valid: shares almost no words .* 5 of its 5 words"):
        make(texts)


def test_a_tiny_vocabulary_is_no_reason_to_refuse(texts):
    """Of any text it knows little; "cat" is one word of nine in train and one of ten in test."""
    (texts / "test").write_text("x x x x x x x x x cat\n")
    made = make(texts, config=TextConfig(vocab_size=3), valid=None)
    assert made.shard("test").unknown == 9


def test_min_count_that_leaves_nothing(texts):
    with pytest.raises(UserError, match=r"no word is left .*6 distinct words, min_count 9"):
        make(texts, config=TextConfig(min_count=9))
    assert inodes(texts) == {}


def test_missing_parts_are_named(texts):
    made = make(texts, test=None)
    with pytest.raises(UserError, match="has no test text"):
        made.shard("test")
    with pytest.raises(UserError, match=r"vocab\.txt"):
        open_prepared(texts)


def test_progress_ends_where_the_text_ends(texts):
    seen = []
    make(texts, valid=None, test=None, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(len(TRAIN), 2 * len(TRAIN)), (2 * len(TRAIN), 2 * len(TRAIN))]


def test_a_missing_text_is_noticed_before_any_work(texts):
    with pytest.raises(UserError, match="nowhere: cannot be read"):
        make(texts, test=texts / "nowhere")
    assert not (texts / "out").exists()


def test_leftovers_of_killed_processes_are_removed(texts):
    (texts / "out").mkdir()
    dead = subprocess.Popen(["true"])
    dead.wait()
    leftover = texts / "out" / f".train.shard.{dead.pid}.partial"
    alive = texts / "out" / f".train.shard.{os.getppid()}.partial"
    for path in (leftover, alive):
        path.touch()
    make(texts)
    assert not leftover.exists()
    assert alive.exists()
