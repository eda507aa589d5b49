"""Hierarchical, class-based and adaptive softmax with every verb."""

import itertools
import json
import math

import pytest
import torch

import blackout
from blackout.cli.main import main
from blackout.text.vocab import EOS

LOSSES = {
    "hierarchical": {"tree_arity": 3},
    "classes": {"class_count": 4},
    "adaptive": {"cutoffs": 5},
}
NORMALISED = {"normalise_over": "all"}


@pytest.fixture(scope="module", params=LOSSES)
def run(request, lab):
    out = lab.folder / f"run-{request.param}"
    assert main(lab.options(out, loss=request.param, epochs=2, **LOSSES[request.param])) == 0
    return out


@pytest.fixture
def result(capsys):
    def call(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def test_the_verbs_agree_on_log_probabilities(lab, run, result, tmp_path):
    """`eval`, `mix`, `rescore` and `generate` against the model's own words, one at a time."""
    model = blackout.load(run)

    def by_hand(sentence):
        words = [EOS, *model.vocab.ids(sentence.split()), EOS]
        state, total = model.initial_state(1), 0.0
        for word, target in itertools.pairwise(words):
            hidden, _, state = model.read_word(torch.tensor([word]), state)
            logs = model.output.log_prob(hidden)[0]
            assert math.isclose(float(logs.exp().sum().detach()), 1, abs_tol=1e-5)
            total += float(logs[target].detach())
        return total

    lines = lab.text("test").read_text().splitlines()
    words = sum(len(line.split()) + 1 for line in lines)
    values = result("eval", run, lab.text("test"))
    expected = math.exp(-sum(by_hand(line) for line in lines) / words)
    assert values["perplexity"] == pytest.approx(expected, rel=1e-4)

    arpa = tmp_path / "m.arpa"
    result("ngram", "train", "--train", lab.text("train"), "--out", arpa, "--order", 2)
    mixed = result("mix", run, arpa, "--tune", lab.text("valid"), "--test", lab.text("test"))
    assert mixed["model_perplexity"] == pytest.approx(values["perplexity"], rel=1e-5)

    texts = ["the cat sees the dog", "a old house"]
    lists, out = tmp_path / "lists.jsonl", tmp_path / "out.jsonl"
    hyps = [{"text": text, "am": 0.0, "lm": 0.0} for text in texts]
    lists.write_text(json.dumps({"utt": "u", "hyps": hyps}) + "\n")
    result("rescore", run, lists, "--format", "jsonl", "--out", out)
    for hyp in json.loads(out.read_text())["hyps"]:
        assert hyp["lm"] == pytest.approx(by_hand(hyp["text"]), abs=1e-3)
    text = result("generate", run, "--prompt", "the cat", "--words", 5)["text"]
    assert text.startswith("the cat")


def test_a_resumed_run_is_the_same(lab, run, tmp_path):
    loss = run.name.removeprefix("run-")
    options = {"loss": loss, "checkpoint_minutes": 1e-9, **LOSSES[loss]}
    if loss == "adaptive":
        options["cutoffs"] = (5,)
    straight, halves = tmp_path / "a", tmp_path / "b"
    lab.train(straight, epochs=2, **options)
    lab.train(halves, epochs=1, **options)
    lab.train(halves, epochs=2, resume=True, **options)
    assert lab.differing(lab.final(straight), lab.final(halves)) == []


def test_tune_and_bench_and_report(lab, run, result, tmp_path):
    loss = run.name.removeprefix("run-")
    if loss == "hierarchical":  # one process more is enough
        options = lab.options(tmp_path / "tune", loss=loss, epochs=1)[1:]
        tuned = result("tune", *options, "--grid", "tree-arity=2,3", "--workers", 1)
        assert len(tuned["trials"]) == 2
    small = ["--vocab-size", 60, "--hidden", 8, "--seconds", 0.05, "--threads", 1, "--loss", loss]
    for verb in ("train", "eval"):
        assert result("bench", verb, *small)["words_per_second"] > 0
    title = blackout.losses.find(loss).title
    assert title in (run / "report.html").read_text()


def test_a_tree_and_classes_of_the_users(lab, result, tmp_path):
    """They are in the model: the file may be gone."""
    for loss, option, line in (
        ("hierarchical", "tree_file", lambda i, word: f"{word} {i % 3}.{i // 3 % 2}.{i // 6}"),
        ("classes", "class_file", lambda i, word: f"{word} class-{i % 5}"),
    ):
        path, out = tmp_path / f"{option}.txt", tmp_path / loss
        words = lab.data.vocab.words
        path.write_text("".join(f"{line(i, word)}\n" for i, word in enumerate(words)))
        assert main(lab.options(out, loss=loss, epochs=1, **{option: str(path)})) == 0
        by_file = result("eval", out, lab.text("test"))["perplexity"]
        path.unlink()
        assert result("eval", out, lab.text("test"))["perplexity"] == by_file
        tree = blackout.load(out).output.tree
        wanted = 3 if loss == "hierarchical" else 5  # children of the root
        assert int((tree.up == 0).sum()) == wanted


def error_line(arguments, capsys):
    assert main(arguments) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_bad_input_is_one_clear_line(lab, tmp_path, capsys):
    def line(**options):
        return error_line(lab.options(tmp_path / "out", **options), capsys)

    assert "tree_arity is 1, must be at least 2" in line(loss="hierarchical", tree_arity=1)
    assert "class_count is 0, must be at least 1" in line(loss="classes", class_count=0)
    assert "class_count is 9999, must be 1 … " in line(loss="classes", class_count=9999)
    assert "cutoffs is [9999], must rise" in line(loss="adaptive", cutoffs=9999)
    for loss, more in (*((loss, {}) for loss in LOSSES), ("self-normalised", NORMALISED)):
        assert (
            f"proposal is 'lsh', must be unigram with loss {loss}, which draws no samples"
        ) in line(loss=loss, proposal="lsh", **more)
    gone = tmp_path / "gone"
    assert f"{gone}: cannot be read" in line(loss="hierarchical", tree_file=str(gone))
    gone.write_text("the A\n")
    assert f"{gone}: has no class for '</s>' and " in line(loss="classes", class_file=str(gone))
    gone.write_text("the A\nthe B\n")
    twice = f"{gone}:2: 'the' is there twice, first in line 1"
    assert twice in line(loss="classes", class_file=str(gone))
    gone.write_text("the 0\nthe 1\n")
    assert twice in line(loss="hierarchical", tree_file=str(gone))
    gone.write_bytes(b"\xff\xfe")
    assert f"{gone}: is not valid UTF-8" in line(loss="classes", class_file=str(gone))
    tied = [*lab.options(tmp_path / "out", loss="hierarchical"), "--tie"]
    assert "tie: loss hierarchical has no table" in error_line(tied, capsys)
