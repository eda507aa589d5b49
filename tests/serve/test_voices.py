"""Models word by word: the same probabilities as whole texts have, whoever is read beside them."""

from __future__ import annotations

import numpy as np
import pytest

from blackout.config import Config
from blackout.mixture.mixture import Mixture
from blackout.mixture.voices import Voice
from blackout.models import load
from blackout.models.saved import new_model
from blackout.ngram import NGram
from blackout.ngram import train as train_ngram
from blackout.text.vocab import Vocab
from blackout.text.words import split_sentences

TEXT = "the cat sees a house\nthe zebra has\na dog\n"
VOCAB = Vocab.from_counts({"</s>": 9, "the": 5, "cat": 3, "emu": 2, "house": 2, "a": 1})


@pytest.fixture(scope="module")
def ngram(lab, tmp_path_factory):
    path = tmp_path_factory.mktemp("ngram") / "three.arpa"
    train_ngram(lab.text("train"), path, order=3)
    return NGram.load(path)


@pytest.mark.parametrize("context", ["sentence", "stream"])
@pytest.mark.parametrize("cell", ["sigmoid", "lstm"])
def test_steps_mixture_and_whole_text_agree(tmp_path, ngram, context, cell):
    """A network with a shortlist and a word of its own, mixed with an n-gram."""
    settings = {"hidden": 6, "layers": 2, "cell": cell, "context": context}
    model = new_model(Config.from_dict({"model": settings}), VOCAB)
    path = tmp_path / "text"
    path.write_text(TEXT)
    mixture = Mixture([("network", model), ("n-gram", ngram)], threads=1)
    voice = Voice.of("both", [model, ngram], [0.4, 0.6])
    dump = tmp_path / "dump"
    with dump.open("w") as file:
        mixture.evaluate(path, voice.weights, dump=file)
    expected = [float(line.split("\t")[1]) for line in dump.read_text().splitlines()]

    words = split_sentences(TEXT)
    rows = np.concatenate(list(voice.rows([words])))
    ids = voice.vocab.ids(words)
    np.testing.assert_allclose(np.exp(rows).sum(1), 1, atol=1e-5)
    found = rows[np.arange(len(ids)), ids] / np.log(10)
    np.testing.assert_allclose(found, expected, atol=1e-5)

    state = voice.read([])
    for word, row in zip(words, rows, strict=True):
        np.testing.assert_allclose(voice.log_probs([state])[0], row, atol=1e-5)
        (state,) = voice.advance([state], [word])


def test_streams_side_by_side_are_as_alone(ngram):
    model = new_model(Config.from_dict({"model": {"hidden": 6}}), VOCAB)
    voice = Voice.of("both", [model, ngram])
    texts = [split_sentences(line) for line in ("the cat", "a house a", "zebra the emu cat a")]
    together = np.concatenate(list(voice.rows(texts)))
    alone = np.concatenate([row for text in texts for row in voice.rows([text])])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    states = [voice.read(text[:-1]) for text in texts]
    own = np.array([1.0, 0.0])
    mixed = voice.log_probs(states, [None, own, None])
    np.testing.assert_allclose(mixed[0], alone[len(texts[0]) - 1], atol=1e-5)
    np.testing.assert_allclose(
        mixed[1], Voice.of("", [model, ngram], own).log_probs(states[1:2])[0], atol=1e-5
    )


def test_a_state_is_small(trained):
    """No stream keeps the batch it was read in."""
    model = load(trained / "small")
    voice = Voice.of("small", [model])
    states = voice.advance([voice.read(["the"])] * 40, ["cat"] * 40)
    (reading,) = states[7]
    assert reading.state.layers.untyped_storage().nbytes() == model.config.hidden * 4
    assert reading.hidden.untyped_storage().nbytes() == model.config.hidden * 4
