"""Mixing: weights by EM, and a mixture that sums to one over the n-gram's vocabulary."""

import math

import numpy as np
import pytest

from blackout.config import Config
from blackout.errors import UserError
from blackout.mixture.arithmetic import (
    check_weights,
    fit_weights,
    mix_log_probs,
    perplexity_curve,
    spread_unknown,
)
from blackout.mixture.components import (
    NetworkComponent,
    NGramComponent,
    Reference,
    Text,
    choose_reference,
)
from blackout.mixture.evaluate import Part, evaluate, tune
from blackout.models.saved import new_model
from blackout.ngram import NGram, train
from blackout.ngram import evaluate as ngram_evaluate
from blackout.score.dumps import read_dump
from blackout.text.vocab import Vocab

TEXT = (
    "the cat sees a dog\nthe dog has the bird\na bird sees\nthe old tree\nthe cat has a red house\n"
)
SHORTLIST = {"</s>": 5, "<unk>": 3, "the": 5, "a": 3, "cat": 2, "dog": 2}


@pytest.fixture(scope="module")
def ngram(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ngram")
    (folder / "text").write_text(TEXT)
    train(folder / "text", folder / "x.arpa", order=3)
    return NGram.load(folder / "x.arpa")


def network(counts, seed=1, **model):
    """A network with weights large enough that its distributions are far from flat."""
    settings = {"hidden": 6, "init_range": 1.5, **model}
    config = Config.from_dict({"model": settings, "run": {"seed": seed, "device": "cpu"}})
    return new_model(config, Vocab.from_counts(counts)).eval()


def possible_continuations(context, reference, tmp_path):
    """A text with a line for each word of the reference after a context, and their places."""
    inner = [word for word in reference.vocab.words if word not in ("</s>", "<unk>")]
    lines = [[*context, word] for word in [*inner, "neverseen"]]
    lines.append(context or ["the"])
    path = tmp_path / "continuations"
    path.write_text("".join(" ".join(line) + "\n" for line in lines))
    places, position = [], 0
    for line in lines[:-1]:
        places.append(position + len(context))
        position += len(line) + 1
    if context:  # the sentence end after the context alone
        places.append(position + len(context))
    text = Text(path, tmp_path / "shards", reference)
    (tmp_path / "shards").mkdir()
    return text, places


CONTEXTS = [["the"], ["the", "cat"], ["red", "zebra"], ["zebra"], ["the", "dog", "has", "a"]]


@pytest.mark.parametrize("context", CONTEXTS, ids=" ".join)
@pytest.mark.parametrize("how", ["unigram", "uniform"])
@pytest.mark.parametrize("extra", [{}, {"zebra": 1, "lion": 4}], ids=["shortlist", "other words"])
def test_the_mixture_sums_to_one(ngram, tmp_path, context, how, extra):
    """Over all words of the n-gram, its <unk> and </s>, whatever the network's vocabulary."""
    reference = Reference.of_ngram(ngram)
    model = network(SHORTLIST | extra)
    components = [
        NetworkComponent("network", model, reference, how),
        NGramComponent("n-gram", ngram, reference, how),
    ]
    text, places = possible_continuations(context, reference, tmp_path)
    pieces = list(Part(components, [], text).pieces())
    logs = np.concatenate([logs for _, logs in pieces])[places]
    words = [pieces[0][0][place] for place in places]
    assert sorted(words) == sorted(reference.vocab.words)
    assert np.exp(logs).sum(axis=0) == pytest.approx([1, 1], abs=2e-6)
    mixed = mix_log_probs(logs, [0.3, 0.7])
    assert np.exp(mixed).sum() == pytest.approx(1, abs=2e-6)
    direct = 0.3 * np.exp(logs[:, 0]) + 0.7 * np.exp(logs[:, 1])
    assert np.exp(mixed) == pytest.approx(direct, rel=1e-12)


def test_the_unknown_word_is_spread_by_unigram_or_evenly(ngram, tmp_path):
    """Two words outside the shortlist stand in the ratio of their unigrams, or are equal."""
    reference = Reference.of_ngram(ngram)
    model = network(SHORTLIST)
    (tmp_path / "text").write_text("the bird\nthe house\n")
    for how in ("unigram", "uniform"):
        folder = tmp_path / how
        folder.mkdir()
        text = Text(tmp_path / "text", folder, reference)
        logs = np.concatenate(list(NetworkComponent("n", model, reference, how).pieces(text)))
        ratio = math.exp(logs[1] - logs[4])  # bird and house, each after "the"
        expected = ngram.unigram_prob("bird") / ngram.unigram_prob("house")
        assert abs(expected - 1) > 0.2
        assert ratio == pytest.approx(expected if how == "unigram" else 1.0, rel=1e-6)


def test_words_of_the_shortlist_are_left_as_the_network_has_them(ngram, tmp_path):
    from blackout.score.perplexity import log_probabilities

    reference = Reference.of_ngram(ngram)
    model = network(SHORTLIST)
    (tmp_path / "text").write_text("the cat a dog\nbird the cat\n")
    text = Text(tmp_path / "text", tmp_path, reference)
    logs = np.concatenate(list(NetworkComponent("n", model, reference).pieces(text)))
    tokens, plain = next(iter(log_probabilities(model, text.shard(model.vocab))))
    assert (logs[tokens != 1] == plain[tokens != 1]).all()
    assert (logs[tokens == 1] < plain[tokens == 1]).all()


def test_a_network_beside_one_with_more_words(tmp_path):
    """Without an n-gram the larger network is the reference; both sum to one over its words."""
    small, large = network(SHORTLIST), network(SHORTLIST | {"bird": 2, "tree": 1}, seed=2)
    reference = choose_reference([small, large], [])
    assert reference.vocab.words == large.vocab.words
    components = [NetworkComponent("s", small, reference), NetworkComponent("l", large, reference)]
    text, places = possible_continuations(["the", "cat"], reference, tmp_path)
    logs = np.concatenate([logs for _, logs in Part(components, [], text).pieces()])[places]
    assert np.exp(logs).sum(axis=0) == pytest.approx([1, 1], abs=2e-6)


def test_an_ngram_with_fewer_words_is_a_shortlist_too(ngram, tmp_path):
    (tmp_path / "vocab").write_text("the\ncat\na\n")
    (tmp_path / "text").write_text(TEXT)
    train(tmp_path / "text", tmp_path / "small.arpa", order=2, vocab=tmp_path / "vocab")
    small = NGram.load(tmp_path / "small.arpa")
    reference = choose_reference([], [small, ngram])
    components = [NGramComponent("s", small, reference), NGramComponent("l", ngram, reference)]
    text, places = possible_continuations(["the", "cat"], reference, tmp_path)
    logs = np.concatenate([logs for _, logs in Part(components, [], text).pieces()])[places]
    assert np.exp(logs).sum(axis=0) == pytest.approx([1, 1], abs=2e-6)
    with pytest.raises(UserError, match=r"large.arpa: has the word 'bird'"):
        NGramComponent("large.arpa", ngram, Reference.of_ngram(small))


def test_the_ngram_alone_is_what_ngram_eval_says(ngram, tmp_path, monkeypatch):
    """Also when the text is scored in pieces that begin inside a sentence."""
    monkeypatch.setattr("blackout.mixture.components._TOKENS", 5)
    (tmp_path / "text").write_text(TEXT + "the zebra has the old cat\n")
    reference = Reference.of_ngram(ngram)
    (tmp_path / "shards").mkdir()
    text = Text(tmp_path / "text", tmp_path / "shards", reference)
    part = Part([NGramComponent("n", ngram, reference)], [], text)
    mixed = evaluate(part, np.array([1.0]))
    alone = ngram_evaluate(ngram, tmp_path / "text")
    assert mixed.perplexity == pytest.approx(alone.perplexity, rel=1e-6)
    assert mixed.perplexity_without_unk == pytest.approx(alone.perplexity_without_unk, rel=1e-6)
    assert mixed.component_perplexities == [mixed.perplexity]
    assert (mixed.words, mixed.sentence_ends, mixed.unknown) == (
        alone.words, alone.sentence_ends, alone.unknown,
    )  # fmt: skip


# ---------------------------------------------------------------------- EM


def random_log_probs(words, models, seed=0):
    return np.log(np.random.default_rng(seed).beta(0.5, 2, (words, models)))


@pytest.mark.parametrize("models", [2, 3, 5])
def test_em_finds_the_optimum(models):
    """At the top of a concave function no direction of the simplex leads upwards."""
    log_probs = random_log_probs(500, models)
    fit = fit_weights(log_probs)
    assert fit.weights.sum() == pytest.approx(1)
    assert fit.iterations > 0
    best = mix_log_probs(log_probs, fit.weights).mean()
    rng = np.random.default_rng(1)
    for other in rng.dirichlet(np.ones(models), 200):
        assert mix_log_probs(log_probs, other).mean() <= best + 1e-9
        near = 0.999 * fit.weights + 0.001 * other
        assert mix_log_probs(log_probs, near).mean() <= best + 1e-9


def test_em_on_two_models_equals_a_fine_grid():
    log_probs = random_log_probs(2000, 2)
    fit = fit_weights(log_probs)
    grid = np.linspace(0, 1, 2001)
    curve = perplexity_curve(log_probs, fit.weights, 0, grid)
    assert fit.weights[0] == pytest.approx(grid[curve.argmin()], abs=1e-3)
    at_the_weight = perplexity_curve(log_probs, fit.weights, 0, fit.weights[:1])[0]
    assert at_the_weight <= curve.min() * (1 + 1e-9)
    assert at_the_weight == pytest.approx(np.exp(-mix_log_probs(log_probs, fit.weights).mean()))
    # the ends of the curve are the models alone
    assert curve[[-1, 0]] == pytest.approx(np.exp(-log_probs.mean(axis=0)))


def test_em_gives_a_useless_model_nothing():
    log_probs = random_log_probs(300, 2)
    log_probs[:, 1] = log_probs[:, 0] - 0.5
    fit = fit_weights(log_probs)
    assert fit.weights == pytest.approx([1, 0], abs=1e-7)


def test_impossible_words():
    """A word one model thinks impossible is no obstacle; one that all do makes it infinite."""
    log_probs = random_log_probs(100, 2)
    log_probs[::7, 0] = -np.inf
    fit = fit_weights(log_probs)
    assert 0 < fit.weights[0] < 1
    assert np.isfinite(mix_log_probs(log_probs, fit.weights)).all()
    log_probs[3] = -np.inf
    again = fit_weights(log_probs)
    assert again.weights == pytest.approx(fit_weights(np.delete(log_probs, 3, 0)).weights)
    assert mix_log_probs(log_probs, again.weights)[3] == -np.inf
    assert fit_weights(np.full((2, 2), -np.inf)).weights == pytest.approx([0.5, 0.5])
    # weight 0 takes a model out, whatever it says
    assert mix_log_probs(np.array([[-np.inf, -1.0]]), [0, 1]).tolist() == [-1.0]


def test_tiny_probabilities_do_not_underflow():
    log_probs = np.array([[-2000.0, -2001.0], [-3000.0, -2999.0]])
    assert fit_weights(log_probs).weights == pytest.approx([0.5, 0.5])
    expected = -2000 + math.log(0.5 + 0.5 * math.exp(-1))
    assert mix_log_probs(log_probs, [0.5, 0.5]) == pytest.approx([expected, expected - 999])


def test_given_weights_are_checked():
    assert check_weights([0.25, 0.75], 2).tolist() == [0.25, 0.75]
    for weights in ([0.5], [0.5, 0.6], [-0.5, 1.5], [math.nan, 1.0]):
        with pytest.raises(UserError, match="weights"):
            check_weights(weights, 2)


def test_shares_where_only_the_unknown_word_is_outside():
    """A closed n-gram gives <unk> no probability; the network's <unk> still is that event."""
    shares = spread_unknown(np.array([0.6, 0.0, 0.4]), np.array([False, True, False]), "unigram")
    assert np.exp(shares).tolist() == [0.0, 1.0, 0.0]


# ---------------------------------------------------------------------- dumps


def write_dump(path, words, log10):
    path.write_text("".join(f"{w}\t{v}\n" for w, v in zip(words, log10, strict=True)))
    return path


def test_a_mixture_of_dumps(tmp_path):
    words = ["the", "cat", "</s>", "<unk>", "</s>"]
    first, second = [-1, -2, -0.5, -3, -0.25], [-2, -1, -0.5, -2, -0.125]
    a = write_dump(tmp_path / "a", words, first)
    b = write_dump(tmp_path / "b", words, second)
    result = evaluate(Part([], [a, b]), np.array([0.25, 0.75]))
    mixed = [0.25 * 10.0**x + 0.75 * 10.0**y for x, y in zip(first, second, strict=True)]
    assert result.perplexity == pytest.approx(math.prod(mixed) ** (-1 / 5))
    known = math.prod(mixed[:3] + mixed[4:]) ** (-1 / 4)
    assert result.perplexity_without_unk == pytest.approx(known)
    assert (result.words, result.sentence_ends, result.unknown) == (3, 2, 1)
    assert result.component_perplexities[0] == pytest.approx(10 ** (-sum(first) / 5))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("the\t-1\ndog\t-1\n</s>\t-1\n", r"b: line 2: 'dog' stands where .*a has 'cat'"),
        ("the\t-1\n<unk>\t-1\n</s>\t-1\n", r"b: line 2: '<unk>' .* different vocabularies"),
        ("the\t-1\ncat\t-1\n", r"b: ends after line 2, .*a has more words"),
        ("the\t-1\ncat\t-1\n</s>\t-1\nthe\t-1\n", r"b: line 4: goes on where .*a ends"),
        ("the\t-1\ncat\n</s>\t-1\n", r"b: line 2: is not a word, a tab"),
        ("the\t-1\ncat\tx\n</s>\t-1\n", r"b: line 2: 'x' is not a number"),
        ("the\t-1\ncat\t0.5\n</s>\t-1\n", r"b: line 2: 0.5 is not a log10-probability"),
        ("the\t-1\ncat\tnan\n</s>\t-1\n", r"b: line 2: nan is not a log10-probability"),
        ("", r"b: no words in it"),
    ],
)
def test_dumps_that_do_not_fit_are_refused(tmp_path, lines, message):
    a = write_dump(tmp_path / "a", ["the", "cat", "</s>"], [-1, -1, -1])
    (tmp_path / "b").write_text(lines)
    with pytest.raises(UserError, match=message):
        tune(Part([], [a, tmp_path / "b"]))


