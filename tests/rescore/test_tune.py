"""Tuning: a planted optimum is found, and nothing gets worse."""

from pathlib import Path

import numpy as np
import pytest

from blackout.errors import UserError
from blackout.rescore.nbest import Hypothesis, NBest, Utterance
from blackout.rescore.score import ScoredLists
from blackout.rescore.tune import ListErrors, count_errors, read_references, tune
from blackout.rescore.weights import Weights


def planted(lm_weight, word_penalty, *, old_lm_weight=0.0, mix=None, seed=0):
    """Lists in which the best by these weights is right and all others are wrong."""
    rng = np.random.default_rng(seed)
    utterances, size = 400, 20
    count = utterances * size
    words = rng.integers(5, 15, count)
    logs = rng.normal(-6, 2, (count, 2)).clip(max=-0.01)
    scored = ScoredLists(
        acoustic=rng.normal(-100, 10, count),
        old_lm=rng.normal(-60, 3, count) if old_lm_weight else np.zeros(count),
        words=words,
        unknown=np.zeros(count, np.int64),
        first=np.arange(0, count + 1, size),
        starts=np.arange(count),
        network=10 * logs[:, 0] if mix is None else logs[:, 0],
        ngram=None if mix is None else logs[:, 1],
        prefixes=0,
        pairs=0,
    )
    truth = Weights(
        lm_weight=lm_weight,
        word_penalty=word_penalty,
        old_lm_weight=old_lm_weight,
        weight=0.5 if mix is None else mix,
    )
    errors = np.ones(count, np.int64)
    errors[scored.best(scored.totals(truth))] = 0
    return scored, ListErrors(errors, scored.first, 10 * utterances), truth


def rate(scored, errors, weights):
    return errors.count(scored.best(scored.totals(weights))) / 400


@pytest.mark.parametrize(("lm_weight", "penalty"), [(3.0, 0.0), (0.7, 2.0), (11.0, -5.0)])
def test_planted_weights_are_found(lm_weight, penalty):
    scored, errors, truth = planted(lm_weight, penalty)
    start = Weights(lm_weight=0.01)
    found = tune(scored, errors, start)
    assert rate(scored, errors, truth) == 0
    assert rate(scored, errors, start) > 0.3
    assert rate(scored, errors, found) < 0.03
    assert found.lm_weight == pytest.approx(lm_weight, rel=0.1)
    assert found.word_penalty == pytest.approx(penalty, abs=0.15 * lm_weight)
    assert (found.am_weight, found.weight, found.old_lm_weight) == (1, 0.5, 0)


def test_the_old_score_and_the_mixture_are_tuned_where_there_are_any():
    scored, errors, _ = planted(2.0, 0.0, old_lm_weight=1.5)
    found = tune(scored, errors, Weights())
    assert found.old_lm_weight == pytest.approx(1.5, rel=0.25)
    scored, errors, _ = planted(20.0, 0.0, mix=0.2)
    found = tune(scored, errors, Weights())
    assert found.weight == pytest.approx(0.2, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_never_worse(seed):
    scored, errors, truth = planted(1.7, 0.3, seed=seed)
    assert tune(scored, errors, truth) == truth
    rng = np.random.default_rng(seed)
    noise = ListErrors(rng.integers(0, 9, len(errors.errors)), errors.first, 100)
    start = Weights(lm_weight=0.6)
    found = tune(scored, noise, start)
    assert rate(scored, noise, found) <= rate(scored, noise, start)


def lists(**texts):
    return NBest(
        "jsonl",
        1.0,
        [
            Utterance(name, [Hypothesis(text, tuple(text.split())) for text in some])
            for name, some in texts.items()
        ],
    )


def test_errors_of_lists(tmp_path):
    path = tmp_path / "refs"
    path.write_text("b one two\na the cat sat\nc\nunused x\n")
    nbest = lists(a=["a cat sat", "the cat", "the cat sat"], b=["two"], c=["", "x"])
    errors = count_errors(nbest, read_references(path), path)
    assert errors.errors.tolist() == [1, 1, 0, 1, 0, 1]
    assert errors.words == 5
    assert (errors.listed, errors.oracle) == (2 / 5, 1 / 5)
    assert errors.rate(np.array([1, 3, 5])) == 3 / 5


@pytest.mark.parametrize(
    ("content", "named"),
    [("b x\n", "the utterance a"), ("", "nothing in it"), ("a\n", "no words"), ("a x\na y", "2")],
)
def test_bad_references(tmp_path, content, named):
    path = Path(tmp_path / "refs")
    path.write_text(content)
    with pytest.raises(UserError, match=named) as error:
        count_errors(lists(a=["x"]), read_references(path), path)
    assert str(path) in str(error.value)
