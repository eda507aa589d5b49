"""Rescored lists: the numbers are those of each hypothesis scored by itself."""

import math

import numpy as np
import pytest
import torch

from blackout.config import Config
from blackout.errors import UserError
from blackout.models.saved import new_model
from blackout.ngram import NGram, train
from blackout.rescore.nbest import Hypothesis, NBest, Utterance
from blackout.rescore.score import rescore
from blackout.rescore.weights import Weights, load_weights, save_weights
from blackout.text.vocab import EOS, UNK, Vocab

TEXT = "the cat sat\nthe dog sat\na cat ran to the dog\nthe bird ran\nthe mat\n"
VOCAB = Vocab.from_counts({"</s>": 5, "<unk>": 1, "the": 5, "cat": 2, "dog": 2, "sat": 2, "ran": 1})
WIDER = Vocab.from_counts({"</s>": 5, "the": 5, "cat": 2, "zebra": 1, "yak": 1})

LISTS = {
    "one": ["the cat sat", "the cat ran", "a cat sat", "the zebra sat", "the cat sat"],
    "two": [""],
    "three": ["the bird ran to the yak", "", "the", "zebra"],
}


def model_of(vocab, **model):
    settings = {"hidden": 7, "init_range": 0.9} | model
    return new_model(Config.from_dict({"model": settings}), vocab).double().eval()


def lists(texts=LISTS):
    rng = np.random.default_rng(0)
    return NBest(
        "jsonl",
        1.0,
        [
            Utterance(name, [Hypothesis(t, tuple(t.split()), *rng.normal(-5, 2, 2)) for t in some])
            for name, some in texts.items()
        ],
    )


@pytest.fixture(scope="module")
def ngram(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ngram")
    (folder / "text").write_text(TEXT)
    train(folder / "text", folder / "model.arpa", order=3)
    return NGram.load(folder / "model.arpa")


def distributions(model, words):
    """P over the network's words before each word and the end, the plain way."""
    inputs = torch.tensor([EOS, *model.vocab.ids(words)])
    hidden, _ = model(inputs[:, None], model.initial_state(1))
    return torch.softmax(model.output.logits(hidden[:, 0]), -1).detach().numpy()


def naive_network(model, words):
    rows = distributions(model, words)
    targets = [*model.vocab.ids(words), EOS]
    return sum(math.log(row[target]) for row, target in zip(rows, targets, strict=True))


def naive_mixture(model, ngram, words, weight):
    """The network's <unk> spread by unigram probability; words the n-gram lacks are its <unk>."""
    unigram = ngram.prob_all([])
    own = set(model.vocab.words) - {"<unk>"}
    outside = [
        i for i, word in enumerate(ngram.vocab) if word not in own and word not in ("<s>", "</s>")
    ]
    spread = sum(unigram[i] for i in outside)
    lacking = [i for i, word in enumerate(model.vocab.words) if i > 1 and word not in ngram]
    total = 0.0
    scores = ngram.score(words)
    rows = distributions(model, words)
    for row, word, score in zip(rows, [*words, "</s>"], scores, strict=True):
        place = int(ngram.ids([word])[0])
        if word in ngram and (word in own):
            network = row[model.vocab.id(word)]
        else:
            network = row[UNK] * unigram[place] / spread
            if word not in ngram:
                network += sum(row[i] for i in lacking)
        total += math.log(weight * network + (1 - weight) * 10.0 ** float(score))
    return total


@pytest.mark.parametrize("cell", ["sigmoid", "lstm"])
@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_the_network_alone(cell, context):
    model, nbest = model_of(VOCAB, cell=cell, context=context), lists()
    acoustic = [(h.acoustic, h.lm) for h in nbest.hypotheses]
    weights = Weights(0.5, 2.0, 0.25, word_penalty=0.3, oov_penalty=1.5)
    scored = rescore(model, nbest, weights)
    for hypothesis, (am, old) in zip(nbest.hypotheses, acoustic, strict=True):
        unknown = sum(word not in VOCAB.words for word in hypothesis.words)
        lm = naive_network(model, hypothesis.words) - 1.5 * unknown
        total = 0.5 * am + 2 * lm + 0.25 * old - 0.3 * len(hypothesis.words)
        assert hypothesis.lm == pytest.approx(lm, rel=1e-12)
        assert hypothesis.total == pytest.approx(total, rel=1e-12)
        assert hypothesis.acoustic == am
    assert scored.unknown.sum() == 6  # a, zebra; bird, to, yak; zebra


@pytest.mark.parametrize("vocab", [VOCAB, WIDER], ids=["shortlist", "words the n-gram lacks"])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_mixed_with_an_ngram(ngram, vocab, weight):
    model, nbest = model_of(vocab), lists()
    scored = rescore(model, nbest, Weights(weight=weight), ngram)
    for hypothesis in nbest.hypotheses:
        expected = naive_mixture(model, ngram, hypothesis.words, weight)
        assert hypothesis.lm == pytest.approx(expected, rel=1e-6)  # the n-gram is float32
    assert scored.unknown.sum() == 3  # zebra, yak, zebra


def test_hypotheses_of_other_utterances_change_nothing():
    model = model_of(VOCAB)
    together, alone = lists(), lists()
    rescore(model, together)
    for utterance in alone.utterances:
        rescore(model, NBest("jsonl", 1.0, [utterance]))
    pairs = zip(together.hypotheses, alone.hypotheses, strict=True)
    assert all(a.lm == pytest.approx(b.lm, rel=1e-12) for a, b in pairs)


def test_the_best_is_the_first_of_equals():
    scored = rescore(model_of(VOCAB), lists())
    totals = np.array([1.0, 3, 2, 3, 3, -7, -1, -1, -2, -1])
    assert scored.best(totals).tolist() == [1, 5, 6]


def test_an_impossible_hypothesis_loses_and_stays_a_number():
    scored = rescore(model_of(VOCAB), lists())
    scored.ngram = np.full(len(scored.network), -1.0)
    scored.ngram[scored.starts[0]] = -np.inf
    for lm_weight in (0.0, 1.0):
        totals = scored.totals(Weights(am_weight=0, lm_weight=lm_weight, weight=0))
        assert np.isfinite(totals).all()
        assert scored.best(totals)[0] == (1 if lm_weight else 0)


def test_weights_survive_their_file(tmp_path):
    weights = Weights(0.1, 1 / 3, 2, -0.5, 3, 0.25)
    save_weights(weights, tmp_path / "weights.json")
    assert load_weights(tmp_path / "weights.json") == weights


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ('{"lm": 1}', "'lm'"),
        ('{"lm_weight": "1"}', "lm_weight"),
        ('{"weight": 1.5}', "from 0 to 1"),
        ('{"lm_weight": 1e999}', "finite"),
    ],
)
def test_bad_files_of_weights(tmp_path, content, named):
    path = tmp_path / "weights.json"
    path.write_text(content)
    with pytest.raises(UserError, match=named) as error:
        load_weights(path)
    assert str(path) in str(error.value)
