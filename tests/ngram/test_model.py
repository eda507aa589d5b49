"""Answers of a loaded model: those of the ARPA file, read by anyone, in every form."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from blackout.config import TextConfig
from blackout.ngram import NGram, evaluate, train

from .arpa import read_arpa

DATA = Path(__file__).parent / "data"

# As SRILM writes it: text in front, no back-off weight where it is 1, -99 for <s>, spaces.
FOREIGN = """some words of whoever made this

\\data\\
ngram 1=5
ngram  2 = 3
ngram 3=1

\\1-grams:
-0.5 </s>
-99 <s> -0.25
-0.6\ta\t-0.3
-0.7 b -0.2
-1 <unk>

\\2-grams:
-0.1\ta b\t-0.15
-0.2 b </s>
-0.3 <s> a 0.05

\\3-grams:
-0.05 <s> a b

\\end\\
whatever stands here is ignored
"""


@pytest.fixture(scope="module")
def small():
    return NGram.load(DATA / "small.arpa")


@pytest.fixture
def foreign(tmp_path):
    (tmp_path / "f.arpa").write_text(FOREIGN)
    return NGram.load(tmp_path / "f.arpa")


def by_hand(levels, history, word):
    """log10 P by the definition of a back-off model."""
    gram = (*history, word)
    if gram in levels[len(gram) - 1]:
        return levels[len(gram) - 1][gram][0]
    backoff = levels[len(history) - 1].get(history, (0, 0))[1]
    return backoff + by_hand(levels, history[1:], word)


def test_equals_the_definition(small):
    levels = read_arpa(DATA / "small.arpa")
    random = np.random.default_rng(3)
    words = [w for w in small.vocab if w not in ("<s>", "</s>")]
    for length in [0, 1, 2, *random.integers(3, 15, 50)]:
        sentence = list(random.choice(words, length))
        line, expected = ["<s>", *sentence, "</s>"], []
        for i in range(1, len(line)):
            expected.append(by_hand(levels, tuple(line[max(0, i - 2) : i]), line[i]))
        np.testing.assert_allclose(small.score(sentence), expected, atol=1e-6)


def test_equals_kenlm(small, tmp_path):
    kenlm = pytest.importorskip("kenlm")
    train(DATA / "small.txt", tmp_path / "m.arpa", order=5)
    for path in (DATA / "small.arpa", tmp_path / "m.arpa"):
        ours, theirs = NGram.load(path), kenlm.Model(str(path))
        assert ours.order == theirs.order
        for line in [*(DATA / "small.txt").read_text().splitlines(), "a zebra sat on a cat", "zoo"]:
            for bos in (True, False):
                expected = [score for score, _, _ in theirs.full_scores(line, bos=bos, eos=True)]
                np.testing.assert_allclose(ours.score(line.split(), bos=bos), expected, atol=1e-5)


def test_reads_what_other_programs_write(foreign):
    assert foreign.order == 3
    assert foreign.ngrams == (5, 3, 1)
    assert foreign.vocab == ["</s>", "<s>", "a", "b", "<unk>"]
    np.testing.assert_allclose(foreign.score(["a", "b"]), [-0.3, -0.05, -0.15 - 0.2], atol=1e-6)
    np.testing.assert_allclose(foreign.score(["zebra"]), [-0.25 - 1, -0.5], atol=1e-6)
    assert foreign.unigram_prob("a") == pytest.approx(10**-0.6, rel=1e-6)
    assert foreign.unigram_prob("zebra") == pytest.approx(0.1, rel=1e-6)


def test_model_without_unknown_word(tmp_path):
    text = FOREIGN.replace("-1 <unk>\n", "").replace("ngram 1=5", "ngram 1=4")
    (tmp_path / "f.arpa").write_text(text)
    model = NGram.load(tmp_path / "f.arpa")
    assert model.score(["zebra"], bos=False, eos=False)[0] == -99
    assert "zebra" not in model


def test_contexts_missing_from_the_file_change_nothing(tmp_path):
    """Some programs drop an n-gram but keep longer ones that begin with it."""
    text = FOREIGN.replace("-0.3 <s> a 0.05\n", "").replace("ngram  2 = 3", "ngram  2 = 2")
    (tmp_path / "f.arpa").write_text(text)
    model = NGram.load(tmp_path / "f.arpa")
    np.testing.assert_allclose(model.score(["a", "b"])[:2], [-0.25 - 0.6, -0.05], atol=1e-6)
    np.testing.assert_allclose(model.score(["a", "a"])[1], -0.3 - 0.6, atol=1e-6)


def test_binary_form_gives_the_same_answers(tmp_path, small, foreign):
    for model in (small, foreign):
        model.save(tmp_path / "m.bin")
        for verify in (True, False):
            again = NGram.load(tmp_path / "m.bin", verify=verify)
            assert (again.order, again.ngrams, again.vocab) == (
                model.order,
                model.ngrams,
                model.vocab,
            )
            for context in ([], ["the"], ["a", "b"], ["on", "the"]):
                assert (again.prob_all(context) == model.prob_all(context)).all()


def test_binary_form_of_every_order(tmp_path):
    for order in range(1, 7):
        train(DATA / "small.txt", tmp_path / "m.arpa", order=order)
        model = NGram.load(tmp_path / "m.arpa")
        model.save(tmp_path / "m.bin")
        sentence = ["the", "cat", "sat", "on", "the", "log", "and", "sang"]
        assert (NGram.load(tmp_path / "m.bin").score(sentence) == model.score(sentence)).all()


@pytest.mark.parametrize("lines", [0, 1, 5, 11, 12, 13, 200])
def test_text_scores_as_its_sentences(tmp_path, small, lines):
    random = np.random.default_rng(lines)
    words = [*small.vocab[3:], "zebra"]
    sentences = [list(random.choice(words, random.integers(0, 9))) for _ in range(lines)]
    expected = [score for s in sentences for score in small.score(s)]
    ids = [i for s in sentences for i in small.ids([*s, "</s>"])]
    assert small.score_tokens(np.array(ids, np.int64)).tolist() == expected
    # A text need not end with a sentence.
    unfinished = [*ids, *small.ids(["the", "cat"])]
    tail = small.score(["the", "cat"], eos=False).tolist()
    assert small.score_tokens(unfinished).tolist() == expected + tail


def test_ids_outside_the_vocabulary_are_refused(small):
    with pytest.raises(IndexError, match="size of the vocabulary"):
        small.score_tokens([0, len(small)])


def test_perplexity_and_dump(tmp_path, small):
    text = tmp_path / "text"
    text.write_text("the cat sat\n\nthe zebra ran\n<unk>\n")
    result = evaluate(small, text, dump=tmp_path / "dump")
    lines = [line.split("\t") for line in (tmp_path / "dump").read_text().splitlines()]
    words = ["the", "cat", "sat", "</s>", "the", "<unk>", "ran", "</s>", "<unk>", "</s>"]
    assert [word for word, _ in lines] == words
    scores = np.array([float(score) for _, score in lines])
    by_sentence = [small.score(s.split()) for s in ("the cat sat", "the zebra ran", "<unk>")]
    np.testing.assert_allclose(scores, np.concatenate(by_sentence), atol=1e-6)
    assert (result.words, result.sentence_ends, result.unknown) == (7, 3, 2)
    known = np.array([word != "<unk>" for word in words])
    assert result.perplexity == pytest.approx(10 ** -scores.mean(), rel=1e-5)
    assert result.perplexity_without_unk == pytest.approx(10 ** -scores[known].mean(), rel=1e-5)
    kept = evaluate(small, text, TextConfig(keep_empty=True))
    assert (kept.words, kept.sentence_ends) == (7, 4)


def test_long_line_is_scored_across_buffers(tmp_path, small, monkeypatch):
    words = (DATA / "small.txt").read_text().split() * 40
    (tmp_path / "text").write_text(" ".join(words))
    expected = 10 ** -float(small.score(words).astype(np.float64).mean())
    import blackout.text.source as source

    for chunk in (64, 1000, 1 << 20):
        monkeypatch.setitem(source.scan.__kwdefaults__, "chunk_bytes", chunk)
        for threads in (1, 3):
            result = evaluate(small, tmp_path / "text", threads=threads)
            assert result.perplexity == pytest.approx(expected, rel=1e-9)
    assert math.isfinite(expected)


def test_mapped_file_may_be_deleted_while_in_use(tmp_path, small):
    small.save(tmp_path / "m.bin")
    model = NGram.load(tmp_path / "m.bin")
    os.unlink(tmp_path / "m.bin")
    assert (model.score(["the", "cat"]) == small.score(["the", "cat"])).all()
