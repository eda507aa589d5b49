"""Settings by validation perplexity: a grid, and successive halving over it.

Only the validation text decides; the test text is not even opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from blackout.config import Config
from blackout.trials.grid import combinations
from blackout.trials.halving import Reached, halve, rank
from blackout.trials.trials import Trial, Trials


@dataclass(frozen=True)
class Tried:
    """One combination of settings, and how far it came."""

    values: dict[str, object]
    """The settings of the grid, by name."""
    config: Config
    """The whole config, with all epochs of the study."""
    reached: Reached

    def to_dict(self) -> dict[str, object]:
        reached = self.reached
        return self.values | {
            "epochs": reached.epochs,
            "valid_perplexity": reached.valid_perplexity,
        }


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
    candidates = [Trial(whole, data, measure=()) for _, whole in found]
    (reached,) = halve([candidates], trials, halving)
    table = [
        Tried(values, whole, how_far)
        for (values, whole), how_far in zip(found, reached, strict=True)
    ]
    return Tuned(tuple(sorted(table, key=lambda tried: rank(tried.reached))))
