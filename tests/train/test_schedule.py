"""How the learning rate falls, and when a run without a number of epochs ends."""

import pytest

from blackout.optim import Schedule
from blackout.train.metrics import read_metrics


def epochs(out):
    return [event for event in read_metrics(out / "metrics.jsonl") if event["event"] == "epoch"]


def test_linear_and_cosine_end_at_nothing():
    for shape in ("linear", "cosine"):
        schedule = Schedule(shape)
        factors = [schedule.factor(i / 10) for i in range(11)]
        assert factors[0] == 1
        assert factors[-1] == pytest.approx(0, abs=1e-12)
        assert factors == sorted(factors, reverse=True)
        assert factors[5] == pytest.approx(0.5)


def test_validation_does_not_touch_the_other_shapes():
    schedule = Schedule("linear", decay=0.5, cut=0.5)
    schedule.after_epoch(100.0)
    schedule.after_epoch(200.0)
    assert schedule.factor(0.25) == 0.75
    assert (schedule.best, schedule.epochs_since_best) == (100.0, 1)


def test_the_rate_falls_from_epoch_to_epoch(lab, tmp_path):
    lab.train(tmp_path / "run", epochs=4, schedule="linear", lr=0.01)
    found = [epoch["lr"] for epoch in epochs(tmp_path / "run")]
    assert found == pytest.approx([0.01, 0.0075, 0.005, 0.0025])


def test_a_run_stopped_after_an_epoch_goes_on_as_planned(lab, tmp_path):
    """Halving relies on it: part of a longer run, not a shorter run."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    lab.train(whole, epochs=4, schedule="linear")
    result = lab.train(parts, epochs=4, schedule="linear", stop_after=2)
    assert result.epochs == 2
    lab.train(parts, epochs=4, schedule="linear", resume=True)
    assert lab.differing(lab.final(whole), lab.final(parts)) == []


def test_auto_trains_until_validation_stops_improving(lab, tmp_path):
    result = lab.train(tmp_path / "run", epochs="auto", patience=2, lr=0.2)
    perplexities = [epoch["valid_perplexity"] for epoch in epochs(tmp_path / "run")]
    best = perplexities.index(min(perplexities))
    assert result.epochs == len(perplexities) == best + 1 + 2
    assert result.valid_perplexity == min(perplexities)
