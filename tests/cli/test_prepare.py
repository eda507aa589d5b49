"""``blackout prepare`` keeps the command line's contract."""

import json
import subprocess
import sys

import pytest

from blackout.cli.main import main


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_text("a b\nb c b\n")
    return tmp_path / "text"


def test_json_is_the_last_line_and_text_goes_to_stderr(text, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["prepare", "--train", str(text), "--out", str(out), "--json"]) == 0
    said = capsys.readouterr()
    (line,) = said.out.splitlines()
    result = json.loads(line)
    assert (result["tokens"], result["types"], result["vocab_size"]) == (7, 3, 5)
    assert "vocab.txt" in said.err
    assert (out / "vocab.txt").read_text() == "</s>\t2\n<unk>\t0\nb\t3\na\t1\nc\t1\n"


def test_an_error_is_one_line_and_status_1(tmp_path, capsys):
    missing = tmp_path / "missing"
    assert main(["prepare", "--train", str(missing), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"blackout prepare: {missing}: cannot be read: No such file or directory"
    ]


def test_preparing_does_not_load_torch(text, tmp_path):
    program = (
        "import sys; from blackout.cli.main import main;"
        "assert main(['prepare', '--train', sys.argv[1], '--out', sys.argv[2]]) == 0;"
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", program, str(text), str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True)
