"""Scoring by prefixes equals scoring each sentence by itself, and reads nothing twice."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blackout.config import Config
from blackout.models import build_model
from blackout.rescore import prefixes
from blackout.rescore.prefixes import Event, score_sentences
from blackout.text.vocab import EOS

V = 12


def make(dtype=torch.float64, **model):
    settings = {"hidden": 6, "init_range": 0.8} | model
    config = Config.from_dict({"model": settings, "loss": {"samples": 3}})
    return build_model(config, np.arange(V, 0, -1)).to(dtype).eval()


def flatten(sentences):
    tokens = np.array([word for sentence in sentences for word in (*sentence, EOS)], np.int64)
    return tokens, np.cumsum([0] + [len(sentence) + 1 for sentence in sentences])


def alone(model, sentence):
    """Log-probabilities of one sentence from the full softmax, the plain way."""
    words = torch.tensor([EOS, *sentence, EOS])
    hidden, _ = model(words[:-1, None], model.initial_state(1))
    logs = torch.log_softmax(model.output.logits(hidden[:, 0]), -1)
    return logs[torch.arange(len(words) - 1), words[1:]].detach().numpy()


SENTENCES = [(3, 4, 5), (3, 4, 6), (), (3, 4, 5), (3,), (2, 4, 5), (3, 4, 5, 7), (1, 1), ()]


@pytest.mark.parametrize("cell", ["sigmoid", "tanh", "relu", "lstm", "gru"])
@pytest.mark.parametrize(
    "options",
    [{}, {"context": "stream"}, {"layers": 2, "projection": 4}, {"bias": True, "dropout": 0.5}],
)
def test_equal_to_each_sentence_by_itself(cell, options):
    model = make(cell=cell, **options)
    scores = score_sentences(model, *flatten(SENTENCES))
    expected = np.concatenate([alone(model, sentence) for sentence in SENTENCES])
    np.testing.assert_allclose(scores.log_probs, expected, rtol=1e-12)


def test_native_code_gives_the_same():
    model = make(torch.float32)
    scores = score_sentences(model, *flatten(SENTENCES))
    expected = np.concatenate([alone(model, sentence) for sentence in SENTENCES])
    np.testing.assert_allclose(scores.log_probs, expected, rtol=1e-5, atol=1e-6)


def test_a_model_in_training_is_scored_without_dropout_and_stays_in_training():
    model = make(dropout=0.5)
    expected = score_sentences(model, *flatten(SENTENCES)).log_probs
    model.train()
    np.testing.assert_array_equal(score_sentences(model, *flatten(SENTENCES)).log_probs, expected)
    assert model.training


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 4), max_size=5), min_size=1, max_size=12),
    st.sampled_from([1, 2, 5, 100]),
)
def test_distinct_prefixes_are_read_once(sentences, rows):
    """However prefixes are grouped; shared ones change no number."""
    model = make()
    before, prefixes._ROWS = prefixes._ROWS, rows
    try:
        scores = score_sentences(model, *flatten(sentences))
    finally:
        prefixes._ROWS = before
    ended = [(*sentence, EOS) for sentence in sentences]
    pairs = {sentence[: i + 1] for sentence in ended for i in range(len(sentence))}
    assert scores.pairs == len(pairs)
    assert scores.prefixes == len({pair[:-1] for pair in pairs})
    expected = np.concatenate([alone(model, sentence) for sentence in sentences])
    np.testing.assert_allclose(scores.log_probs, expected, rtol=1e-12)


def test_batches_of_sentences(monkeypatch):
    model = make()
    whole = score_sentences(model, *flatten(SENTENCES * 20))
    monkeypatch.setattr(prefixes, "_STATE_BYTES", 1)
    seen = []
    parts = score_sentences(
        model, *flatten(SENTENCES * 20), progress=lambda done, total: seen.append((done, total))
    )
    np.testing.assert_allclose(parts.log_probs, whole.log_probs, rtol=1e-12)
    assert parts.prefixes > whole.prefixes
    assert len(seen) == 3
    assert seen[-1] == (len(whole.log_probs),) * 2


def test_an_event_is_asked_where_its_words_stand(monkeypatch):
    monkeypatch.setattr(prefixes, "_EVENT_ROWS", 2)
    model = make()
    words = np.zeros(V, bool)
    words[[4, 5]] = True

    def either(hidden, history):
        return torch.log_softmax(model.output.logits(hidden), -1)[:, [4, 5]].logsumexp(-1)

    tokens, offsets = flatten(SENTENCES)
    scores = score_sentences(model, tokens, offsets, event=Event(words, either))
    asked = words[tokens]
    assert np.isneginf(scores.events[~asked]).all()
    for i in np.flatnonzero(asked):
        begin = offsets[np.searchsorted(offsets, i, side="right") - 1]
        prefix = tokens[begin:i].tolist()
        both = [alone(model, [*prefix, word])[len(prefix)] for word in (4, 5)]
        assert scores.events[i] == pytest.approx(np.logaddexp(*both), rel=1e-12)
