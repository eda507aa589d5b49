"""Odd but possible: CR lines, half characters, nesting without end, settings that learn nothing."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from blackout.cli.main import main
from blackout.config import Config
from blackout.errors import UserError
from blackout.files.plain_json import from_json
from blackout.ngram import NGram, evaluate, train
from blackout.pages.plots import Plot, Series, draw
from blackout.pages.report import write_report
from blackout.text.corpus import count_words
from blackout.text.shards import HEADER_BYTES, Shard
from blackout.trials.trial import read_result


@pytest.mark.parametrize("data", [b"one two\rthree\rfour", b"one\rtwo\r", b"\xef\xbb\xbfa\rb"])
@pytest.mark.parametrize("chunk", [8, 9, 1 << 20])
def test_lines_that_end_in_cr_alone_are_refused(tmp_path, data, chunk):
    """They would be read as one endless sentence."""
    path = tmp_path / "mac.txt"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"mac\.txt: its lines end in CR alone"):
        count_words(path, chunk_bytes=chunk)


@pytest.mark.parametrize(
    ("data", "sentences"),
    [(b"one two\r\nthree\r\n", 2), (b"one\r", 1), (b"a\rb\nc\n", 2), (b"one", 1)],
)
def test_other_cr_is_white_space(tmp_path, data, sentences):
    path = tmp_path / "text"
    path.write_bytes(data)
    assert count_words(path, chunk_bytes=8).sentences == sentences


def test_cr_lines_of_every_reader(tmp_path):
    old, text = tmp_path / "old", tmp_path / "text"
    old.write_bytes(b"a b\rb a\r" * 10)
    text.write_bytes(b"a b\nb a\n" * 10)
    train(text, tmp_path / "m.arpa", order=2)
    model = NGram.load(tmp_path / "m.arpa")
    for read in (lambda: train(old, tmp_path / "out"), lambda: evaluate(model, old)):
        with pytest.raises(UserError, match="old: its lines end in CR alone"):
            read()
    assert not (tmp_path / "out").exists()


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (DEEP, "without end"),
        ('{"a":' * 50_000, "without end"),
        ('["\\ud800"]', "half a character"),
        ('{"\\uDFFF x": 1}', "half a character"),
        ('{"a": [{"b": "x\\udc00"}]}', "half a character"),
    ],
)
def test_json_from_anybody(text, fault):
    for form in (text, text.encode()):
        with pytest.raises(ValueError, match=fault):
            from_json(form)


def test_whole_characters_are_whole():
    assert from_json('["\\ud83d\\ude00", "\\\\ud800"]') == ["\U0001f600", "\\ud800"]


def test_a_nested_trial_is_damaged(tmp_path):
    """And so it is done again; see tests/trials for that."""
    path = tmp_path / "result.json"
    for text in (DEEP, '{"sha256": "x", "settings": ' + DEEP[40_000:160_000] + "}"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"result\.json: damaged"):
            read_result(path)


def test_half_a_character_in_a_list(lab, tmp_path, capsys):
    run = lab.folder / "odd-run"
    if not run.exists():
        lab.train(run, epochs=1)
    lists = tmp_path / "lists.jsonl"
    lists.write_text('{"utt": "u", "hyps": [{"text": "the \\ud800 cat"}]}\n')
    assert main(["rescore", str(run), str(lists), "--best", str(tmp_path / "best")]) == 1
    assert "lists.jsonl: line 1: not JSON: half a character" in capsys.readouterr().err
    lists.write_bytes(b'{"utt": "u", "hyps": [{"text": "a"}]}\r{"utt": "v", "hyps": []}\r')
    assert main(["rescore", str(run), str(lists), "--best", str(tmp_path / "best")]) == 1
    assert "CR alone" in capsys.readouterr().err


def test_a_shard_header_that_is_none(lab, tmp_path):
    import numpy as np

    from blackout.text.shards import _sum

    good = lab.data.shard("test").path.read_bytes()
    path = tmp_path / "bad.shard"
    for about in (b"{}", b"[]", b"nonsense", DEEP[:900].encode(), b'{"tokens": "x"}'):
        header = bytearray(good[:HEADER_BYTES])
        header[12:16] = len(about).to_bytes(4, "little")
        header[16 : 16 + len(about)] = about
        header[-8:] = bytes.fromhex(_sum(iter([np.frombuffer(bytes(header[:-8]), np.uint8)])))
        path.write_bytes(header + good[HEADER_BYTES:])
        with pytest.raises(UserError, match=r"bad\.shard: damaged"):
            Shard.open(path, lab.data.vocab)


def test_a_block_of_its_own_target(lab, tmp_path, capsys):
    settings = {"loss": {"proposal": "batch"}, "run": {"batch": 1, "bptt": 1}}
    with pytest.raises(UserError, match="every sample is the target itself"):
        Config.from_dict(settings)
    assert main(lab.options(tmp_path / "a", proposal="batch", batch=1, bptt=1)) == 1
    capsys.readouterr()
    assert main(lab.options(tmp_path / "b", proposal="batch", batch=1, bptt=5)) == 0
    assert "warning: proposal is batch with batch 1" in capsys.readouterr().err


def test_words_do_not_act_on_the_terminal(tmp_path):
    """Escape sequences as words, on a real terminal; a pipe gets them as they are."""
    from blackout.cli.common import Output

    text = "hello \x1b]0;owned\x07 \x9b2J world"
    code = f"from blackout.cli.common import Output; Output().say({text!r})"
    outside, inside = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=inside, check=True)
    os.close(inside)
    shown = os.read(outside, 1000).decode()
    os.close(outside)
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "hello \\x1b]0;owned\\x07" in shown
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == text + "\n"
    assert Output().json is False


def test_a_name_that_is_not_utf8(tmp_path):
    """Models and texts of any name the system allows."""
    folder = os.fsencode(tmp_path)
    text = folder + b"/text-\xff"
    with open(text, "wb") as file:
        file.write(b"a b\nb a\n" * 10)
    for model in (folder + b"/m-\xff.arpa", folder + b"/m-\xff.bin"):
        base = [sys.executable, "-m", "blackout", "ngram"]
        for arguments in (["train", "--train", text, "--out", model], ["eval", model, text]):
            done = subprocess.run(
                [*base, *arguments, "--json"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            json.loads(done.stdout)


def test_a_run_folder_whose_name_is_not_utf8(lab, tmp_path):
    """What was trained there can be looked at, used and resumed."""
    out = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff"))
    lab.train(out, epochs=1)
    write_report(out)
    assert main(["eval", str(out), str(lab.text("test"))]) == 0
    assert lab.train(out, resume=True, epochs=2).epochs == 2


@pytest.mark.parametrize("name", ["a$x_{$b", "\udcff\x1b[2J", "<b>&amp;"])
def test_names_in_a_plot_are_only_names(name):
    svg = draw(Plot("Title", name, name, [Series(name, [1, 2], [1, 2])] * 2), "plot")
    assert "\x1b" not in svg
    svg.encode()
