"""Layers and programs of others at equal training time."""

import json
import stat

import pytest

from blackout.cli.main import main
from blackout.config import Config, TextConfig
from blackout.paper.peers import PEERS, Texts, paths_of_peers, run_peer, write_known_words
from blackout.paper.timed import train_for
from blackout.text.prepared import prepare

FASTER = """#!/bin/sh
echo "Read the vocabulary: 10 words"
echo "Epoch 1 lr: 1.00e-01 entropy (bits) valid:  8.00000  elapsed: 6.0s+2.0s" >&2
echo "Epoch 2 lr: 1.00e-01 entropy (bits) valid:  7.00000  elapsed: 0.1m+2.0s" >&2
echo "$@" > called
sleep 60
"""
AUTHORS = """#!/bin/sh
printf "\\riter: 0 lr: 0.01 train loss: 5.1 words/sec: 500.0 validate ppl: 300.5\\n"
printf "\\riter: 1 lr: 0.01 train loss: 5.0 words/sec: 250.0 validate ppl: 250.25\\n"
"""


@pytest.fixture
def program(tmp_path):
    def make(text):
        path = tmp_path / "program"
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


def test_a_run_for_some_time(lab):
    config = Config.from_dict({"model": {"hidden": 8}, "run": {"batch": 4, "threads": 1}})
    epoch = len(lab.data.shard("train").tokens)  # prepared when first asked for
    found = train_for(config, lab.folder / "data", 0.3, apart=False)
    assert 0.3 <= found.seconds < 1
    assert found.words > 2 * epoch  # as many passes as there is time for
    assert 1 < found.valid_perplexity < 100
    assert found.scored_per_second > 0


def test_faster_rnnlm_is_read_and_stopped(program, tmp_path):
    """Two threads: the time that it says itself; 0.1 m are 6 s, half of the words each."""
    texts = Texts(tmp_path / "train", tmp_path / "valid", 1200)
    path = program(FASTER)
    found = run_peer(PEERS[1], path, texts, tmp_path, 2, "0.05", 11.0)
    assert [(p.seconds, p.perplexity) for p in found] == [(6.0, 256.0)]
    assert found[0].words_per_second == pytest.approx(100 / 6)
    ends = program(FASTER.replace("sleep 60", ""))
    both = run_peer(PEERS[1], ends, texts, tmp_path, 2, "1", 12.0)
    assert [point.perplexity for point in both] == [256, 128]
    assert "-direct 200 -direct-order 4" in (tmp_path / "called").read_text()


def test_the_authors_program_is_read(program, tmp_path):
    texts = Texts(tmp_path / "train", tmp_path / "valid", 1000)
    found = run_peer(PEERS[-1], program(AUTHORS), texts, tmp_path, 1, "0.01", 60.0)
    assert found == [(2.0, 300.5, 500.0), (6.0, 250.25, 250.0)]


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
    assert 1 < first["test"] < 2000
    peer = ["--peer", f"faster-rnnlm={path}", "--minutes", "10"]
    (row,) = rows(*peer, "--only", "faster-rnnlm, NCE,")
    assert (row["layer"], row["valid"], row["test"]) == ("faster-rnnlm, NCE, direct", 128, None)
    both = rows("--only", "adaptive")
    assert both[0] == first
    assert [row["layer"] for row in both] == ["hierarchical softmax", "adaptive softmax"]
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
    assert "--only nothing: no such row; there are BlackOut; noise" in line("--only", "nothing")
    (tmp_path / "dull").write_text("no program")
    dull = f"authors={tmp_path / 'dull'}"
    assert "dull: cannot be run: " in line("--peer", dull, "--only", "authors")
    silent = program("#!/bin/sh\necho nothing\n")
    assert "printed no perplexity within" in line(
        "--peer", f"authors={silent}", "--only", "authors"
    )
    for name, value in (("minutes", "0"), ("tries", "-1"), ("vocab-size", "-3")):
        assert f"{name.replace('-', '_')} is " in line(f"--{name}", value)
    assert paths_of_peers([dull])["authors"].is_absolute()
