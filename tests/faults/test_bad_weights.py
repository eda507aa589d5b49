"""Weights that are not finite or far too large: said, never averaged into a figure."""

import json
import math
import shutil

import numpy as np
import pytest

import blackout
from blackout.cli.main import main
from blackout.errors import UserError
from blackout.files.tensors import read_metadata, save_tensors
from blackout.models.saved import new_model
from blackout.perplexity import Perplexity
from blackout.score.checked import NotALogProbability, checked


@pytest.fixture(scope="module")
def run(lab):
    out = lab.folder / "bad-weights-run"
    if not out.exists():
        lab.train(out, epochs=1)
    return out


@pytest.fixture(scope="module")
def ngram(lab):
    path = lab.folder / "bad-weights.arpa"
    arguments = ["ngram", "train", "--train", lab.text("train"), "--order", "2", "--out", path]
    assert main([str(word) for word in arguments]) == 0
    return path


@pytest.fixture
def lists(tmp_path):
    path = tmp_path / "lists.jsonl"
    hyps = [{"text": text} for text in ("the cat sees", "a dog has", "the the the")]
    path.write_text(json.dumps({"utt": "u", "hyps": hyps}) + "\n")
    return path


def changed(lab, run, out, change):
    """A copy of a run, its weights changed and its checksum put right."""
    shutil.copytree(run, out)
    path = out / "model.safetensors"
    tensors, fields = lab.tensors(path), read_metadata(path)
    change(tensors)
    save_tensors(path, tensors, {key: text for key, text in fields.items() if key != "sha256"})
    return out


def commands(lab, model, ngram, lists):
    text = lab.text("test")
    best = lists.with_name("best")
    return {
        "eval": ["eval", model, text],
        "mix": ["mix", model, ngram, "--tune", lab.text("valid"), "--test", text],
        "rescore": ["rescore", model, lists, "--best", best],
        "rescore mixed": ["rescore", model, lists, "--ngram", ngram, "--best", best],
        "generate": ["generate", model],
    }


VERBS = ["eval", "mix", "rescore", "rescore mixed", "generate"]


def fails(capsys, arguments, *named):
    capsys.readouterr()
    assert main([str(word) for word in [*arguments, "--json"]]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    for name in named:
        assert str(name) in said.err.splitlines()[-1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("verb", VERBS)
def test_weights_that_are_not_finite(lab, run, ngram, lists, tmp_path, capsys, verb, value):
    def spoil(tensors):
        tensors["output.table.weight"][3, 2] = value

    model = changed(lab, run, tmp_path / "model", spoil)
    fails(
        capsys,
        commands(lab, model, ngram, lists)[verb],
        model / "model.safetensors",
        "damaged: output.table.weight has infinite numbers or NaN in it",
    )


def test_a_checkpoint_that_is_not_finite(lab, run, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(run, out)
    (path,) = (out / "checkpoints").glob("*.safetensors")
    tensors, fields = lab.tensors(path), read_metadata(path)
    moment = next(name for name in tensors if not name.startswith("model.") and tensors[
        name].is_floating_point() and tensors[name].ndim == 2)  # fmt: skip
    tensors[moment][0, 0] = math.nan
    save_tensors(path, tensors, {key: text for key, text in fields.items() if key != "sha256"})
    with pytest.raises(UserError, match=r"damaged: .* has infinite numbers or NaN"):
        lab.train(out, resume=True, epochs=2)


def at_scale(lab, run, out, factor):
    """Output rows so large that rounding is all that is left of a probability."""

    def scale(tensors):
        rows = tensors["output.table.weight"]
        rows.copy_(rows.double().mul(factor).clamp(-3e38, 3e38).to(rows.dtype))

    return changed(lab, run, out, scale)


@pytest.mark.parametrize("factor", [1e8, 1e10, 1e30, 1e39])
@pytest.mark.parametrize("verb", ["eval", "mix", "rescore", "rescore mixed"])
def test_weights_far_too_large(lab, run, ngram, lists, tmp_path, capsys, verb, factor):
    model = at_scale(lab, run, tmp_path / "model", factor)
    text = tmp_path / "everything"  # some word of it is the most probable one somewhere
    words = [w for w in blackout.load(run).vocab.words if not w.startswith("<")]
    text.write_text("".join(f"{a} {b}\n" for a in words for b in words))
    hyps = [{"text": line} for line in text.read_text().splitlines()]
    lists.write_text(json.dumps({"utt": "u", "hyps": hyps}) + "\n")
    command = commands(lab, model, ngram, lists)[verb]
    command = [text if word == lab.text("test") else word for word in command]
    fails(capsys, command, model, "gives a word the log-probability", "too large for exact scores")


def test_a_perplexity_beyond_every_number():
    """Log-probabilities may all be numbers where the exponential of their mean is none."""
    found = Perplexity.of(-1e6, 0.0, 3, 1, 0, seconds=1.0)
    with pytest.raises(UserError, match=r"a\.txt: its perplexity is beyond every number"):
        found.checked("a.txt")
    assert Perplexity.of(-1e3, 0.0, 3, 1, 0, seconds=1.0).checked("a.txt").perplexity < math.inf


def test_what_rounding_does_is_no_fault(lab, run):
    model = blackout.load(run)
    values = np.array([-1.0, 2e-4, 0.0])
    assert checked(values, model).tolist() == [-1.0, 0.0, 0.0]
    rounded = new_model(lab.config(precision="bf16"), lab.data.vocab)
    assert checked(np.array([0.05]), rounded).tolist() == [0.0]
    for wrong in (0.2, math.nan, math.inf, -math.inf):
        with pytest.raises(NotALogProbability):
            checked(np.array([-1.0, wrong]), model)
    assert checked(np.array([-math.inf]), model, may_be_impossible=True)[0] == -math.inf


def test_words_no_model_thinks_possible_are_counted(lab, tmp_path, capsys):
    for name, value in (("a", "-inf"), ("b", "-inf")):
        (tmp_path / name).write_text(f"the\t{value}\n</s>\t-0.5\n")
    dumps = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["mix", "--weights", "0.5", "0.5", "--test-probs", *dumps, "--json"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert (result["perplexity"], result["impossible"]) == (None, 1)
    assert "impossible      1 words" in said.err
