"""One word table for input and output, ``--tie``: trained, saved, resumed, scored as any other."""

import json
import math

import pytest
import torch

import blackout
from blackout.cli.main import main
from blackout.config import Config
from blackout.errors import UserError
from blackout.memory import training_need
from blackout.models.saved import new_model
from blackout.text.streams import Streams
from blackout.train.rates import learning_rates
from blackout.train.setup import build_optimizer, set_update_rates
from blackout.train.step import BlockShape, ComposedStep, make_step

TIED = [
    {},
    {"cell": "lstm", "bias": True, "loss": "nce"},
    {"cell": "gru", "loss": "full"},
    {"projection": 8, "loss": "sampled", "storage": "bf16", "precision": "bf16"},
    {"decay": "paper", "second_moment": "row"},
]


@pytest.mark.parametrize("settings", TIED)
def test_a_step_changes_one_table_by_both_gradients(lab, settings):
    """Whatever step the engine has for it: the same as the composed one."""
    config = lab.config(tie=True, **settings)
    shape = BlockShape(config.run.bptt, config.run.batch)
    weights = []
    for kind in (ComposedStep, make_step):
        model = new_model(config, lab.data.vocab).train()
        assert model.output.weight is model.embedding.weight
        optimizer = build_optimizer(config, model, lab.data.vocab.counts)
        step = kind(model, optimizer, shape)
        run, text = config.run, lab.data.shard("train")
        streams = Streams(text, run.batch, run.bptt, shuffle=False, seed=1, epoch=0)
        for block, _ in zip(streams, range(4), strict=False):
            step.train(block)
        assert all(math.isfinite(result.loss) for result in step.results())
        assert model.output.weight is model.embedding.weight
        weights.append(model.embedding.weight.detach().float())
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


def test_a_run_is_saved_with_one_table_and_resumed(lab, tmp_path, capsys):
    options = {"tie": True, "cell": "gru", "checkpoint_minutes": 1e-9}
    straight, halves = tmp_path / "a", tmp_path / "b"
    lab.train(straight, epochs=2, **options)
    lab.train(halves, epochs=1, **options)
    lab.train(halves, epochs=2, resume=True, **options)
    assert lab.differing(lab.final(straight), lab.final(halves)) == []
    names = lab.tensors(straight / "model.safetensors").keys()
    assert "embedding.weight" in names
    assert "output.table.weight" not in names
    model = blackout.load(straight)
    assert model.output.weight is model.embedding.weight
    assert main(["eval", str(straight), str(lab.text("test")), "--json"]) == 0
    assert math.isfinite(json.loads(capsys.readouterr().out)["perplexity"])
    other = new_model(lab.config(**options), lab.data.vocab)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.output.weight, model.output.weight)


def test_the_command_line(lab, tmp_path):
    options = lab.options(tmp_path / "run")
    assert main([*options, "--tie"]) == 0
    assert "tie = true" in (tmp_path / "run" / "run.toml").read_text()


def test_one_table_needs_half_the_memory():
    one, two = (
        training_need(Config.from_dict({"model": {"tie": tie}}), 1_000_000).parts["word tables"]
        for tie in (True, False)
    )
    assert 2 * one == two


def test_it_learns_at_the_rate_of_an_output_table(lab):
    configs = [lab.config(tie=tie, rates="width", decay="paper") for tie in (True, False)]
    tied, apart = (new_model(config, lab.data.vocab) for config in configs)
    rates, expected = map(learning_rates, configs, (tied, apart))
    assert rates[tied.embedding.weight] == expected[apart.output.weight]
    for config, model in zip(configs, (tied, apart), strict=True):
        set_update_rates(config, model, lab.data.vocab.counts)
    both = apart.embedding.update_rate + apart.output.table.update_rate
    torch.testing.assert_close(tied.embedding.update_rate, both)


def test_what_cannot_be_tied():
    with pytest.raises(UserError, match="projection is 3, must be 0 or 8, hidden, with tie"):
        Config.from_dict({"model": {"tie": True, "hidden": 8, "projection": 3}})


@pytest.mark.parametrize(
    "loss", [{"loss": "full"}, {"loss": "self-normalised", "normalise_over": "all"}], ids=str
)
def test_a_tied_table_with_dense_gradients_can_be_resumed(lab, tmp_path, loss):
    """All rows of it are touched in every step, those of the input too."""
    settings = {**loss, "tie": True, "bias": True, "keep_going": True}
    lab.train(tmp_path / "straight", **settings, epochs=2)
    lab.train(tmp_path / "resumed", **settings, epochs=2, stop_after=1)
    lab.train(tmp_path / "resumed", **settings, epochs=2, resume=True)
    assert lab.differing(lab.final(tmp_path / "straight"), lab.final(tmp_path / "resumed")) == []
