"""Settings by validation perplexity: a grid, and successive halving over it.

All combinations train for a part of the epochs; the best of them go on from their checkpoints to
the next stage, and so forth, until few train all epochs. Training goes on bit for bit, so whoever
reaches the end ends like a plain run with the same settings and number of threads. Only the
validation text decides; the test text is not even opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from blackout.config import Config
from blackout.errors import UserError
from blackout.train.grid import combinations
from blackout.train.trials import Outcome, Trial, Trials


@dataclass(frozen=True)
class Tried:
    """One combination of settings, and how far it came."""

    values: dict[str, object]
    """The settings of the grid, by name."""
    config: Config
    """The whole config, with all epochs of the study."""
    epochs: int
    """Epochs it was trained for."""
    outcome: Outcome

    @property
    def valid_perplexity(self) -> float:
        """The best of its epochs; infinite where training failed."""
        return float("inf") if self.outcome.failure else self.outcome.valid_perplexity

    def to_dict(self) -> dict[str, object]:
        return self.values | {"epochs": self.epochs, "valid_perplexity": self.valid_perplexity}


@dataclass(frozen=True)
class Tuned:
    """What tuning found."""

    table: tuple[Tried, ...]
    """All combinations, the best first."""

    @property
    def best(self) -> Tried:
        return self.table[0]

    @property
    def config(self) -> Config:
        """The config with the settings of the winner."""
        return self.best.config


def tune(
    config: Config,
    data: Path,
    grid: Mapping[str, Sequence[object]],
    trials: Trials,
    halving: int = 3,
) -> Tuned:
    """Tries every combination of ``grid`` over ``config`` on the prepared text ``data``.

    After each stage one in ``halving`` goes on; with 1 all of them train all epochs.

        tuned = tune(config, Path("data"), {"alpha": [0, 0.4, 1]}, Trials(Path("study")))
        tuned.config.loss.alpha
    """
    found = combinations(config, grid)
    ends: dict[int, Tried] = {}
    going = list(range(len(found)))
    for stage, epochs in enumerate(stages(config.run.epochs, len(found), halving)):
        if stage > 0:
            going = _best(ends, going, halving)
        jobs = [_trial(found[i][1], data, epochs) for i in going]
        for i, outcome in zip(going, trials.run(jobs, keep_checkpoints=True), strict=True):
            values, whole = found[i]
            ends[i] = Tried(values, whole, epochs, outcome)
        if all(ends[i].outcome.failure for i in going):
            failure = ends[going[0]].outcome.failure
            raise UserError(f"no combination of the grid can be trained; the first: {failure}")
        over = [i for i in going if i not in _best(ends, going, halving)]
        trials.drop_checkpoints([_trial(found[i][1], data, epochs) for i in over])
    trials.drop_checkpoints([_trial(whole, data, whole.run.epochs) for _, whole in found])
    # Who was left behind was worse than all who went on, and these only become better: so the
    # best of all is one of the last stage.
    return Tuned(tuple(sorted(ends.values(), key=lambda t: (t.valid_perplexity, -t.epochs))))


def stages(epochs: int, candidates: int, halving: int) -> list[int]:
    """After how many epochs each stage ends.

    >>> stages(18, candidates=6, halving=3), stages(18, 30, 3), stages(4, 30, 3), stages(9, 6, 1)
    ([6, 18], [1, 2, 6, 18], [1, 4], [9])
    """
    if halving < 1:
        raise UserError(f"halving is {halving}, must be at least 1")
    ends = [epochs]
    while halving > 1 and ends[0] > 1 and halving ** len(ends) <= candidates:
        ends.insert(0, max(1, epochs // halving ** len(ends)))
    return ends


def _best(ends: Mapping[int, Tried], going: Sequence[int], halving: int) -> list[int]:
    """One in ``halving``, rounded up, of those that can be trained at all."""
    ranked = sorted(going, key=lambda i: ends[i].valid_perplexity)
    chosen = ranked[: -(-len(going) // halving)]
    return [i for i in chosen if not ends[i].outcome.failure]


def _trial(config: Config, data: Path, epochs: int) -> Trial:
    run = replace(config.run, epochs=epochs)
    return Trial(replace(config, run=run), data, measure=(), may_diverge=True)
