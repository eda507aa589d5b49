"""Settings by name."""

import pytest

from blackout.cli.train import read_options
from blackout.config import Config
from blackout.errors import UserError


def test_own_settings_stand_over_the_presets():
    config = Config.from_dict({"preset": "paper", "optim": {"lr": 0.01}})
    assert (config.optim.lr, config.optim.rates, config.model.init_range) == (0.01, "same", 0.08)
    assert config.schedule == "validation"


def test_a_file_can_name_one(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('preset = "paper"\n[model]\ncell = "lstm"\n')
    config = Config.from_file(file)
    assert (config.model.cell, config.optim.rates) == ("lstm", "same")


def test_command_line_over_file_over_preset(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[optim]\nlr = 0.5\nclip = 2.0\n")
    options = ["--out", "x", "--preset", "paper", "--config", str(file), "--lr", "0.25"]
    optim = read_options(options).settings.optim
    assert (optim.lr, optim.clip, optim.rates) == (0.25, 2.0, "same")


def test_an_unknown_one_is_refused():
    with pytest.raises(UserError, match="preset is 'mine', must be one of paper"):
        Config.from_dict({"preset": "mine"})
    with pytest.raises(UserError, match="optim must be a table"):
        Config.from_dict({"preset": "paper", "optim": 3})
