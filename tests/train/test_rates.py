"""How fast each kind of weight learns, and where it starts."""

import pytest
import torch

from blackout.config import Config
from blackout.models import build_model
from blackout.train.rates import CELLS, learning_rates
from blackout.train.setup import build_optimizer

COUNTS = [5, 4, 3, 2, 1]


def rates(cell="lstm", hidden=16, batch=128, bptt=20, words=None, epochs=10, optim=None, **model):
    config = Config.from_dict(
        {
            "model": {"cell": cell, "hidden": hidden, **model},
            "loss": {"samples": 3},
            "optim": optim or {},
            "run": {"batch": batch, "bptt": bptt, "epochs": epochs},
        }
    )
    made = build_model(config, COUNTS)
    by_name = {id(p): name for name, p in made.named_parameters()}
    return {by_name[id(p)]: rate for p, rate in learning_rates(config, made, words).items()}


def of_plan(words, epochs, **optim):
    """How the plan changes a rate."""
    planned, plain = (rates(words=n, epochs=epochs, optim=optim) for n in (words, None))
    return planned["embedding.weight"] / plain["embedding.weight"]


@pytest.mark.parametrize("cell", list(CELLS))
def test_sums_over_more_states_learn_more_slowly(cell):
    narrow, wide = rates(cell, 16), rates(cell, 64)
    for name, rate in narrow.items():
        power = {"embedding": 0, "output": CELLS[cell].output_power}.get(
            name.partition(".")[0], CELLS[cell].recurrent_power
        )
        assert wide[name] == pytest.approx(rate * 4**-power)


def test_at_the_reference_width_and_block_they_are_the_cells():
    assert rates("tanh", 256) == {
        "embedding.weight": CELLS["tanh"].input,
        "layers.0.recurrent": CELLS["tanh"].recurrent,
        "output.table.weight": CELLS["tanh"].output,
    }


def test_all_go_with_lr_and_with_a_root_of_the_blocks_words():
    plain = rates()
    for name, rate in rates(optim={"lr": 3.0}, batch=32).items():
        assert rate == pytest.approx(plain[name] * 3.0 / 2)
    for name, rate in rates(batch=1024).items():
        assert rate == pytest.approx(plain[name] * 2)


def test_they_fall_with_the_words_of_the_text_and_with_the_passes_over_it():
    once = of_plan(2_000_000, 1)
    assert of_plan(16_000_000, 1) == pytest.approx(once / 2)
    assert of_plan(2_000_000, 8) == pytest.approx(once / 4)
    assert of_plan(2_000_000, 8, schedule="cosine") == of_plan(2_000_000, 8)
    assert of_plan(1, 1) == 5.0  # no more than was tried


def test_passes_that_nobody_planned_are_a_few():
    for epochs, optim in ((1, {"schedule": "constant"}), ("auto", {})):
        assert of_plan(2_000_000, epochs, **optim) == of_plan(2_000_000, 3)
    assert of_plan(2_000_000, 1, optimizer="adagrad") == 1  # its steps shrink by themselves


def test_sigmoid_layers_over_one_another_have_a_rate_of_their_own():
    for hidden, rate in ((256, 0.01), (1024, 0.0025)):
        found = rates("sigmoid", hidden, layers=2)
        for name in ("layers.0.recurrent", "layers.1.recurrent", "layers.1.input.weight"):
            assert found[name] == pytest.approx(rate)


def test_single_numbers_have_their_own_rate():
    found = rates("sigmoid", 64, bias=True)
    assert found["output.biases.weight"] == found["layers.0.bias"] == 0.01


def test_the_paper_has_one_rate_for_all():
    config = Config.from_dict({"preset": "paper", "model": {"hidden": 8}, "loss": {"samples": 3}})
    optimizer = build_optimizer(config, build_model(config, COUNTS), COUNTS)
    assert {group["lr"] for group in optimizer.param_groups} == {0.004}
    assert not any(group["correct_bias"] for group in optimizer.param_groups)


@pytest.mark.parametrize("hidden", [4, 64, 1024])
def test_initial_values_follow_the_width(hidden):
    config = Config.from_dict({"model": {"cell": "tanh", "hidden": hidden}, "loss": {"samples": 3}})
    model = build_model(config, list(range(1, 2001)))
    limit = hidden**-0.5
    for weight in (model.layers[0].recurrent, model.output.weight):
        assert float(weight.abs().max()) <= limit
        assert float(weight.std()) == pytest.approx(limit / 3**0.5, rel=0.3)
    assert 0.29 < float(model.embedding.weight.abs().max()) <= 0.3


def test_init_range_stands_over_it():
    config = Config.from_dict({"preset": "paper", "model": {"hidden": 64}, "loss": {"samples": 3}})
    model = build_model(config, list(range(1, 501)))
    largest = [float(p.detach().abs().max()) for p in model.parameters()]
    assert torch.tensor(largest).max() <= 0.08


def test_a_sigmoid_layer_over_another_starts_wide():
    model = {"cell": "sigmoid", "hidden": 64, "layers": 2}
    config = Config.from_dict({"model": model, "loss": {"samples": 3}})
    first, second = build_model(config, COUNTS).layers
    limit = 10 / 64**0.5
    assert 0.9 * limit < float(second.input.weight.detach().abs().max()) <= limit
    for layer in (first, second):
        assert float(layer.recurrent.detach().abs().max()) <= limit / 10
