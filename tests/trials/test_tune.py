"""Grids and successive halving."""

import json
from dataclasses import replace

import pytest

from blackout.config import Config
from blackout.errors import UserError
from blackout.text.prepared import prepare
from blackout.trials.grid import combinations, parse_grid
from blackout.trials.halving import stages
from blackout.trials.trials import Trials
from blackout.trials.tune import tune


def test_who_goes_on_ends_like_a_plain_run(lab, tmp_path):
    data = prepare(
        lab.text("train"), tmp_path / "data", valid=lab.text("valid"), test=lab.text("test")
    )
    damaged = bytearray((tmp_path / "data" / "test.shard").read_bytes())
    damaged[-1] ^= 1  # whoever reads the test text would complain
    (tmp_path / "data" / "test.shard").write_bytes(damaged)
    config = lab.config(epochs=6)
    trials = Trials(tmp_path / "study", workers=1)
    grid = {"lr": [0.02, 1e30, 0.0001], "sharing": ["step", "block"]}
    tuned = tune(config, data.folder, grid, trials, halving=3)

    assert [tried.reached.epochs for tried in tuned.table] == [6, 6, 2, 2, 2, 2]
    perplexities = [tried.reached.valid_perplexity for tried in tuned.table]
    assert perplexities == sorted(perplexities)
    assert [tried.values["lr"] for tried in tuned.table] == [0.02, 0.02, 1e-4, 1e-4, 1e30, 1e30]
    assert perplexities[4:] == [float("inf")] * 2
    assert tuned.config == tuned.best.config
    assert tuned.config.run.epochs == 6
    assert tuned.config.optim.lr == 0.02
    for tried in tuned.table[:2]:
        out = tmp_path / str(tried.values["sharing"])
        lab.train(out, **tried.values, epochs=6)
        events = [json.loads(line) for line in (out / "metrics.jsonl").open()]
        straight = [(e["train_loss"], e["valid_perplexity"]) for e in events if "lr" in e]
        assert [(e.train_loss, e.valid_perplexity) for e in tried.reached.outcome.curve] == straight
    assert list((tmp_path / "study" / "runs").iterdir()) == [], "no checkpoints are left"

    with pytest.raises(UserError, match="no candidate can be trained; the first: "):
        tune(config, data.folder, {"lr": [1e30], "sharing": ["step", "block"]}, trials)


def test_stages():
    assert stages(18, 6, 3) == [6, 18]
    assert stages(10, 9, 3) == [1, 3, 10]
    assert stages(10, 2, 3) == stages(10, 100, 1) == [10]
    assert stages(1, 100, 2) == [1]
    assert stages(5, 1000, 2) == [1, 2, 5]
    with pytest.raises(UserError, match="halving is 0"):
        stages(10, 10, 0)


def test_a_grid_of_every_kind_of_setting():
    texts = ["samples=5,10", "log-z=learned,2", "damping=none,1e-6", "bias=true,false", "cell=gru"]
    grid = parse_grid(texts)
    assert grid == {
        "samples": [5, 10],
        "log_z": ["learned", 2.0],
        "damping": [None, 1e-6],
        "bias": [True, False],
        "cell": ["gru"],
    }
    base = Config.from_dict({"loss": {"loss": "nce", "alpha": 0.7}})
    found = combinations(base, grid)
    assert len(found) == 16
    values, config = found[0]
    assert list(values.values()) == [5, "learned", None, True, "gru"]
    assert config.loss == replace(base.loss, samples=5, log_z="learned")
    assert config.model == replace(base.model, bias=True, cell="gru")
    assert len({str(config) for _, config in found}) == 16


BAD_GRIDS = {
    "alpha": "must be NAME=VALUE",
    "alfa=1": "no setting is named 'alfa' (known: alpha, always_sample, batch,",
    "train=x": "no setting is named 'train'",
    "vocab_size=10": "no setting is named 'vocab_size'",
    "epochs=1,2": "epochs cannot be tuned",
    "threads=1,2": "threads cannot be tuned",
    "alpha=0,x": "'x' must be a number",
    "alpha=": "'' must be a number",
    "samples=1.5": "'1.5' must be a whole number",
    "sharing=all": "'all' must be step or block or word",
    "bias=1": "'1' must be true or false",
    "always_sample=the": "cannot be tuned",
    "alpha=0,1.5": "alpha is 1.5, must be between 0 and 1",
    "lr=nan": "lr is nan, must be above 0",
    "alpha=0.5,0.50": "alpha has the value 0.5 twice",
    "log_z=1,2": "log_z has no effect with loss blackout",
}


@pytest.mark.parametrize("text", BAD_GRIDS)
def test_bad_grids(text):
    with pytest.raises(UserError) as error:
        combinations(Config(), parse_grid([text]))
    assert BAD_GRIDS[text] in str(error.value)
    assert "--grid" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_setting_twice():
    with pytest.raises(UserError, match="log_z has its values already"):
        parse_grid(["log_z=1", "log-z=2"])
