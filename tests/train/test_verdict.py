"""A ruined run says so: during the run, in its result, its JSON, its report and its status."""

import json
import math

import pytest

from blackout.cli.main import main
from blackout.errors import UserError
from blackout.pages.report import write_report
from blackout.train.verdict import Judge

RUINOUS = {"lr": 1.0, "keep_going": False, "epochs": 3}


def test_unigram_perplexity_is_that_of_the_counts(lab):
    data = lab.data
    judge = Judge.of(data.vocab, data.shard("valid"))
    counts = [max(count, 1) for count in data.vocab.counts]
    logs = [math.log(counts[word] / sum(counts)) for word in data.shard("valid").tokens]
    assert judge.unigram == pytest.approx(math.exp(-sum(logs) / len(logs)))
    assert judge.uniform == len(data.vocab)


def test_a_ruined_run_ends_with_its_best_model(lab, tmp_path):
    result = lab.train(tmp_path / "run", **RUINOUS)
    assert result.diverged.startswith("validation perplexity")
    assert result.epochs < 3
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_it_goes_on_if_it_is_told_to(lab, tmp_path):
    result = lab.train(tmp_path / "run", **RUINOUS | {"keep_going": True})
    assert result.epochs == 3
    assert result.diverged


def test_a_run_that_learns_is_not_called_ruined(lab, tmp_path):
    assert lab.train(tmp_path / "run", keep_going=False, epochs=3).diverged == ""


def test_the_command_line_says_so(lab, tmp_path, capsys):
    options = lab.options(tmp_path / "run", lr=1, epochs=3)
    assert main([*options, "--no-keep-going", "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["diverged"] is True
    assert "warning: validation perplexity" in printed.err
    assert "try a smaller --lr" in printed.err
    assert "training diverged" in printed.err.splitlines()[-1]
    assert "diverged: validation" in write_report(tmp_path / "run").read_text()


def test_the_rate_to_make_smaller_is_that_of_the_option(lab, tmp_path, capsys):
    """Not what a schedule that has come to its end left of it: 0."""
    options = lab.options(tmp_path / "run", lr=1, epochs=1, schedule="linear")
    assert main([*options, "--no-keep-going"]) == 1
    assert "try a smaller --lr (now 1)" in capsys.readouterr().err


def test_a_trial_that_diverges_is_an_outcome_or_an_error(lab, tmp_path):
    from blackout.trials.trials import Trial, Trials

    config = lab.config(**RUINOUS)
    trials = Trials(tmp_path / "study", workers=1)
    (outcome,) = trials.run([Trial(config, lab.data.folder, may_diverge=True)])
    assert "validation perplexity" in outcome.failure
    with pytest.raises(UserError, match="training diverged"):
        trials.run([Trial(config, lab.data.folder)])
