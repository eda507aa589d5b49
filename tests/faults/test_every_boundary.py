"""Everything that writes, failing or killed at every operation on the disk: the old, or the new.

Training and preparing have tests of their own (test_kill, test_prepare_killed); here are the
others.
"""

import itertools
import json
import signal

import pytest
from tests.faults.boundary import Boundary, dies, fails

from blackout.cli.main import main
from blackout.config import Config
from blackout.errors import UserError
from blackout.ngram import NGram
from blackout.ngram import train as estimate
from blackout.text.vocab import Vocab
from blackout.trials.trial import read_result, write_result
from blackout.trials.trials import Epoch, Outcome

TEXTS = ("the cat sat\na dog ran\n" * 4, "the dog sat\na cat ran\nthe cat\n" * 5)
MOST = 400  # operations of any of these


class Writer:
    """Something that writes a file or folder ``out`` from one of two inputs, number 0 or 1."""

    def __init__(self, name, write, content):
        self.name, self.write, self.content = name, write, content

    def __repr__(self):
        return self.name


def command(*arguments):
    """A verb; its failure must be a status, one line, and no traceback."""
    if main([str(argument) for argument in arguments]) != 0:
        raise Refused


class Refused(Exception):
    pass


def arpa(lab, out, number):
    source = lab.folder / f"boundary-{number}.txt"
    command("ngram", "train", "--order", 2, "--train", source, "--out", out)


def binary(lab, out, number):
    NGram.load(lab.folder / f"boundary-{number}.arpa").save(out)


def probabilities(lab, out, number):
    model = lab.folder / f"boundary-{number}.arpa"
    command("ngram", "eval", model, lab.text("valid"), "--probs", out)


def result(lab, out, number):
    curve = (Epoch(number, 10, 0.5, 1.0, 2.0, 30.0),)
    write_result(out, Config(), Outcome(curve, {}, 20.0, 100))


def mixed(lab, out, number):
    models = [lab.folder / f"boundary-{i}.arpa" for i in (number, 0)]
    texts = ["--tune", lab.text("valid"), "--test", lab.text("test")]
    command("mix", *models, *texts, "--probs", out)


def vocabulary(lab, out, number):
    Vocab.from_counts({"</s>": 2, "the": 3 + number, "cat": 2}).save(out)


def as_bytes(path):
    return path.read_bytes()


WRITERS = [
    Writer("ngram train", arpa, as_bytes),
    Writer("ngram save", binary, as_bytes),
    Writer("ngram eval --probs", probabilities, as_bytes),
    Writer("mix --probs", mixed, as_bytes),
    Writer("a trial's result", result, lambda path: read_result(path)),
    Writer("vocabulary", vocabulary, as_bytes),
]


@pytest.fixture(scope="module", autouse=True)
def texts(lab):
    for number, text in enumerate(TEXTS):
        source = lab.folder / f"boundary-{number}.txt"
        source.write_text(text)
        estimate(source, lab.folder / f"boundary-{number}.arpa", order=2)


@pytest.fixture
def old_and_new(lab, tmp_path):
    """What a writer makes of each input."""

    def make(writer):
        found = []
        for number in (0, 1):
            path = tmp_path / f"whole-{number}"
            writer.write(lab, path, number)
            found.append(writer.content(path))
        assert found[0] != found[1]
        return found

    return make


def left_over(folder):
    return [path.name for path in folder.iterdir() if ".partial" in path.name]


@pytest.mark.parametrize("writer", WRITERS, ids=repr)
def test_that_fails(writer, lab, tmp_path, old_and_new, capsys):
    whole = old_and_new(writer)
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "file"
    failures = 0
    for n in range(1, MOST):
        out.unlink(missing_ok=True)
        writer.write(lab, out, 0)
        with Boundary(n, fails) as boundary:
            try:
                writer.write(lab, out, 1)
                failed = False
            except (UserError, Refused):
                failed = True
        errors = capsys.readouterr().err
        assert "Traceback" not in errors
        assert writer.content(out) in whole, f"operation {n}"
        if failed:
            failures += 1
            assert not left_over(folder), f"operation {n}"
        if not boundary.reached:
            assert not failed
            assert writer.content(out) == whole[1]
            break
    assert failures >= 4  # open, write, sync, rename


@pytest.mark.parametrize("writer", WRITERS[3:], ids=repr)
def test_that_is_killed(writer, lab, tmp_path, old_and_new, child):
    whole = old_and_new(writer)
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "file"
    for n in itertools.count(1):
        assert n < MOST
        writer.write(lab, out, 0)

        def run(n=n):
            with Boundary(n, dies):
                writer.write(lab, out, 1)

        status = child(run).wait()
        assert status in (0, -signal.SIGKILL)
        assert writer.content(out) in whole, f"operation {n}"
        if status == 0:
            break
    writer.write(lab, out, 1)
    assert writer.content(out) == whole[1]
    assert not left_over(folder)


def test_the_shim_is_not_in_the_way(lab, tmp_path):
    """Without a fault nothing changes: the tests above would see nothing otherwise."""
    with Boundary(MOST, fails) as boundary:
        result(lab, tmp_path / "file", 1)
    assert not boundary.reached
    assert boundary.left < MOST - 3
    assert json.loads((tmp_path / "file").read_text())["outcome"]["curve"][0]["epoch"] == 1
