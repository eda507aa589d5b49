"""``blackout ngram train`` and ``blackout ngram eval`` from the command line."""

import json
from pathlib import Path

import pytest

from blackout.cli.main import main
from blackout.ngram import NGram, evaluate

DATA = Path(__file__).parent / "data"


def result(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("name", ["m.arpa", "m.arpa.gz", "m.bin"])
def test_train_then_eval(tmp_path, capsys, name):
    text, model = str(DATA / "small.txt"), str(tmp_path / name)
    command = ["ngram", "train", "--order", "3", "--train", text, "--out", model, "--test", text]
    assert main([*command, "--json"]) == 0
    trained = result(capsys)
    assert trained["ngrams"] == sum(trained["ngrams_by_order"])
    assert trained["ngrams_by_order"] == list(NGram.load(model).ngrams)
    assert main(["ngram", "eval", model, text, "--json", "--probs", str(tmp_path / "probs")]) == 0
    evaluated = result(capsys)
    assert evaluated["perplexity"] == trained["perplexity"]
    assert evaluated["perplexity"] == evaluate(NGram.load(model), text).perplexity
    lines = (tmp_path / "probs").read_text().splitlines()
    assert len(lines) == evaluated["words"] + evaluated["sentence_ends"]


def test_text_options_reach_the_reader(tmp_path, capsys):
    text = tmp_path / "text"
    text.write_bytes(b"a b </s>\n\nc \xff\n")
    train = ["ngram", "train", "--order", "2", "--train", str(text), "--out", str(tmp_path / "m")]
    options = ["--keep-empty", "--skip-markers", "--replace-invalid"]
    assert main([*train, "--json", *options]) == 0
    assert result(capsys)["sentence_ends"] == 3
    assert main(["ngram", "eval", str(tmp_path / "m"), str(text), "--json", *options]) == 0
    assert result(capsys)["sentence_ends"] == 3


def test_pruned_model_with_a_vocabulary(tmp_path, capsys):
    (tmp_path / "words").write_text("the\ncat\ndog\n")
    command = ["ngram", "train", "--train", str(DATA / "small.txt"), "--out", str(tmp_path / "m")]
    assert main([*command, "--vocab", str(tmp_path / "words"), "--prune", "0", "1", "--json"]) == 0
    captured = capsys.readouterr()
    trained = json.loads(captured.out.splitlines()[-1])
    assert trained["ngrams_by_order"][0] == 6
    assert captured.err.count("warning: discounts of") == len(trained["warnings"]) > 0


def test_binary_form_can_be_saved_while_evaluating(tmp_path, capsys):
    arpa, text, binary = str(DATA / "small.arpa"), str(DATA / "small.txt"), tmp_path / "m.bin"
    assert main(["ngram", "eval", arpa, text, "--save", str(binary), "--json"]) == 0
    first = result(capsys)["perplexity"]
    assert main(["ngram", "eval", str(binary), text, "--json"]) == 0
    assert result(capsys)["perplexity"] == first


def test_errors_are_one_line_and_status_1(tmp_path, capsys):
    missing = str(tmp_path / "none")
    for command in (
        ["ngram", "train", "--train", missing, "--out", str(tmp_path / "m")],
        ["ngram", "eval", missing, str(DATA / "small.txt")],
        ["ngram", "train", "--train", str(DATA / "small.txt"), "--out", "m", "--memory", "x"],
    ):
        assert main(command) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.startswith(f"blackout {command[0]} {command[1]}: ")
