"""What a person can get wrong: one line that names it, status 1, and a second try works."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from blackout.cli.main import main


@pytest.fixture(scope="module")
def run(lab):
    out = lab.folder / "cli-run"
    assert main(lab.options(out)) == 0
    return out


@pytest.fixture
def fails(capsys):
    """Runs a command line that must fail with one line that says ``named``."""

    def check(arguments, *named, status=1):
        capsys.readouterr()
        assert main([str(a) for a in arguments]) == status
        said = capsys.readouterr()
        assert said.out == ""
        lines = said.err.splitlines()
        assert len(lines) == 1, said.err
        assert lines[0].startswith(f"blackout {arguments[0]}: ")
        for text in named:
            assert str(text) in lines[0]
        assert "Error:" not in lines[0], "an exception that nobody meant for a reader"
        return lines[0]

    return check


BAD_TEXT = {
    "empty": (b"", "no sentences"),
    "blank": (b"\n \n\n", "no sentences"),
    "binary": (b"\x7fELF\x02\x01\x01\0\0\0", "line 1"),
    "utf8": (b"the cat\nthe \xff dog\n", "line 2", "UTF-8"),
    "nul": (b"the cat\nthe\0dog\n", "line 2", "NUL"),
    "marker": (b"the cat\n\nthe </s> dog\n", "line 3", "</s>"),
    "long-word": (b"the " + b"x" * 70_000 + b"\n", "line 1"),
}


@pytest.mark.parametrize("part", ["train", "valid", "test"])
@pytest.mark.parametrize("kind", [*BAD_TEXT, "missing", "folder"])
def test_bad_text_to_train_on(lab, tmp_path, fails, part, kind):
    path, out = tmp_path / "bad.txt", tmp_path / "out"
    named = ["No such file"] if kind == "missing" else ["is a folder"]
    if kind == "folder":
        path.mkdir()
    elif kind in BAD_TEXT:
        data, *named = BAD_TEXT[kind]
        path.write_bytes(data)
    fails(lab.options(out, **{part: path}), path, *named)
    assert not list(out.glob("*.*"))  # no run has begun
    assert main(lab.options(out)) == 0


@pytest.mark.parametrize("kind", [*BAD_TEXT, "missing", "folder"])
def test_bad_text_for_the_other_verbs(lab, run, tmp_path, fails, kind):
    path, out = tmp_path / "bad.txt", tmp_path / "out"
    if kind == "folder":
        path.mkdir()
    elif kind in BAD_TEXT:
        path.write_bytes(BAD_TEXT[kind][0])
    fails(["eval", run, path], path)
    fails(["prepare", "--train", path, "--out", out], path)
    assert not out.exists() or not list(out.iterdir())
    assert main(["prepare", "--train", str(lab.text("train")), "--out", str(out)]) == 0


def test_text_with_other_words(lab, tmp_path, fails):
    path, out = tmp_path / "other.txt", tmp_path / "out"
    path.write_text("un chat voit une maison\nle grand arbre\n" * 5)
    for part in ("valid", "test"):
        fails(lab.options(out, **{part: path}), path, "shares almost no words", "40 of its 40")
    assert main(lab.options(out)) == 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"vocab_size": 2}, "vocab_size is 2, must be at least 3"),
        ({"min_count": 0}, "min_count is 0"),
        ({"min_count": 100000}, "no word is left"),
        ({"samples": 0}, "samples is 0, must be at least 1"),
        ({"samples": -5}, "samples is -5"),
        ({"alpha": 1.5}, "alpha is 1.5, must be between 0 and 1"),
        ({"alpha": -0.1}, "alpha is -0.1"),
        ({"alpha": "nan"}, "alpha is nan"),
        ({"hidden": 0}, "hidden is 0"),
        ({"layers": 0}, "layers is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"bptt": 0}, "bptt is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"lr": 0}, "lr is 0"),
        ({"lr": "inf"}, "lr is inf"),
        ({"lr": "nan"}, "lr is nan"),
        ({"beta": 1}, "beta is 1"),
        ({"damping": "inf"}, "damping is inf"),
        ({"clip": -1}, "clip is -1"),
        ({"clip": "nan"}, "clip is nan"),
        ({"dropout": 1}, "dropout is 1"),
        ({"init_range": "inf"}, "init_range is inf"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, f"seed is {2**64}"),
        ({"threads": -1}, "threads is -1"),
        ({"always_sample": "zebra"}, "always_sample: 'zebra' is not in the vocabulary"),
        ({"train": None}, "--train and --valid"),
        ({"valid": None}, "--train and --valid"),
        ({"train": None, "valid": None, "test": None}, "--train and --valid"),
        ({"prepared": "somewhere"}, "--prepared stands instead of"),
        ({"config": "missing.toml"}, "missing.toml"),
    ],
)
def test_bad_settings(lab, tmp_path, fails, settings, named):
    fails(lab.options(tmp_path / "out", **settings), named)
    assert not list((tmp_path / "out").glob("*.*"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"[model]\nhiden = 3\n", "unknown key 'model.hiden'"),
        (b"hidden = 3\n", "unknown key 'hidden'"),
        (b"[nonsense]\n", "unknown key 'nonsense'"),
        (b"model = 3\n", "model must be a table"),
        (b'[model]\nhidden = "8"\n', "model.hidden is '8', must be int"),
        (b"[model]\nhidden = 8.0\n", "model.hidden is 8.0, must be int"),
        (b"[model]\nhidden = true\n", "model.hidden is True, must be int"),
        (b"[model]\ncell = 'cnn'\n", "model.cell is 'cnn'"),
        (b"[loss]\nalpha = 2\n", "alpha is 2.0, must be between 0 and 1"),
        (b"[loss]\nsamples = 0\n", "samples is 0"),
        (b"[loss]\nalways_sample = [1]\n", "loss.always_sample is [1]"),
        (b"[model\n", "not valid TOML"),
        (b"[model]\nhidden = \n", "not valid TOML"),
        (b"[model]\nhidden = 1\nhidden = 2\n", "not valid TOML"),
        (b"\xff\xfe", "cannot read the config"),
        (b"\0", "not valid TOML"),
    ],
)
def test_bad_config_files(lab, tmp_path, fails, text, named):
    path = tmp_path / "bad.toml"
    path.write_bytes(text)
    fails(lab.options(tmp_path / "out", config=path), path, named)
    path.write_text("[model]\ncell = 'tanh'\n")
    assert main(lab.options(tmp_path / "out", config=path)) == 0


def test_the_command_line_wins_over_the_file(lab, tmp_path):
    import blackout

    path = tmp_path / "some.toml"
    path.write_text("[model]\ncell = 'tanh'\nhidden = 5\n[optim]\nlr = 0.5\n")
    assert main(lab.options(tmp_path / "out", config=path, hidden=6)) == 0
    model = blackout.load(tmp_path / "out")
    assert (model.config.cell, model.config.hidden) == ("tanh", 6)


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "model.safetensors"])
@pytest.mark.parametrize("verb", ["eval", "generate"])
def test_a_model_folder_that_lacks_a_file(lab, run, tmp_path, fails, verb, name):
    model = tmp_path / "model"
    shutil.copytree(run, model)
    (model / name).unlink()
    text = [lab.text("test")] if verb == "eval" else []
    fails([verb, model, *text], model, f"it has no {name}")


def test_no_model_folder(lab, tmp_path, fails):
    for path in (tmp_path / "none", lab.text("test")):
        fails(["eval", path, lab.text("test")], path, "no such model folder")
        fails(["generate", path], path, "no such model folder")


def test_a_checkpoint_from_another_run(lab, run, tmp_path, fails):
    out = tmp_path / "out"
    assert main(lab.options(out, hidden=9)) == 0
    shutil.rmtree(out / "checkpoints")
    shutil.copytree(run / "checkpoints", out / "checkpoints")
    line = fails(["train", "--out", out, "--resume"], out / "checkpoints")
    assert "is from another run: model.hidden was 8, is 9 now" in line


def test_out_that_holds_a_run(lab, run, tmp_path, fails):
    """Refused before anything in it is touched: another text would replace its data."""
    other = tmp_path / "other.txt"
    other.write_text("quite another text\n" * 20)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()}
    fails(lab.options(run, train=other, valid=other, test=other), run, "--resume goes on with it")
    assert {
        p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()
    } == before


def test_resume_where_there_is_none(lab, tmp_path, fails):
    fails(["train", "--out", tmp_path / "none", "--resume"], tmp_path / "none", "no run to resume")
    assert not (tmp_path / "none").exists()
    fails([*lab.options(tmp_path / "out"), "--resume"], tmp_path / "out", "no run to resume")


def test_an_out_folder_that_cannot_be_made(lab, tmp_path, fails):
    file = tmp_path / "file"
    file.write_text("precious")
    for out in (file, file / "below"):
        fails(lab.options(out), out)
        fails(["prepare", "--train", lab.text("train"), "--out", out], out)
    assert file.read_text() == "precious"


def test_files_where_folders_should_be(lab, tmp_path, fails):
    out = tmp_path / "out"
    out.mkdir()
    (out / "checkpoints").write_text("a file")
    fails(lab.options(out), out / "checkpoints")
    (out / "checkpoints").unlink()
    assert main(lab.options(out)) == 0
    other = tmp_path / "other"
    (other / "model.safetensors").mkdir(parents=True)
    fails(lab.options(other), other / "model.safetensors", "cannot be written")


def test_probabilities_that_cannot_be_written(lab, run, tmp_path, fails):
    for path in (tmp_path, tmp_path / "none" / "probs"):
        fails(["eval", run, lab.text("test"), "--probs", path], path, "cannot be written")
    if os.path.exists("/dev/full"):
        fails(["eval", run, lab.text("test"), "--probs", "/dev/full"], "/dev/full", "No space left")


def test_bad_numbers_for_generate(run, fails):
    fails(["generate", run, "--temperature", "-1"], "temperature is -1")
    fails(["generate", run, "--temperature", "nan"], "temperature is nan")
    fails(["generate", run, "--top-k", "-1"], "top-k is -1")
    fails(["generate", run, "--words", "-1"], "words is -1")
    fails(["generate", run, "--seed", "-1"], "seed is -1")


def test_a_device_that_is_not_there(lab, tmp_path, fails):
    import torch

    if not torch.cuda.is_available():
        fails(lab.options(tmp_path / "out", device="cuda"), "device is cuda")
        assert not list((tmp_path / "out").glob("*.*"))


def test_debug_shows_the_traceback(tmp_path):
    from blackout.errors import UserError

    with pytest.raises(UserError, match="no such model folder"):
        main(["eval", str(tmp_path / "none"), "text", "--debug"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-verb"],
        [],
        ["train"],
        ["train", "--out", "x", "--no-such-option", "3"],
        ["train", "--out", "x", "--hidden", "many"],
        ["train", "--out", "x", "--cell", "cnn"],
        ["eval"],
        ["eval", "a", "b", "c"],
        ["eval", "a", "b", "--device", "abacus"],
        ["generate", "x", "--words", "1.5"],
        ["prepare", "--out", "x"],
    ],
)
def test_wrong_usage(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code
    assert status == 2
    said = capsys.readouterr()
    assert said.out == "" or not arguments
    assert "Traceback" not in said.err
    assert not list(tmp_path.iterdir())


MEASURE = """
import resource, sys
from blackout.cli.main import main
def prepare(text, out):
    return main(["prepare", "--train", text, "--out", out, "--threads", "2", "--json"])
small, large, out = sys.argv[1:]
prepare(small, f"{out}/small")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
status = prepare(large, f"{out}/large")
print(status, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_line_of_100_mb(lab, tmp_path):
    large = tmp_path / "large.txt"
    with large.open("w") as file:
        for _ in range(200):
            file.write("the cat sees a bird " * 26_215)  # half a MB
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, lab.text("valid"), large, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    *_, result, measured = done.stdout.splitlines()
    assert json.loads(result)["tokens"] == 200 * 26_215 * 5 + 1
    status, grown = map(int, measured.split())
    assert status == 0
    assert grown < 100  # MB
