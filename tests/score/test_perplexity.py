"""Exact perplexity against a plain computation, word by word, with a whole softmax each."""

import io
import math

import numpy as np
import pytest
import torch

from blackout.config import Config, TextConfig
from blackout.models.saved import new_model
from blackout.score import perplexity
from blackout.score.perplexity import evaluate, log_probabilities
from blackout.text.corpus import encode_file
from blackout.text.vocab import EOS, UNK, Vocab

VOCAB = Vocab.from_counts({"</s>": 9, "<unk>": 2} | {f"w{i}": 40 - i for i in range(20)})
LINES = [
    "w1 w2 w3",
    "w4",
    "",
    "w5 new w7 w1 w1",
    " ".join(f"w{i % 20}" for i in range(57)),
    "w3",
    "",
    "",
    "new other",
    "w19 w18 w17 w2",
    "w0 w1 " * 9,
    "new",
]
TEXT = "".join(line + "\n" for line in LINES)


def make_shard(folder, text=TEXT, keep_empty=False):
    path = folder / "text"
    path.write_text(text)
    config = TextConfig(keep_empty=keep_empty)
    return encode_file(path, VOCAB, config, folder / "text.shard", threads=1)


@pytest.fixture(params=[False, True], ids=["skip-empty", "keep-empty"])
def shard(request, tmp_path):
    return make_shard(tmp_path, keep_empty=request.param)


def network(dtype=torch.float64, loss="blackout", **model):
    config = Config.from_dict(
        {
            "model": {"hidden": 6, "init_range": 1.0, **model},
            "loss": {"loss": loss, "samples": 4},
        }
    )
    return new_model(config, VOCAB).to(dtype)


def naive(model, shard):
    """log p of every token, one at a time: (V,) logits, one softmax."""
    values, state, previous = [], model.initial_state(1), EOS
    weight, bias = model.output.weight.detach(), model.output.bias
    for token in shard.tokens.tolist():
        if previous == EOS and model.config.context == "sentence":
            state = model.initial_state(1)
        with torch.no_grad():
            hidden, state = model(torch.tensor([[previous]]), state)
        logits = weight @ hidden[0, 0] + (0 if bias is None else bias.detach())
        p = (logits - logits.max()).exp()
        values.append(math.log(float(p[token] / p.sum())))
        previous = token
    return np.array(values)


def scores(model, shard):
    pieces = list(log_probabilities(model, shard))
    assert np.concatenate([tokens for tokens, _ in pieces]).tolist() == shard.tokens.tolist()
    return np.concatenate([values for _, values in pieces])


NETWORKS = [
    {},
    {"cell": "lstm", "context": "stream", "bias": True},
    {"cell": "gru", "projection": 4, "layers": 2},
    {"cell": "tanh", "context": "stream", "loss": "full"},
    {"cell": "relu", "bias": True, "loss": "nce"},
]


@pytest.mark.parametrize("settings", NETWORKS)
def test_against_one_softmax_a_word(shard, settings):
    model = network(**settings).eval()
    expected = naive(model, shard)
    np.testing.assert_allclose(scores(model, shard), expected, rtol=1e-10)
    found = evaluate(model, shard)
    unknown = shard.tokens == UNK
    assert found.perplexity == pytest.approx(math.exp(-expected.mean()), rel=1e-10)
    assert found.perplexity_without_unk == pytest.approx(
        math.exp(-expected[~unknown].mean()), rel=1e-10
    )
    assert found.unknown == unknown.sum() == 4
    assert found.sentence_ends == (shard.tokens == EOS).sum() == shard.sentences
    assert found.words == (shard.tokens != EOS).sum() == len(TEXT.split())
    assert shard.sentences == (12 if shard.options.keep_empty else 9)


