"""The same text always gives the same numbers; a vocabulary file is read exactly or refused."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackout.errors import UserError
from blackout.text.vocab import EOS, UNK, Vocab

words = st.text(st.characters(exclude_characters=" \t\n\v\f\r\0", codec="utf-8"), min_size=1)
counted = st.dictionaries(words, st.integers(1, 5), max_size=30)


def test_order_is_by_falling_count_then_by_bytes():
    vocab = Vocab.from_counts({"b": 2, "é": 2, "a": 2, "Z": 2, "x": 3, "𝔸": 2, "ﬁ": 2})
    assert vocab.words[2:] == ["x", "Z", "a", "b", "é", "ﬁ", "𝔸"]


@given(counted, st.integers(0, 9), st.integers(3, 40), st.integers(1, 6))
def test_dropped_words_count_as_unknown(counts, literal, vocab_size, min_count):
    counts = {k: v for k, v in counts.items() if k not in ("</s>", "<unk>")}
    all_counts = {**counts, "</s>": 7, "<unk>": literal}
    vocab = Vocab.from_counts(all_counts, vocab_size, min_count)
    assert len(vocab) <= vocab_size
    kept = dict(zip(vocab.words[2:], vocab.counts[2:].tolist(), strict=True))
    assert all(counts[word] == n >= min_count for word, n in kept.items())
    dropped = {word: n for word, n in counts.items() if word not in kept}
    if len(vocab) < vocab_size:
        assert all(n < min_count for n in dropped.values())
    if kept and dropped:
        assert min(kept.values()) >= max(dropped.values())
    assert vocab.counts[EOS] == 7
    assert vocab.counts[UNK] == literal + sum(dropped.values())
    assert vocab.counts.sum() == sum(all_counts.values())


def test_full_vocabulary_has_unk_with_count_zero():
    counts = {"</s>": 3, "a": 2, "b": 1, "c": 1}
    full = Vocab.from_counts(counts)
    assert full.words == ["</s>", "<unk>", "a", "b", "c"]
    assert full.counts.tolist() == [3, 0, 2, 1, 1]
    assert Vocab.from_counts(counts, vocab_size=5) == full
    one_less = Vocab.from_counts(counts, vocab_size=4)
    assert one_less.words == ["</s>", "<unk>", "a", "b"]
    assert one_less.counts.tolist() == [3, 1, 2, 1]


def test_look_up():
    vocab = Vocab.from_counts({"</s>": 1, "a": 2, "b": 1})
    assert (vocab.id("b"), vocab.id("nowhere"), vocab.id("</s>")) == (3, UNK, EOS)
    assert vocab.ids(["a", "?", "b"]) == [2, 1, 3]
    assert vocab.word(2) == "a"


@given(counted)
def test_save_and_load(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    vocab = Vocab.from_counts(counts)
    vocab.save(path)
    loaded = Vocab.load(path)
    assert loaded.words == vocab.words
    assert loaded.counts.dtype == np.uint64
    assert loaded.counts.tolist() == vocab.counts.tolist()
    assert loaded == vocab
    assert vocab.hash == hashlib.sha256(path.read_bytes()).hexdigest()


def test_hash_depends_on_words_counts_and_order():
    vocabs = [
        Vocab.from_counts({"a": 2, "b": 1}),
        Vocab.from_counts({"a": 1, "b": 2}),
        Vocab.from_counts({"a": 2, "c": 1}),
        Vocab.from_counts({"a": 3, "b": 1}),
    ]
    assert len({vocab.hash for vocab in vocabs}) == 4


GOOD = "</s>\t2\n<unk>\t0\nthe\t3\ncat\t1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: </s> or <unk> is missing"),
        ("</s>\t2\n", "line 2: </s> or <unk> is missing"),
        (GOOD[:-1], "line 4: the file ends inside a line"),
        (GOOD.replace("</s>\t2\n", ""), "line 1: '<unk>' stands where </s> must be"),
        (GOOD.replace("<unk>\t0\n", ""), "line 2: 'the' stands where <unk> must be"),
        (GOOD.replace("the\t3", "the 3"), "line 3: no tab"),
        (GOOD.replace("the\t3", "the\t3\t4"), "line 3: '3\\t4' is not a count"),
        (GOOD.replace("the\t3", "the\t-3"), "line 3: '-3' is not a count"),
        (GOOD.replace("the\t3", "the\t3.0"), "line 3: '3.0' is not a count"),
        (GOOD.replace("the\t3", "the\t٣"), "line 3: '٣' is not a count"),
        (GOOD.replace("the\t3", "the\t"), "line 3: '' is not a count"),
        (GOOD.replace("the\t3", "the\t" + "9" * 30), "line 3: '999"),
        (GOOD.replace("the\t3", "\t3"), "line 3: '' is not a word"),
        (GOOD.replace("the\t3", "t he\t3"), "line 3: 't he' is not a word"),
        (GOOD.replace("the\t3", "the\t3\r"), "line 3: '3\\r' is not a count"),
        (GOOD.replace("cat", "the"), "line 4: 'the' is also on line 3"),
        (GOOD.replace("cat\t1", ""), "line 4: no tab"),
    ],
)
def test_a_damaged_file_is_refused_with_file_and_line(tmp_path, text, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(text.encode())
    with pytest.raises(UserError) as caught:
        Vocab.load(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_invalid_utf8_and_missing_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(GOOD.encode() + b"\xff\t1\n")
    with pytest.raises(UserError, match="line 5: invalid UTF-8"):
        Vocab.load(path)
    with pytest.raises(UserError, match=r"none\.txt"):
        Vocab.load(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("settings", "name"), [({"vocab_size": 2}, "vocab_size"), ({"min_count": 0}, "min_count")]
)
def test_settings_out_of_range(settings, name):
    with pytest.raises(UserError, match=name):
        Vocab.from_counts({"a": 1}, **settings)
