"""The command-line contract: JSON on standard output, text on standard error, help at once."""

import json
import math
import subprocess
import sys

import pytest

from blackout.cli.main import VERBS, main


@pytest.fixture(scope="module")
def run(lab):
    out = lab.folder / "json-run"
    assert main(lab.options(out)) == 0
    return out


@pytest.fixture
def result(capsys):
    """The JSON a command line gives, and the text beside it."""

    def call(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0
        said = capsys.readouterr()
        lines = said.out.splitlines()
        assert len(lines) == 1, "nothing but the JSON object on standard output"
        assert said.err
        return json.loads(lines[0], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return call


def test_train(lab, tmp_path, result):
    values = result(*lab.options(tmp_path / "out", epochs=2))
    assert {
        "valid_perplexity", "test_perplexity", "test_perplexity_without_unk",
        "words_per_second", "epochs", "model",
    } <= values.keys()  # fmt: skip
    assert values["epochs"] == 2
    assert values["model"] == str(tmp_path / "out")
    assert 1 < values["test_perplexity"] < 100
    assert values["words_per_second"] > 0
    # What train says of the best model is what eval finds.
    found = result("eval", tmp_path / "out", lab.text("test"))
    assert found["perplexity"] == values["test_perplexity"]
    found = result("eval", tmp_path / "out", lab.text("valid"))
    assert found["perplexity"] == values["valid_perplexity"]


def test_train_without_test_text(lab, tmp_path, result):
    values = result(*lab.options(tmp_path / "out", test=None))
    assert values["test_perplexity"] is None
    assert values["test_perplexity_without_unk"] is None


def test_eval(lab, run, result):
    values = result("eval", run, lab.text("test"))
    assert {
        "perplexity", "perplexity_without_unk", "words", "unknown", "words_per_second",
    } <= values.keys()  # fmt: skip
    assert values["words"] == len(lab.text("test").read_text().split())
    assert values["sentence_ends"] == 12


def test_eval_of_unknown_words_alone(run, tmp_path, result):
    """There is no mean over no words: null, which is JSON, not NaN."""
    (tmp_path / "text").write_text("x y z\n")
    values = result("eval", run, tmp_path / "text")
    assert values["unknown"] == values["words"] == 3
    assert math.isfinite(values["perplexity_without_unk"])  # of the sentence end
    assert values["perplexity"] > values["perplexity_without_unk"]


def test_eval_reads_text_as_training_did(lab, tmp_path, result):
    (tmp_path / "text").write_text("the cat\n\n\na dog\n")
    for keep, ends in ((False, 2), (True, 4)):
        out = tmp_path / str(keep)
        flag = ["--keep-empty"] if keep else []
        assert main([*lab.options(out), *flag]) == 0
        assert result("eval", out, tmp_path / "text")["sentence_ends"] == ends
        other = "--no-keep-empty" if keep else "--keep-empty"
        assert result("eval", out, tmp_path / "text", other)["sentence_ends"] == 6 - ends


def test_prepare(lab, tmp_path, result):
    values = result("prepare", "--train", lab.text("train"), "--out", tmp_path / "out")
    words = lab.text("train").read_text().split()
    assert values["tokens"] == len(words) + 60
    assert values["types"] == len(set(words))
    assert values["vocab_size"] == len(set(words)) + 2


def test_a_run_on_prepared_text_equals_one_on_the_text(lab, run, tmp_path, result):
    parts = [f"--{part}={lab.text(part)}" for part in ("train", "valid", "test")]
    result("prepare", *parts, "--out", tmp_path / "data")
    options = lab.options(tmp_path / "out", train=None, valid=None, test=None)
    result(*options, "--prepared", tmp_path / "data")
    assert lab.differing(lab.final(tmp_path / "out"), lab.final(run)) == []


def test_generate(run, result):
    values = result("generate", run, "--prompt", "the Zebra", "--words", 9, "--seed", 3)
    assert values["text"].startswith("the Zebra")
    assert result("generate", run, "--prompt", "the Zebra", "--words", 9, "--seed", 3) == values
    assert result("generate", run, "--prompt", "the Zebra", "--words", 9, "--seed", 4) != values


def test_without_json_text_goes_to_standard_output(run, lab, capsys):
    capsys.readouterr()
    assert main(["eval", str(run), str(lab.text("test"))]) == 0
    said = capsys.readouterr()
    assert "perplexity" in said.out
    assert "{" not in said.out
    assert said.err == ""


def test_probabilities(run, lab, tmp_path, result):
    values = result("eval", run, lab.text("test"), "--probs", tmp_path / "probs")
    lines = [line.split("\t") for line in (tmp_path / "probs").read_text().splitlines()]
    words = lab.text("test").read_text().replace("\n", " </s> ").split()
    assert [word for word, _ in lines] == words
    mean = sum(float(value) for _, value in lines) / len(lines)
    assert 10**-mean == pytest.approx(values["perplexity"], rel=1e-6)


def test_help_is_quick_because_it_imports_little():
    """Neither PyTorch nor matplotlib nor NumPy for the root; no PyTorch for a verb's help."""
    program = """
import sys
from blackout.cli.main import main
heavy = ("torch", "matplotlib")
status = main(["--help"])
assert status == 0 and not {"numpy", "tyro", *heavy} & set(sys.modules)
for verb in sys.argv[1:]:
    try:
        main([*verb.split(), "--help"])
    except SystemExit as end:
        assert end.code == 0
    assert not set(heavy) & set(sys.modules), verb
"""
    verbs = [verb for verb in VERBS if verb in ("train", "eval", "generate", "prepare")]
    done = subprocess.run(
        [sys.executable, "-c", program, *verbs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for verb in VERBS:
        assert verb in done.stdout