@pytest.mark.parametrize("settings", NETWORKS)
def test_float32_is_close_to_float64(shard, settings):
    single, double = network(torch.float32, **settings), network(**settings)
    double.load_state_dict(single.state_dict())
    np.testing.assert_allclose(scores(single, shard), scores(double, shard), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("settings", NETWORKS)
@pytest.mark.parametrize(
    ("chunk", "batch", "steps"),
    [(1, 1, 1), (2, 5, 3), (10, 10, 7), (56, 57, 58), (57, 30, 1000), (58, 1000, 20), (400, 13, 2)],
)
def test_where_the_pieces_are_cut_does_not_matter(
    shard, settings, chunk, batch, steps, monkeypatch
):
    """Sentences longer and shorter than every limit, limits met exactly."""
    model = network(**settings)
    whole = scores(model, shard)
    monkeypatch.setattr(perplexity, "_CHUNK", chunk)
    monkeypatch.setattr(perplexity, "_BATCH", batch)
    monkeypatch.setattr(perplexity, "_STREAM_STEPS", steps)
    np.testing.assert_allclose(scores(model, shard), whole, rtol=1e-10)


def test_pieces_stay_small_however_long_the_line(tmp_path, monkeypatch):
    """No piece, and no block for the network, grows with the sentence."""
    monkeypatch.setattr(perplexity, "_CHUNK", 64)
    monkeypatch.setattr(perplexity, "_BATCH", 32)
    monkeypatch.setattr(perplexity, "_STREAM_STEPS", 16)
    shard = make_shard(tmp_path, "w1 w2 w3 " * 500 + "\nw1\n")
    model, seen = network(), []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].numel()))
    pieces = [len(tokens) for tokens, _ in log_probabilities(model, shard)]
    assert sum(pieces) == 1503
    assert max(pieces) <= 64
    assert max(seen) <= 32


@pytest.mark.parametrize("loss", ["blackout", "nce", "sampled", "full"])
@pytest.mark.parametrize("cell", ["sigmoid", "tanh", "relu", "lstm", "gru"])
def test_probabilities_sum_to_one(loss, cell):
    model = network(torch.float32, loss, cell=cell, bias=True).eval()
    hidden, _ = model(torch.randint(len(VOCAB), (5, 3)), model.initial_state(3))
    hidden = hidden.detach()
    total = model.output.log_prob(hidden).detach().exp().sum(-1)
    assert float((total - 1).abs().max()) < 1e-5
    # The same by what perplexity is made of: every word as the target of every state.
    every = torch.arange(len(VOCAB)).expand(5, 3, -1)
    spread = hidden[:, :, None].expand(-1, -1, len(VOCAB), -1)
    total = model.output.target_log_prob(spread, every).exp().sum(-1)
    assert float((total - 1).abs().max()) < 1e-5


def test_the_dump_adds_up(shard):
    model, dump = network(cell="lstm"), io.StringIO()
    found = evaluate(model, shard, dump=dump)
    rows = [line.split("\t") for line in dump.getvalue().splitlines()]
    assert [word for word, _ in rows] == [VOCAB.word(t) for t in shard.tokens.tolist()]
    values = np.array([float(value) for _, value in rows])
    assert 10 ** -values.mean() == pytest.approx(found.perplexity, rel=1e-6)
    known = np.array([word != "<unk>" for word, _ in rows])
    assert 10 ** -values[known].mean() == pytest.approx(found.perplexity_without_unk, rel=1e-6)


def test_progress_ends_at_the_end(shard, monkeypatch):
    monkeypatch.setattr(perplexity, "_CHUNK", 10)
    seen = []
    evaluate(network(), shard, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (len(shard.tokens), len(shard.tokens))


def test_the_model_s_mode_is_left_as_it_was(shard):
    model = network(dropout=0.5)
    model.train()
    first, second = evaluate(model, shard), evaluate(model, shard)
    assert model.training
    assert first.perplexity == second.perplexity  # no dropout, no samples
    assert model.output.step == 0
    model.eval()
    evaluate(model, shard)
    assert not model.training


def test_sure_and_wrong_is_not_an_overflow(tmp_path):
    """Perplexities beyond what a float can say are infinite, not an exception."""
    model = network(torch.float32, bias=True)
    with torch.no_grad():
        model.output.bias[EOS] = -5000.0
    shard = make_shard(tmp_path, "w1\n" * 3)
    assert evaluate(model, shard).perplexity == math.inf


def test_scoring_in_pieces_leaves_gradients_alone(tmp_path):
    """A caller that stops between two pieces, or never takes the rest, can still train."""
    scores = log_probabilities(network(context="stream"), make_shard(tmp_path))
    next(scores)
    assert torch.is_grad_enabled()
    del scores
    assert torch.is_grad_enabled()