def test_a_long_dump_is_read_in_pieces(tmp_path):
    words = [f"w{i}" for i in range(100)]
    path = write_dump(tmp_path / "a", words, np.linspace(-5, 0, 100))
    blocks = list(read_dump(path, lines=7))
    assert [len(block) for block, _ in blocks] == [7] * 14 + [2]
    assert [word for block, _ in blocks for word in block] == words


def test_a_dump_beside_models(ngram, tmp_path):
    """A dump that another program made may spell out a word that the n-gram does not know."""
    (tmp_path / "text").write_text("the zebra\na cat\n")
    reference = Reference.of_ngram(ngram)
    (tmp_path / "shards").mkdir()
    text = Text(tmp_path / "text", tmp_path / "shards", reference)
    component = NGramComponent("n", ngram, reference)
    words = ["the", "zebra", "</s>", "a", "cat", "</s>"]
    for second in ("zebra", "<unk>"):
        dump = write_dump(tmp_path / "dump", [words[0], second, *words[2:]], [-1] * 6)
        ((names, logs),) = Part([component], [dump], text).pieces()
        assert names == ["the", "<unk>", "</s>", "a", "cat", "</s>"]
        assert logs[:, 1] == pytest.approx(-math.log(10))
    wrong = write_dump(tmp_path / "dump", ["the", "cat", *words[2:]], [-1] * 6)
    with pytest.raises(UserError, match=r"dump: line 2: 'cat' stands where .*text has '<unk>'"):
        list(Part([component], [wrong], text).pieces())


