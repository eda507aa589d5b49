"""``blackout tune``: the winner's file trains the winner, nothing is run twice."""

import json

import pytest

from blackout import losses
from blackout.cli.main import main
from blackout.cli.tune import default_grid
from blackout.config import Config
from blackout.trials.crew import Worker
from blackout.trials.grid import combinations


def test_tune(lab, tmp_path, capsys, monkeypatch):
    out = tmp_path / "tune"
    common = ["--grid", "alpha=0,1", "--grid", "lr=0.02,0.0001", "--halving", "2", "--workers", "1"]
    command = ["tune", *lab.options(out, epochs=4)[1:], *common, "--json"]
    assert main(command) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert result.keys() >= {"alpha", "trials", "best", "config"}
    assert [trial["epochs"] for trial in result["trials"]] == [4, 2, 1, 1]
    assert result["best"] == result["trials"][0]
    assert result["best"]["alpha"] == result["alpha"]
    assert result["best"]["lr"] == 0.02
    assert result["config"] == str(out / "best.toml")
    saved = [json.loads(line) for line in (out / "trials.jsonl").open()]
    assert saved == result["trials"]
    table = said.err.splitlines()[-6:]
    assert table[0].split() == ["alpha", "lr", "epochs", "validation", "perplexity"]
    assert table[1].split()[2:] == ["4", f"{result['best']['valid_perplexity']:.2f}"]

    config = Config.from_file(out / "best.toml")
    assert config.data.train == str(lab.text("train"))
    assert config.run.epochs == 4
    assert not (out / "data" / "test.shard").exists()
    trained = ["train", "--config", str(out / "best.toml"), "--out", str(tmp_path / "run")]
    assert main([*trained, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["valid_perplexity"] == result["best"]["valid_perplexity"]
    assert values["test_perplexity"] is not None

    monkeypatch.setattr(Worker, "__init__", lambda *_: pytest.fail("a run was started"))
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == result


def test_every_loss_has_something_to_vary_by_default():
    for loss in losses.names():
        config = Config.from_dict({"loss": {"loss": loss}})
        grid = default_grid(config)
        assert list(grid) == ["alpha" if "alpha" in losses.find(loss).options else "lr"]
        assert len(combinations(config, grid)) == 6


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--grid", "alfa=1"], "no setting is named 'alfa'"),
        (["--grid", "alpha=0,2"], "alpha is 2.0, must be between 0 and 1"),
        (["--grid", "alpha=0", "--grid", "alpha=1"], "alpha has its values already"),
        (["--halving", "0"], "halving is 0, must be at least 1"),
        (["--workers", "-1"], "workers is -1, must be 0 or more"),
        (["--loss", "full", "--grid", "alpha=0,1"], "alpha has no effect with loss full"),
        (["--config", "nowhere.toml"], "nowhere.toml: cannot read"),
    ],
)
def test_bad_options(lab, tmp_path, capsys, options, named):
    assert main(["tune", *lab.options(tmp_path / "out")[1:], *options]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("blackout tune: ")
    assert named in line
    assert not (tmp_path / "out").exists()
