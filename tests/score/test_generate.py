"""Generated text: seed, temperature, top-k, prompt, unknown words."""

import pytest
import torch

import blackout
from blackout.score.generate import generate
from blackout.tables import Table
from blackout.text.vocab import EOS, UNK


@pytest.fixture(scope="module", params=["sentence", "stream"])
def model(lab, request):
    out = lab.folder / f"generate-{request.param}"
    lab.train(out, cell="lstm", context=request.param, epochs=3)
    return blackout.load(out)


def test_one_seed_one_text(model):
    texts = [generate(model, words=40, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_loading_and_generating_leave_the_program_s_random_numbers_alone(lab, tmp_path):
    lab.train(tmp_path / "out", epochs=1)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    generate(blackout.load(tmp_path / "out"), words=5)
    assert torch.equal(torch.rand(3), expected)


def most_probable(model, prompt, words):
    """Greedy words, each from the whole history anew."""
    history = [EOS, *model.vocab.ids(prompt.split())]
    for _ in range(words):
        hidden, _ = model(torch.tensor(history)[:, None], model.initial_state(1))
        scores = model.output.log_prob(hidden[-1, 0])
        scores[UNK] = -torch.inf
        history.append(int(scores.argmax()))
    return history[1:]


def test_temperature_0_is_the_most_probable_word(model):
    text = generate(model, prompt="the cat", words=12, temperature=0)
    words = most_probable(model, "the cat", 12)
    assert text.split() == [model.vocab.word(word) for word in words if word != EOS]


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"temperature": 1e-300}, {"temperature": 1e-6}])
def test_other_ways_to_say_the_most_probable(model, settings):
    assert generate(model, words=30, **settings) == generate(model, words=30, temperature=0)


def test_top_k_keeps_the_k_most_probable(model):
    hidden, _ = model(torch.tensor([[EOS]]), model.initial_state(1))
    scores = model.output.log_prob(hidden[-1, 0]).detach()
    scores[UNK] = -torch.inf
    best = {model.vocab.word(int(w)) for w in scores.topk(3).indices}
    first = {generate(model, words=1, top_k=3, seed=s) or "</s>" for s in range(60)}
    assert first == best
    assert len({generate(model, words=1, seed=s) for s in range(60)}) > 3


def test_chances_are_the_model_s(model):
    hidden, _ = model(torch.tensor([[EOS], [2]]), model.initial_state(1))
    scores = model.output.log_prob(hidden[-1, 0]).detach().double()
    scores[UNK] = -torch.inf
    chances = (scores / 0.7).softmax(-1)
    counts = torch.zeros(len(chances), dtype=torch.float64)
    prompt = model.vocab.word(2)
    for seed in range(1500):
        added = generate(model, prompt=prompt, words=1, temperature=0.7, seed=seed)[len(prompt) :]
        counts[model.vocab.id(added.strip()) if added.strip() else EOS] += 1
    expected = 1500 * chances
    usual = expected >= 5
    chi2 = float(((counts - expected)[usual] ** 2 / expected[usual]).sum())
    assert counts[UNK] == 0
    assert chi2 < 3 * int(usual.sum())  # about its mean; seeds are fixed


@pytest.mark.parametrize(
    "prompt", ["the Zebra  has", " the", "the cat\na dog", "</s> <unk> x", "the\n"]
)
def test_the_prompt_stays_as_typed(model, prompt):
    text = generate(model, prompt=prompt, words=8)
    assert text.startswith(prompt)
    added = text[len(prompt) :]
    assert added.split() == [w for w in added.split() if w in model.vocab.words]
    assert generate(model, prompt=prompt, words=0) == prompt.rstrip("\n")


def test_an_unknown_word_of_the_prompt_is_read_as_one(model):
    a, b = (generate(model, prompt=p, words=10) for p in ("the Zebra", "the <unk>"))
    assert a.removeprefix("the Zebra") == b.removeprefix("the <unk>")


def test_no_unknown_word_unless_allowed(model):
    model.output.biases = Table(len(model.vocab), None, init_range=0.0)
    model.output.biases.set_row(UNK, 50.0)
    try:
        assert "<unk>" not in generate(model, words=50)
        assert generate(model, words=5, allow_unknown=True) == "<unk> <unk> <unk> <unk> <unk>"
    finally:
        model.output.biases = None


def test_each_sentence_has_its_line(model):
    text = generate(model, words=200)
    assert "\n" in text
    assert "</s>" not in text
    assert all(line == " ".join(line.split()) for line in text.split("\n"))