def test_the_dump_of_a_mixture_is_a_dump(ngram, tmp_path):
    (tmp_path / "text").write_text("the zebra\na cat\n")
    reference = Reference.of_ngram(ngram)
    (tmp_path / "shards").mkdir()
    text = Text(tmp_path / "text", tmp_path / "shards", reference)
    components = [
        NetworkComponent("network", network(SHORTLIST), reference),
        NGramComponent("n-gram", ngram, reference),
    ]
    with (tmp_path / "dump").open("w") as file:
        result = evaluate(Part(components, [], text), np.array([0.5, 0.5]), file)
    ((words, logs),) = read_dump(tmp_path / "dump")
    assert words == ["the", "<unk>", "</s>", "a", "cat", "</s>"]
    assert math.exp(-logs.mean()) == pytest.approx(result.perplexity, rel=1e-6)


def test_a_network_that_reads_one_stream_is_mixed_in_order(ngram, tmp_path):
    """The pieces of the stream and of the n-gram have different lengths."""
    model = network(SHORTLIST, context="stream")
    reference = Reference.of_ngram(ngram)
    (tmp_path / "text").write_text(TEXT * 60)
    (tmp_path / "shards").mkdir()
    text = Text(tmp_path / "text", tmp_path / "shards", reference)
    component = NetworkComponent("network", model, reference)
    pieces = list(component.pieces(text))
    assert len(pieces) > 1
    part = Part([component, NGramComponent("n-gram", ngram, reference)], [], text)
    ((_, logs),) = part.pieces()
    assert (logs[:, 0] == np.concatenate(pieces)).all()
