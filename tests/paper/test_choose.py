"""Layers and programs of others at equal training time."""

import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from blackout.cli.main import main
from blackout.config import Config, TextConfig
from blackout.errors import UserError
from blackout.paper.peers import (
    PEERS,
    Run,
    Texts,
    TooEarly,
    at_time,
    paths_of_peers,
    run_peer,
    write_known_words,
)
from blackout.paper.timed import _Run, train_for
from blackout.text.prepared import prepare

FASTER = """#!/bin/sh
echo "$@" > called
echo "Read the vocabulary: 10 words"
echo "Epoch 1 lr: 1.00e-01 entropy (bits) valid:  8.00000  elapsed: 6.0s+2.0s" >&2
echo "Epoch 2 lr: 1.00e-01 entropy (bits) valid:  7.00000  elapsed: 0.1m+2.0s" >&2
sleep 60
"""
AUTHORS = """#!/bin/sh
wc -l < "$2" >> called
printf "\\riter: 0 lr: 0.01 train loss: 5.1 progress: 30.0%% words/sec: 500.0 "
printf "\\riter: 0 lr: 0.01 train loss: 5.1 progress: 60.0%% words/sec: 250.0 "
printf "\\riter: 0 lr: 0.01 train loss: 5.0 words/sec: 250.0 validate ppl: 250.25\\n"
"""


BLACKOUT = [sys.executable, "-m", "blackout"]


