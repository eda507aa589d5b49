"""Every verb works with every member of the family of output layers."""

import itertools
import json
import math

import pytest
import torch

import blackout
from blackout.cli.main import main
from blackout.text.vocab import EOS

FAMILY = {
    "maxent": {"loss": "blackout", "maxent": 2, "maxent_bits": 12},
    "maxent-full": {"loss": "full", "maxent": 2, "maxent_bits": 9},
    "maxent-tree": {"loss": "hierarchical", "tree_arity": 3, "maxent": 2, "maxent_bits": 12},
    "self-normalised": {"loss": "self-normalised", "gamma": 0.05},
    "self-normalised-all": {"loss": "self-normalised", "normalise_over": "all"},
    "spherical": {"loss": "spherical", "spherical_lr": 0.05},
    "lsh": {"loss": "blackout", "proposal": "lsh"},
}


@pytest.fixture(params=FAMILY)
def member(request):
    return request.param


@pytest.fixture(scope="module")
def trained(lab):
    """One run of each member, made when it is first asked for."""
    runs = {}

    def run(name):
        if name not in runs:
            runs[name] = lab.folder / f"family-{name}"
            assert main(lab.options(runs[name], epochs=2, **FAMILY[name])) == 0
        return runs[name]

    return run


@pytest.fixture
def result(capsys):
    def call(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def by_hand(model, sentence):
    """Log-probabilities of a sentence's words and its end, one word after another."""
    words = [EOS, *model.vocab.ids(sentence.split()), EOS]
    state, logs = model.initial_state(1), []
    model.eval()
    with torch.no_grad():
        for word, target in itertools.pairwise(words):
            hidden, history, state = model.read_word(torch.tensor([word]), state)
            logs.append(float(model.output.log_prob(hidden, history=history)[0, target]))
    return logs


def test_train_and_eval(lab, trained, member, result, tmp_path):
    dump = tmp_path / "probs.txt"
    run = trained(member)
    values = result("eval", run, lab.text("test"), "--probs", dump)
    model = blackout.load(run)
    lines = lab.text("test").read_text().splitlines()
    expected = [x for line in lines for x in by_hand(model, line)]
    found = [float(line.split("\t")[1]) * math.log(10) for line in dump.read_text().splitlines()]
    assert found == pytest.approx(expected, abs=1e-4)
    assert values["perplexity"] == pytest.approx(math.exp(-sum(expected) / len(expected)), rel=1e-4)


def test_probabilities_sum_to_one(trained, member):
    model = blackout.load(trained(member)).eval()
    words = torch.randint(len(model.vocab), (7, 3), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        read = model.read(words, model.initial_state(3))
        logs = model.output.log_prob(read.hidden, history=read.history)
    assert logs.double().exp().sum(-1) == pytest.approx(1, abs=1e-5)


def test_a_resumed_run_is_the_same(lab, member, tmp_path):
    settings = {**FAMILY[member], "checkpoint_minutes": 1e-9}
    straight, halves = tmp_path / "a", tmp_path / "b"
    lab.train(straight, epochs=2, **settings)
    lab.train(halves, epochs=2, stop_after=1, **settings)
    lab.train(halves, epochs=2, resume=True, **settings)
    assert lab.differing(lab.final(straight), lab.final(halves)) == []


def test_mix_and_rescore(lab, trained, member, result, tmp_path):
    run, arpa = trained(member), tmp_path / "m.arpa"
    result("ngram", "train", "--train", lab.text("train"), "--out", arpa, "--order", 2)
    values = result("mix", run, arpa, "--tune", lab.text("valid"), "--test", lab.text("test"))
    alone = result("eval", run, lab.text("test"))
    assert values["model_perplexity"] == pytest.approx(alone["perplexity"], rel=1e-5)

    texts = ["the cat sees the dog", "the cat sees a bird", "a old house"]
    lists, out = tmp_path / "lists.jsonl", tmp_path / "out.jsonl"
    hyps = [{"text": text, "am": 0.0, "lm": 0.0} for text in texts]
    lists.write_text(json.dumps({"utt": "u", "hyps": hyps}) + "\n")
    result("rescore", run, lists, "--format", "jsonl", "--out", out)
    model = blackout.load(run)
    scores = {hyp["text"]: hyp["lm"] for hyp in json.loads(out.read_text())["hyps"]}
    for text in texts:
        assert scores[text] == pytest.approx(sum(by_hand(model, text)), abs=1e-3)
    result("rescore", run, lists, "--format", "jsonl", "--out", out, "--ngram", arpa)


def test_generate_and_bench(lab, trained, member, result, tmp_path):
    assert result("generate", trained(member), "--prompt", "the cat", "--words", 6)["text"]
    known = {k: v for k, v in FAMILY[member].items() if k in ("loss", "maxent", "maxent_bits")}
    given = [x for k, v in known.items() for x in (f"--{k.replace('_', '-')}", v)]
    small = ["--vocab-size", 50, "--hidden", 8, "--seconds", 0.05, "--threads", 1, *given]
    blocks = ["--batch", 4, "--bptt", 3, "--proposal", FAMILY[member].get("proposal", "unigram")]
    assert result("bench", "train", *small, *blocks)["words_per_second"] > 0
    assert result("bench", "eval", *small, "--words", 64)["words_per_second"] > 0
