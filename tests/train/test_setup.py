"""What a run is made of."""

import pytest
import torch

from blackout.config import Config
from blackout.errors import UserError
from blackout.models import build_model
from blackout.train.setup import build_optimizer, default_damping, default_threads


def config(**tables) -> Config:
    model = {"cell": "sigmoid", "hidden": 4}
    return Config.from_dict({"model": model, "loss": {"samples": 3}, **tables})


def test_damping_follows_the_block_unless_it_is_given():
    small = config(run={"batch": 8, "bptt": 15}, optim={"beta": 0.999})
    large = config(run={"batch": 128, "bptt": 20}, optim={"beta": 0.99})
    assert default_damping(small) == pytest.approx(1e-3 / 120**2)
    assert default_damping(large) == pytest.approx(1e-2 / 2560**2)
    for settings, expected in [
        (small, default_damping(small)),
        (config(optim={"damping": 1e-6}), 1e-6),
        (config(optim={"damping": 0.0}), 0.0),
    ]:
        optimizer = build_optimizer(settings, build_model(settings, [5, 4, 3]), [5, 4, 3])
        assert [group["damping"] for group in optimizer.param_groups] == [expected] * 3


def test_each_optimiser_with_its_settings():
    shared = {"clip": 2.0, "weight_decay": 0.1, "second_moment": "row"}
    for name, own in [("rmsprop", {"beta": 0.9}), ("adam", {"betas": (0.5, 0.9)}), ("adagrad", {})]:
        settings = config(optim={"optimizer": name, "beta": 0.9, "momentum": 0.5, **shared})
        optimizer = build_optimizer(settings, build_model(settings, [5, 4, 3]), [5, 4, 3])
        assert type(optimizer).__name__.lower() == name
        for group in optimizer.param_groups:
            assert {**group, **shared, **own} == group
    with pytest.raises(UserError, match="decay paper is for optimizer rmsprop, not adam"):
        config(optim={"optimizer": "adam", "decay": "paper"})
    with pytest.raises(UserError, match="decay is paper, which has no rates for hashed features"):
        config(loss={"maxent": 2}, optim={"decay": "paper"})


@pytest.mark.parametrize(("sharing", "sets"), [("step", 15), ("block", 1), ("word", 120)])
@pytest.mark.parametrize("cap", [False, True])
def test_update_rates_are_the_papers(sharing, sets, cap):
    """Equations 18 and 19: p_uni B T, and Q K for each sample set on top."""
    counts = torch.tensor([60.0, 30.0, 9.0, 1.0])
    settings = config(
        run={"batch": 8, "bptt": 15},
        loss={"samples": 3, "alpha": 0.5, "sharing": sharing},
        optim={"decay": "paper", "cap_update_rate": cap},
    )
    optimizer = build_optimizer(settings, build_model(settings, counts), counts)
    q = counts.double().sqrt() / counts.double().sqrt().sum()
    unigram = counts.double() / 100
    inputs, recurrent, outputs = (group["update_rate"] for group in optimizer.param_groups)
    for rate, expected in [(inputs, unigram * 120), (outputs, unigram * 120 + q * 3 * sets)]:
        torch.testing.assert_close(
            rate, expected.clamp(max=1) if cap else expected, rtol=1e-6, atol=0
        )
    assert recurrent is None


def test_small_blocks_are_left_to_one_thread():
    small = config(model={"hidden": 16}, run={"batch": 8, "bptt": 15})
    assert default_threads(small, 3720) == 1
    assert default_threads(config(model={"hidden": 256}, loss={"samples": 500}), 64_000) == 0
    assert default_threads(config(model={"hidden": 64}, loss={"loss": "full"}), 64_000) == 0