def process_time(pid):
    """Of a process, in ticks; None where there is no such process, or what is left of one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[11]) + int(fields[12])


def wait_until(what, seconds=120):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def program(tmp_path):
    def make(text):
        path = tmp_path / "program"
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


def test_a_run_is_seen_at_its_marks(lab):
    """What a shorter run comes to, a longer one has come to at that mark: falls leave no trace."""
    config = Config.from_dict({"model": {"hidden": 8}, "run": {"batch": 4, "threads": 1}})
    epoch = len(lab.data.shard("train").tokens)  # prepared when first asked for
    first, second = train_for(config, lab.folder / "data", [0.2, 0.1], apart=False)
    assert 0.1 <= first.seconds < second.seconds
    assert second.words > first.words > epoch  # as many passes as there is time for
    assert 1 < second.perplexity < 1000
    assert first.scored_per_second > 0
    run = _Run(config, lab.data, lambda: 0.0)
    for block in itertools.islice(run.blocks, 3):
        run.step.train(block)
    kept = run.keep()
    before = [tensor.clone() for tensor in run._tensors()]
    run.step.train(next(run.blocks))
    assert any(not old.equal(new) for old, new in zip(before, run._tensors(), strict=True))
    run.go_back(*kept)
    assert all(old.equal(new) for old, new in zip(before, run._tensors(), strict=True))


def test_faster_rnnlm_is_read_and_stopped(program, tmp_path):
    """Two threads: the time that it says itself; 0.1 m are 6 s, half of the words each."""
    texts = Texts(tmp_path / "train", tmp_path / "valid", 4_000_000, 100)
    run = Run(program(FASTER), texts, tmp_path, 2, "0.05", [5.0, 11.0])
    found = run_peer(PEERS[1], run)
    assert [(p.seconds, p.perplexity) for p in found] == [(6.0, 256.0), (12.0, 128.0)]
    assert found[0].words_per_second == pytest.approx(2_000_000 / 6)
    assert found[0].scored_per_second == 50
    called = (tmp_path / "called").read_text()
    assert "-direct 200 -direct-order 4" in called
    assert "-stop 1.001499" in called  # of each of two parts what 1.003 is of a pass
    assert at_time(found, 72**0.5).perplexity == pytest.approx(256 / 2**0.5)
    assert at_time(found, 60.0) == found[-1]
    with pytest.raises(TooEarly):
        at_time(found, 5.0)
    ends = replace(run, path=program(FASTER.replace("sleep 60", "")), marks=[60.0])
    assert [point.perplexity for point in run_peer(PEERS[1], ends)] == [256, 128]


def test_the_authors_program_is_read(program, tmp_path):
    """It is given as many lines as it gets through in the time."""
    for part in ("train", "valid"):
        (tmp_path / part).write_text("four words and more\n" * 100)
    texts = Texts(tmp_path / "train", tmp_path / "valid", 500, 500)
    run = Run(program(AUTHORS), texts, tmp_path, 2, "0.01/1e-4", [0.2, 1.2])
    found = run_peer(PEERS[-1], run)
    assert [(p.seconds, p.perplexity) for p in found] == [(0.2, 250.25), (1.2, 250.25)]
    assert (tmp_path / "called").read_text().split() == ["100", "10", "60"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux tells of processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_run_ends_with_the_command(tmp_path, number):
    """Whatever ends it; a row of its own process would train on, seen by nobody."""
    (tmp_path / "enwiki").mkdir()
    for part in ("train", "valid", "test"):
        (tmp_path / "enwiki" / part).write_text("four words and more\n" * 100)
    command = [*BLACKOUT, "reproduce", "choose", "--data", tmp_path, "--out", tmp_path / "out"]
    command += ["--minutes", "60", "--tries", "1", "--threads", "1", "--only", "sampled softmax"]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    wait_until(lambda: children.read_text().split())
    (child,) = children.read_text().split()
    wait_until(lambda: b"blackout.paper.timed" in Path(f"/proc/{child}/cmdline").read_bytes())
    before = process_time(child)
    wait_until(lambda: process_time(child) > before + os.sysconf("SC_CLK_TCK"))
    parent.send_signal(number)
    said = parent.communicate(timeout=120)[1]  # the child, too, had this end of the pipe
    wait_until(lambda: process_time(child) is None)
    if number == signal.SIGKILL:
        assert parent.returncode == -signal.SIGKILL
    else:
        line = "stopped; run the same command again: finished runs are kept"
        assert said.splitlines()[-1] == f"blackout reproduce: {line}"
        assert (parent.returncode, "Traceback" in said) == (1, False)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux tells of processes")
def test_a_program_of_others_ends_with_the_command(program, tmp_path):
    pid = tmp_path / "pid"
    path = program(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 600\n")
    command = [*BLACKOUT, "reproduce", "choose", "--quick", "--out", tmp_path / "out"]
    command += ["--peer", f"faster-rnnlm={path}", "--only", "faster-rnnlm, NCE"]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until(pid.exists)
    parent.terminate()
    assert "stopped; run the same command again" in parent.communicate(timeout=120)[1]
    assert parent.returncode == 1
    assert process_time(pid.read_text().strip()) is None


def test_a_run_in_a_process_of_its_own(lab, monkeypatch):
    """Comes to what it comes to here; what is wrong there is one error here."""
    config = Config.from_dict({"model": {"hidden": 8}, "run": {"batch": 4, "threads": 1}})
    assert lab.data.folder == lab.folder / "data"
    (mark,) = train_for(config, lab.folder / "data", [0.1])
    assert mark.seconds >= 0.1
    assert 1 < mark.perplexity < 1000
    with pytest.raises(UserError, match=r"none/vocab\.txt: cannot read"):
        train_for(config, lab.folder / "none", [0.1])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="a run ended with status 1; run the same command again"):
        train_for(config, lab.folder / "data", [0.1])


def test_words_outside_the_vocabulary_are_written_as_unknown(tmp_path):
    (tmp_path / "text").write_text("the cat sat\n the  the cat\n")
    data = prepare(tmp_path / "text", tmp_path / "data", TextConfig(min_count=2))
    write_known_words(tmp_path / "text", tmp_path / "out", data.vocab)
    assert (tmp_path / "out").read_text() == "the cat <unk>\nthe the cat\n"


def test_one_row_after_another(program, tmp_path, capsys):
    """Rows that were run stay in the table; a program's row is one of them."""
    path = program(FASTER.replace("sleep 60", ""))
    command = ["reproduce", "choose", "--quick", "--json", "--out", str(tmp_path / "out")]
    command += ["--minutes", "0.002"]

    def rows(*more):
        capsys.readouterr()
        assert main([*command, *more]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]

    (first,) = rows("--only", "hierarchical softmax")
    assert 1 < first["perplexity"] < 2000
    peer = ["--peer", f"faster-rnnlm={path}", "--only", "faster-rnnlm, NCE"]
    both = rows(*peer, "--minutes", "0.002", "0.15")
    assert [row["layer"] for row in both] == ["hierarchical softmax", *["faster-rnnlm, NCE"] * 1]
    assert both[0] == first  # a row that was run for less is shown so far
    both = rows("--only", "adaptive")
    assert both[0] == first
    assert [row["layer"] for row in both] == ["hierarchical softmax", "adaptive softmax"]
    assert (tmp_path / "out" / "choose.svg").read_text().count("adaptive softmax") >= 1
    page = (tmp_path / "out" / "choose.md").read_text()
    assert "blackout reproduce choose --quick --minutes 0.002" in page


def test_wrong_use_is_one_clear_line(program, tmp_path, capsys):
    def line(*more):
        assert main(["reproduce", "choose", "--quick", "--out", str(tmp_path / "o"), *more]) == 1
        (only,) = capsys.readouterr().err.strip().splitlines()
        return only

    assert "--peer other=x: must be NAME=PATH with NAME one of authors, faster-rnnlm" in line(
        "--peer", "other=x"
    )
    assert "there is no such file" in line("--peer", f"authors={tmp_path}/none")
    assert "--only nothing: no such row; there are BlackOut; BlackOut, n" in line(
        "--only", "nothing"
    )
    (tmp_path / "dull").write_text("no program")
    dull = f"authors={tmp_path / 'dull'}"
    assert "dull: cannot be run: " in line("--peer", dull, "--only", "authors")
    silent = program("#!/bin/sh\necho nothing\n")
    assert "printed no speed of training" in line(
        "--peer", f"authors={silent}", "--only", "authors"
    )
    for name, value in (("minutes", "0"), ("tries", "-1"), ("vocab-size", "-3")):
        assert f"{name.replace('-', '_')} is " in line(f"--{name}", value)
    assert paths_of_peers([dull])["authors"].is_absolute()
