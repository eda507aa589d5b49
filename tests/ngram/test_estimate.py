"""The estimates are those of the formulas and of lmplz, whatever the memory and the threads."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.ngram import NGram, train

from .arpa import read_arpa
from .naive import BOS, EOS, UNK, Naive

DATA = Path(__file__).parent / "data"
KEEP = TextConfig(keep_empty=True)

words = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
sentences = st.lists(st.lists(words, max_size=7), min_size=1, max_size=25)
slow = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write(path, lines):
    path.write_text("".join(" ".join(line) + "\n" for line in lines))
    return path


def random_text(path, lines=400, types=60, seed=7):
    """Words with a Zipfian look, so that all closed-form discounts exist."""
    random = np.random.default_rng(seed)
    ranks = np.minimum(random.zipf(1.3, (lines, 12)), types)
    lengths = random.integers(1, 13, lines)
    return write(path, [[f"w{r}" for r in row[:n]] for row, n in zip(ranks, lengths, strict=True)])


def log10(value):
    """As ARPA files have it: a discount of 0 leaves nothing for the lower order."""
    return math.log10(value) if value > 1e-99 else -99


def check_against(naive, arpa):
    assert set(arpa[0]) == {(w,) for w in naive.words}
    for n in range(1, naive.order + 1):
        if n > 1:
            assert set(arpa[n - 1]) == naive.kept[n - 1]
        for gram, (prob, backoff) in arpa[n - 1].items():
            if gram == (BOS,):
                assert prob == 0
            else:
                assert prob == pytest.approx(log10(naive.prob(gram[-1], gram[:-1])), abs=1e-6)
            if n < naive.order:
                gamma = naive.gamma.get(gram, 1.0)
                assert backoff == pytest.approx(log10(gamma), abs=1e-6)


@slow
@given(sentences=sentences, order=st.integers(1, 6), threads=st.integers(1, 3))
def test_equals_the_formulas(tmp_path, sentences, order, threads):
    text = write(tmp_path / "text", sentences)
    train(text, tmp_path / "m.arpa", order=order, config=KEEP, threads=threads)
    check_against(Naive(sentences, order), read_arpa(tmp_path / "m.arpa"))


@slow
@given(sentences=sentences, thresholds=st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_pruning_equals_the_formulas(tmp_path, sentences, thresholds):
    prune = sorted(thresholds)
    text = write(tmp_path / "text", sentences)
    train(text, tmp_path / "m.arpa", order=3, config=KEEP, prune=prune)
    padded = prune + prune[-1:] * (3 - len(prune))
    check_against(Naive(sentences, 3, prune=padded), read_arpa(tmp_path / "m.arpa"))


def test_closed_form_discounts_on_larger_data(tmp_path):
    text = random_text(tmp_path / "text")
    estimate = train(text, tmp_path / "m.arpa", order=4)
    assert estimate.warnings == ()
    naive = Naive([line.split() for line in text.read_text().splitlines()], 4)
    np.testing.assert_allclose(estimate.discounts, naive.discounts, rtol=1e-12)
    check_against(naive, read_arpa(tmp_path / "m.arpa"))


def test_equals_lmplz(tmp_path):
    """data/small.arpa is what ``lmplz -o 3 --discount_fallback`` makes of data/small.txt."""
    train(DATA / "small.txt", tmp_path / "m.arpa", order=3)
    ours, theirs = read_arpa(tmp_path / "m.arpa"), read_arpa(DATA / "small.arpa")
    for mine, other in zip(ours, theirs, strict=True):
        assert list(mine) == list(other)  # the same n-grams in the same order
        np.testing.assert_allclose(list(mine.values()), list(other.values()), atol=1e-5)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_memory_and_threads_do_not_change_a_byte(tmp_path, order):
    text = random_text(tmp_path / "text", lines=1500, types=500)
    train(text, tmp_path / "plain.arpa", order=order, threads=1)
    expected = (tmp_path / "plain.arpa").read_bytes()
    for memory in (4096, "64K", "1M"):
        for threads in (1, 2, 5):
            out = tmp_path / "other.arpa"
            train(text, out, order=order, memory=memory, threads=threads, prune=[0])
            assert out.read_bytes() == expected


@slow
@given(sentences=sentences, order=st.integers(1, 5), prune=st.integers(0, 1))
def test_probabilities_sum_to_one(tmp_path, sentences, order, prune):
    text = write(tmp_path / "text", sentences)
    train(text, tmp_path / "m.arpa", order=order, config=KEEP, prune=[0, prune][:order])
    model = NGram.load(tmp_path / "m.arpa")
    contexts = {gram for level in read_arpa(tmp_path / "m.arpa") for gram in level}
    contexts |= {("g", "a"), ("nowhere", "a"), ("a", "nowhere"), (EOS, "b"), (BOS, "zebra", "a")}
    for context in contexts:
        assert model.prob_all(context).sum() == pytest.approx(1, abs=1e-5)
    assert model.prob_all([], bos=True).sum() == pytest.approx(1, abs=1e-5)


@slow
@given(sentences=sentences, asked=sentences, order=st.integers(1, 5))
def test_backing_off_gives_the_interpolated_probability(tmp_path, sentences, asked, order):
    text = write(tmp_path / "text", sentences)
    train(text, tmp_path / "m.arpa", order=order, config=KEEP)
    naive, model = Naive(sentences, order), NGram.load(tmp_path / "m.arpa")
    for sentence in asked:
        known = [w if w in naive.words else UNK for w in sentence]
        history, expected = (BOS,), []
        for word in [*known, EOS]:
            expected.append(log10(naive.prob(word, history)))
            history = (*history, word)
        scores = np.maximum(model.score(sentence), -99)
        np.testing.assert_allclose(scores, expected, atol=3e-6)


def test_literal_unk_is_counted_as_the_unknown_word(tmp_path):
    lines = [["a", "<unk>", "b"], ["<unk>", "a"], ["b", "<unk>"]]
    train(write(tmp_path / "text", lines), tmp_path / "m.arpa", order=2)
    renamed = [[w.replace("<unk>", "u") for w in line] for line in lines]
    train(write(tmp_path / "text2", renamed), tmp_path / "m2.arpa", order=2)
    model, other = NGram.load(tmp_path / "m.arpa"), NGram.load(tmp_path / "m2.arpa")
    assert "<unk> a" in (tmp_path / "m.arpa").read_text()
    assert model.prob_all(["a"]).sum() == pytest.approx(1, abs=1e-6)
    # One word fewer shares the uniform part; apart from that the two are the same model.
    assert model.score(["never"])[0] == pytest.approx(other.score(["u"])[0], abs=0.03)


def test_vocabulary_file_makes_other_words_unknown(tmp_path):
    text = write(tmp_path / "text", [["a", "b", "c"], ["c", "a"], ["b", "d", "a"]])
    (tmp_path / "vocab.txt").write_text("</s>\t3\n<unk>\t0\na\t3\nb\t2\nextra\t0\n")
    train(text, tmp_path / "m.arpa", order=2, vocab=tmp_path / "vocab.txt")
    model = NGram.load(tmp_path / "m.arpa")
    assert set(model.vocab) == {"<unk>", "<s>", "</s>", "a", "b", "extra"}
    assert model.prob_all(["a"]).sum() == pytest.approx(1, abs=1e-6)
    masked = write(tmp_path / "masked", [["a", "b", UNK], [UNK, "a"], ["b", UNK, "a"]])
    train(masked, tmp_path / "masked.arpa", order=2)
    ours, plain = read_arpa(tmp_path / "m.arpa"), read_arpa(tmp_path / "masked.arpa")
    assert set(ours[1]) == set(plain[1])


def test_several_files_count_together(tmp_path):
    lines = [["a", "b"], ["b", "c"], ["c", "a", "b"]]
    whole = write(tmp_path / "whole", lines)
    parts = [write(tmp_path / f"part{i}", [line]) for i, line in enumerate(lines)]
    estimate = train(parts, tmp_path / "parts.arpa", order=3)
    train(whole, tmp_path / "whole.arpa", order=3)
    assert (tmp_path / "parts.arpa").read_bytes() == (tmp_path / "whole.arpa").read_bytes()
    assert (estimate.words, estimate.sentences) == (7, 3)


def test_files_by_name(tmp_path):
    text = random_text(tmp_path / "text")
    for name in ("m.arpa", "m.arpa.gz", "m.bin"):
        train(text, tmp_path / name, order=3)
    plain = (tmp_path / "m.arpa").read_bytes()
    assert gzip.decompress((tmp_path / "m.arpa.gz").read_bytes()) == plain
    models = [NGram.load(tmp_path / name) for name in ("m.arpa", "m.arpa.gz", "m.bin")]
    scores = [model.score(["w1", "w2", "w3", "other"]) for model in models]
    assert (scores[0] == scores[1]).all()
    assert (scores[0] == scores[2]).all()


def test_tiny_data_falls_back_with_a_warning_or_refuses(tmp_path):
    text = write(tmp_path / "text", [["a", "b"]])
    estimate = train(text, tmp_path / "m.arpa", order=2)
    assert len(estimate.warnings) == 2
    assert estimate.warnings[0].startswith("discounts of 1-grams replaced by 0.5 1 1.5: none has")
    with pytest.raises(UserError, match=r"text: Kneser-Ney discounts of 1-grams cannot be"):
        train(text, tmp_path / "n.arpa", order=2, discount_fallback=None)
    assert not (tmp_path / "n.arpa").exists()


def test_reports_progress(tmp_path):
    seen = []
    train(
        random_text(tmp_path / "text"),
        tmp_path / "m.arpa",
        order=2,
        progress=lambda stage, done, total: seen.append((stage, done, total)),
    )
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages[0] == "counting"
    assert "adjusting counts" in stages
    assert all(0 <= done <= total for _, done, total in seen)
