"""Binary n-gram models made to do harm: their checksums are right, their numbers are not."""

import os
import struct

import numpy as np
import pytest

from blackout import _native
from blackout.errors import UserError
from blackout.ngram import NGram, evaluate, train

HEADER = struct.Struct("<8s8I10Q5Q")  # csrc/ngram/model_file.cpp
COUNTS, SLOTS, TEXT_BYTES, BODY_SUM, HEADER_SUM = 9, 19, 20, 22, 23
NODE = np.dtype([("word", "<u4"), ("prob", "<f4"), ("backoff", "<f4"), ("first", "<u4")])
LEAF = np.dtype([("word", "<u4"), ("prob", "<f4")])


def checksum(data):
    total = _native.Checksum()
    total.update(np.frombuffer(bytes(data), np.uint8))
    return total.value()


def padded(size):
    return (size + 63) // 64 * 64


class Crafted:
    """A good binary model to change, with its checksums put right again."""

    def __init__(self, path):
        data = path.read_bytes()
        self.path = path
        self.fields = list(HEADER.unpack_from(data))
        self.body = bytearray(data[HEADER.size :])

    def sections(self):
        """Views of the arrays: word ends, text, slots, nodes of each level, leaves."""
        order, words, counts = self.fields[3], self.fields[4], self.fields[COUNTS:SLOTS]
        kinds = [("<u8", words), ("u1", self.fields[TEXT_BYTES]), ("<u4", self.fields[SLOTS])]
        kinds += [(NODE, counts[i] + 1) for i in range(order - 1)]
        kinds += [(LEAF, counts[order - 1])]
        at, views = padded(HEADER.size) - HEADER.size, []
        for kind, count in kinds:
            views.append(np.frombuffer(self.body, kind, count, at))
            at += padded(views[-1].nbytes)
        return views

    def save(self):
        self.fields[BODY_SUM] = checksum(self.body)
        self.fields[HEADER_SUM] = 0
        self.fields[HEADER_SUM] = checksum(HEADER.pack(*self.fields))
        self.path.write_bytes(HEADER.pack(*self.fields) + self.body)


@pytest.fixture
def crafted(tmp_path):
    (tmp_path / "text").write_text("the cat sat\nthe dog sat\na cat ran\n" * 3)
    train(tmp_path / "text", tmp_path / "m.bin", order=3)
    return Crafted(tmp_path / "m.bin")


def refusal(crafted):
    """What loading says, in a process of its own: it might not survive it."""
    crafted.save()
    told = crafted.path.with_name("told")
    told.unlink(missing_ok=True)
    process = os.fork()
    if not process:
        try:
            NGram.load(crafted.path).score(["the", "cat"])
        except UserError as error:
            told.write_text(str(error))
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status == 0, f"ended with {status}"
    assert told.exists(), "it was taken"
    assert told.read_text().startswith(f"{crafted.path}: damaged: ")
    return told.read_text()


def test_an_untouched_one_is_good(crafted):
    before = NGram.load(crafted.path).score(["the", "cat"])
    crafted.save()
    assert np.array_equal(NGram.load(crafted.path).score(["the", "cat"]), before)


@pytest.mark.parametrize("slots", [1 << 62, 1 << 63])
def test_slots_that_wrap_round(crafted, slots):
    """slots · 4 bytes is 0 modulo 2^64: the section looks empty, its slots are everywhere."""
    slot_bytes = padded(4 * crafted.fields[SLOTS])
    views = crafted.sections()
    start = padded(HEADER.size) - HEADER.size + padded(views[0].nbytes) + padded(views[1].nbytes)
    del views
    del crafted.body[start : start + slot_bytes]
    crafted.fields[21] -= slot_bytes
    crafted.fields[SLOTS] = slots
    assert "do not fit into the file" in refusal(crafted)


@pytest.mark.parametrize("level", [1, 2])
def test_counts_that_wrap_round(crafted, level):
    crafted.fields[COUNTS + level] += 1 << 61
    refusal(crafted)


def test_texts_that_wrap_round(crafted):
    crafted.fields[TEXT_BYTES] = 2**64 - 1
    refusal(crafted)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.5, -3e38])
@pytest.mark.parametrize("section", [3, 4, 5])
def test_probabilities_that_are_none(crafted, section, value):
    crafted.sections()[section]["prob"][1] = value
    refusal(crafted)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("section", [3, 4])
def test_backoffs_that_are_none(crafted, section, value):
    crafted.sections()[section]["backoff"][1] = value
    refusal(crafted)


def test_words_out_of_order_out_of_range_or_twice(crafted):
    def put(section, field, place, value):
        def change(copy):
            view = copy.sections()[section]
            (view[field] if field else view)[place] = value

        return change

    for change in (
        put(3, "word", 2, 3),
        put(4, "word", 0, 2**32 - 2),
        put(5, "word", 0, 2**32 - 2),
        put(3, "first", 1, 2**31),
        put(4, "first", -1, 10**6),
        put(0, "", 0, 2**40),
        put(1, "", 0, 0xFF),  # not UTF-8
        put(1, "", 0, ord("x")),  # a word that its slot does not lead to
    ):
        copy = Crafted(crafted.path)
        change(copy)
        original = crafted.path.read_bytes()
        refusal(copy)
        crafted.path.write_bytes(original)


ARPA = """\\data\\
ngram 1=4
ngram 2=1

\\1-grams:
-1 <unk>
-99 <s> 0.1
-0.5 </s>
-0.1 a {backoff}

\\2-grams:
-0.2 <s> a

\\end\\
"""


def test_backoff_weights_that_make_a_probability_above_one(tmp_path):
    """Each number of the file may pass; P(</s> | a) = 10^(3 - 0.5) is no probability."""
    path, text = tmp_path / "m.arpa", tmp_path / "text"
    path.write_text(ARPA.format(backoff=3))
    text.write_text("a\n")
    model = NGram.load(path)
    for ask in (
        lambda: model.score(["a"]),
        lambda: model.score_tokens(model.ids(["a", "</s>"])),
        lambda: model.prob_all(["a"]),
        lambda: evaluate(model, text),
    ):
        with pytest.raises(UserError, match=r"m\.arpa: gives a word log10 probability 2"):
            ask()


def test_rounding_is_no_crime(tmp_path):
    path = tmp_path / "m.arpa"
    path.write_text(ARPA.format(backoff=0.5004))
    assert NGram.load(path).score(["a"]).max() == 0


@pytest.mark.parametrize("number", ["1e300", "-1e300", "1e7"])
def test_numbers_no_logarithm_has(tmp_path, number):
    path = tmp_path / "m.arpa"
    path.write_text(ARPA.format(backoff=number))
    with pytest.raises(UserError, match="line 9: a number beyond 1e6"):
        NGram.load(path)
