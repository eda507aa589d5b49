"""Every study of the paper, as a miniature on text that ships with Python."""

import json
import math
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from blackout.cli.main import main
from blackout.config import Config
from blackout.errors import UserError
from blackout.mixture.mixture import Mixture
from blackout.models import load
from blackout.ngram import NGram, train
from blackout.paper import large
from blackout.paper.lab import Lab
from blackout.paper.mixing import Scored, five_gram, mix
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


def test_validation_chooses_among_all_that_was_tried_on_any_machine(tmp_path, capsys):
    def table(folder, *more):
        command = ["reproduce", "table1", "--quick", "--json", "--workers", "1"]
        assert main([*command, "--out", str(tmp_path / folder), *more]) == 0
        return json.loads(capsys.readouterr().out)

    one = ("--cell", "sigmoid", "--hidden", "8")
    runs = ["reproduce", "table1", "--quick", "--workers", "1", *one, "--runs-only"]
    assert main([*runs, "--dropout", "0", "--out", str(tmp_path / "there")]) == 0
    assert "the table: --known" in capsys.readouterr().out
    assert not list((tmp_path / "there").glob("table1*"))
    first = table("there", *one, "--dropout", "0", "0.5", "--only", "dropout 0,")
    assert [row["dropout"] for row in first["tries"]] == [0.0]
    both = table("there", *one, "--dropout", "0.5")
    assert [row["dropout"] for row in both["tries"]] == [0.0, 0.5]
    best = min(both["tries"], key=lambda row: row["valid"])
    assert [row["dropout"] for row in both["rows"]] == [best["dropout"]]
    # what is kept of the runs says nothing of the place
    (tmp_path / "here").mkdir()
    for kept in ("results", "words"):
        shutil.copytree(tmp_path / "there/cache" / kept, tmp_path / "here/cache" / kept)
    here = table("here", *one, "--known")
    assert here["rows"] == both["rows"]
    assert here["tries"] == both["tries"]
    assert not (tmp_path / "here/cache/runs").exists()
    line = error_line(["table2", "--quick", "--out", str(tmp_path / "here"), "--known"], capsys)
    assert "--known: " in line
    assert "has no row of this table" in line


def test_a_network_is_mixed_as_by_the_mixture_of_models(out):
    """From the words' log-probabilities alone, in float32."""
    lab = Lab(out, quick=True, workers=1)
    corpus = large.shortlist(lab)
    (tried,) = large.tries(lab, corpus, large.Network("sigmoid", 8), 1, (0.0,), keep_words=True)
    (outcome,) = lab.run([replace(tried.trial, keep_model=True)])
    found = mix(outcome.words, five_gram(lab, corpus))
    train(corpus.files["train"], out / "5-gram.arpa")
    models = [("network", load(outcome.model)), ("5-gram", NGram.load(out / "5-gram.arpa"))]
    mixture = Mixture(models)
    fit, _ = mixture.tune(corpus.files["valid"])
    whole = mixture.evaluate(corpus.files["test"], fit.weights)
    assert found.mixture == pytest.approx(whole.perplexity, rel=1e-5)
    assert found.weight == pytest.approx(fit.weights[0], abs=1e-4)
    assert [found.network, found.ngram] == pytest.approx(whole.component_perplexities, rel=1e-5)
    shorter = {p: Scored(*(a[1:] for a in s)) for p, s in five_gram(lab, corpus).items()}
    with pytest.raises(UserError, match="has not the words of this corpus"):
        mix(outcome.words, shorter)


def test_the_paper_s_settings_are_there_by_name(tmp_path):
    ours, papers = (
        large.config(Lab(tmp_path, quick=True, preset=preset), {"hidden": 8}, 1)
        for preset in (None, "paper")
    )
    assert (ours.optim.rates, ours.run.precision) == ("width", "bf16")
    assert (papers.optim.rates, papers.optim.lr, papers.run.precision) == ("same", 0.004, "fp32")
    assert Config.from_dict({"preset": "paper"}).optim == papers.optim


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
    assert "epochs is auto, which is for table1, " in error_line(
        ["fig2a", "--epochs", "auto"], capsys
    )
    assert "--known is for table1, " in error_line(["fig5", "--known"], capsys)


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
