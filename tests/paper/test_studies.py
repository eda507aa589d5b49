"""Every study of the paper, as a miniature on text that ships with Python."""

import json
import math
from xml.etree import ElementTree

import pytest

from blackout.cli.main import main
from blackout.errors import UserError
from blackout.paper.lab import Lab
from blackout.paper.studies import STUDIES


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all studies: they share runs, as they do for people."""
    return tmp_path_factory.mktemp("paper")


def reproduce(name, out, capsys):
    capsys.readouterr()
    quick = ["--quick", "--json", "--out", str(out), "--workers", "1"]  # each imports PyTorch
    assert main(["reproduce", name, *quick]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_gives_a_table_and_a_picture(name, out, capsys):
    result = reproduce(name, out, capsys)
    assert result["name"] == name
    rows = result["rows"]
    assert rows
    assert all(row.keys() == rows[0].keys() for row in rows)
    for row in rows:
        perplexities = [row[key] for key in ("test", "valid", "mixture") if key in row]
        assert all(1 < value < math.inf for value in perplexities)
    page = (out / f"{name}.md").read_text()
    assert f"blackout reproduce {name} --quick" in page
    assert "The paper: " in page
    assert json.loads((out / f"{name}.json").read_text())["rows"] == rows
    picture = ElementTree.parse(out / f"{name}.svg").getroot()
    assert picture.tag.endswith("svg")
    assert len(list(picture.iter())) > 50


def test_what_is_done_is_not_done_again(out, capsys):
    first = reproduce("fig4a", out, capsys)
    results = out / "cache" / "results"
    before = {path: path.stat().st_mtime_ns for path in results.iterdir()}
    again = reproduce("fig4a", out, capsys)
    assert again == first
    assert {path: path.stat().st_mtime_ns for path in results.iterdir()} == before
    assert not list((out / "cache" / "runs").glob("*/checkpoints/*"))


def test_a_table_is_put_together_from_several_commands(tmp_path, capsys):
    def units(*only):
        arguments = ["--quick", "--json", "--out", str(tmp_path), "--workers", "1", *only]
        assert main(["reproduce", "widths", *arguments]) == 0
        return [row["units"] for row in json.loads(capsys.readouterr().out)["rows"]]

    assert units("--only", "× 16,") == [16]
    assert units("--only", "× 8,") == [8, 16]
    line = error_line(["widths", "--quick", "--out", str(tmp_path), "--only", "elephant"], capsys)
    assert line.startswith(
        "blackout reproduce: --only elephant: no such row; there are WikiText-2, "
    )


def test_the_noise_distribution_s_mean(out, capsys):
    """Freely drawn samples: Q; without copies of the target: Q (1 - p) / (1 - Q)."""
    for row in reproduce("appendix-a", out, capsys)["rows"]:
        assert row["1 within"]
        expected = row["(1 − p) / (1 − Q)"]
        assert abs(row["without target"] - expected) <= 1.5 * row["without ±"]


def test_q_of_one_for_the_target_hurts(out, capsys):
    ours, one = reproduce("footnote1", out, capsys)["rows"]
    assert one["test"] > 1.2 * ours["test"]


def test_figure_3_and_5_use_the_runs_of_figure_2(out, capsys):
    reproduce("fig2a", out, capsys)
    results = out / "cache" / "results"
    before = set(results.iterdir())
    reproduce("fig3a", out, capsys)  # K = 10 is among those of the miniature
    assert set(results.iterdir()) == before


def error_line(arguments, capsys):
    assert main(["reproduce", *arguments]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_wrong_use_is_one_clear_line(tmp_path, capsys):
    assert "there is no 'fig9'; there are fig2a, " in error_line(["fig9"], capsys)
    out = ["--out", str(tmp_path / "out")]
    assert "--data names the folder with rnnlm-small" in error_line(["fig2a", *out], capsys)
    missing = error_line(["fig2a", "--data", str(tmp_path), *out], capsys)
    assert f"{tmp_path / 'rnnlm-small'}: has no train" in missing
    assert "hidden is 0, must be at least 1" in error_line(["table1", "--hidden", "0"], capsys)


def test_a_corpus_may_be_compressed_or_not(tmp_path):
    folder = tmp_path / "data" / "enwiki"
    folder.mkdir(parents=True)
    for name in ("train", "valid.txt", "test.txt"):
        (folder / name).write_text("the cat sat\nthe end\n")
    corpus = Lab(tmp_path / "out", tmp_path / "data").corpus("enwiki")
    assert [path.name for path in corpus.files.values()] == ["train", "valid.txt", "test.txt"]
    assert (corpus.vocab_size, corpus.words) == (6, 7)
    (folder / "train").unlink()
    with pytest.raises(UserError, match=r"has no train, train.txt, "):
        Lab(tmp_path / "out", tmp_path / "data").corpus("enwiki")
