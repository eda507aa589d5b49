"""Standard streams that are closed, full or ASCII: no traceback, and the right exit status."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from blackout.cli.main import VERBS, entry
from blackout.ngram import train

TEXT = "the café sees a bird\na bird sees the café\n" * 20


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    (folder / "text").write_text(TEXT, encoding="utf-8")
    train(folder / "text", folder / "m.arpa", order=2)
    return folder


def blackout(lab, arguments, streams="", **environment):
    """Runs a command line through a shell, with redirections; gives status, output and errors."""
    command = f"{shlex.quote(sys.executable)} -m blackout {arguments} {streams}"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=lab,
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )
    errors = done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    return done.returncode, done.stdout, errors


def forked(child, lab, arguments, out, encoding="utf-8"):
    """The same without a new interpreter, and PyTorch in it; ``out`` is where its output goes."""
    errors = lab / "errors"

    def run():
        os.chdir(lab)
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.argv = ["blackout", *shlex.split(arguments)]
        try:
            entry()
        except SystemExit as end:
            return end.code
        pytest.fail("it ends with a status")

    status = child(run).wait()
    said = errors.read_text(encoding=encoding)
    assert "Traceback" not in said
    return status, said


EVAL = "ngram eval m.arpa text"


def test_closed_standard_error(lab):
    status, out, _ = blackout(lab, f"{EVAL} --json", "2>&-")
    assert status == 0
    assert json.loads(out)["unknown"] == 0  # what is for people has not come here instead
    assert out.count(b"\n") == 1
    assert blackout(lab, "ngram eval none text", "2>&-")[:2] == (1, b"")


def test_full_standard_error(lab):
    status, out, _ = blackout(lab, f"{EVAL} --json", "2>/dev/full")
    assert (status, json.loads(out)["unknown"]) == (0, 0)
    assert blackout(lab, "ngram eval none text", "2>/dev/full")[0] == 1


@pytest.mark.parametrize(
    ("stream", "reason"), [(">/dev/full", "No space left"), (">&-", "it is closed")]
)
@pytest.mark.parametrize("options", ["", "--json"])
def test_a_result_that_does_not_arrive(lab, stream, reason, options):
    status, _, errors = blackout(lab, f"{EVAL} {options}", stream)
    assert status == 1
    line = errors.splitlines()[-1]
    assert line.startswith("blackout ngram eval: standard output: cannot be written: ")
    assert reason in line


def test_everything_closed(lab):
    assert blackout(lab, EVAL, "<&- >&- 2>&-")[0] == 1
    assert blackout(lab, f"{EVAL} --probs dump", "<&- >/dev/null 2>&-")[0] == 0
    assert len((lab / "dump").read_text(encoding="utf-8").splitlines()) == 40 * 6


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help(lab, child, verb):
    """Each verb: help is help on any terminal, and an error where it cannot be written."""
    assert forked(child, lab, f"{verb} --help", lab / "help", "ascii") == (0, "")
    assert (lab / "help").read_bytes().isascii()
    status, errors = forked(child, lab, f"{verb} --help", "/dev/full")
    assert status == 1
    assert "No space left on device" in errors
    assert len(errors.splitlines()) == 1


def test_networks_without_streams(lab, child):
    """Work whose reports nobody hears goes on; work whose result does not arrive has failed."""
    small = "--epochs 1 --hidden 4 --samples 3 --threads 1 --device cpu"
    texts = "--train text --valid text"
    status, out, _ = blackout(lab, f"train {texts} --out run {small} --json", "2>/dev/full")
    assert status == 0
    assert json.loads(out)["epochs"] == 1
    for arguments in (
        f"train --resume --out run {small} --epochs 2",
        "eval run text --threads 1",
        "generate run --words 3",
        "mix run m.arpa --tune text --test text --threads 1",
    ):
        status, errors = forked(child, lab, arguments, "/dev/full")
        assert status == 1, errors
        verb = arguments.split()[0]
        assert errors.splitlines()[-1].startswith(f"blackout {verb}: standard output: cannot be ")


def test_wrong_usage_without_streams(lab):
    for arguments in ("no-such-verb", "train --no-such-option", ""):
        assert blackout(lab, arguments, ">/dev/full 2>&-")[0] == 2


@pytest.mark.parametrize("arguments", [f"{EVAL} --probs /dev/stdout", "train --help", "--help"])
def test_the_reader_goes_away(lab, arguments):
    assert blackout(lab, arguments, "| head -c 5 >/dev/null")[2] == ""


def test_ascii_terminals_get_escapes(lab):
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    (lab / "café").write_text("\n")
    status, out, errors = blackout(lab, "ngram eval m.arpa café", **ascii_only)
    assert (status, out) == (1, b"")
    assert errors.isascii()
    assert "no sentences in it" in errors


def test_names_do_not_act_on_the_terminal(lab):
    name = "bad\x1b]0;owned\x07\x1b[2K\rname"
    status, _, errors = blackout(lab, f"ngram eval {shlex.quote(name)} text")
    assert status == 1
    assert "\x1b" not in errors
    assert "\r" not in errors
    assert "\\x1b]0;owned\\x07\\x1b[2K" in errors


def test_json_has_no_half_characters(lab):
    """A name that is not UTF-8 comes out as a string that every reader of JSON takes."""
    name = b"out-\xff"
    command = [sys.executable, "-m", "blackout", "prepare", "--train", "text", "--out", name]
    done = subprocess.run([*command, "--json"], cwd=lab, capture_output=True, check=False)
    assert b"\\ud" not in done.stdout
    assert b"Traceback" not in done.stderr
