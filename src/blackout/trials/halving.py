"""Successive halving: of many candidates most train for a part of the epochs only.

All candidates train for a part of their epochs; the best of them go on from their checkpoints to
the next stage, and so forth, until few train all epochs. Training goes on bit for bit, so whoever
reaches the end ends like a plain run with the same settings and number of threads. Validation
perplexity alone decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from blackout.errors import UserError
from blackout.trials.trials import Outcome, Trial, Trials


@dataclass(frozen=True)
class Reached:
    """How far a candidate came."""

    epochs: int
    outcome: Outcome

    @property
    def valid_perplexity(self) -> float:
        """The best of its epochs; infinite where training failed."""
        return float("inf") if self.outcome.failure else self.outcome.valid_perplexity


def choose(questions: Sequence[Sequence[Trial]], trials: Trials, halving: int = 3) -> list[Trial]:
    """The best candidate of each question; the questions are worked on side by side."""
    chosen = []
    for candidates, reached in zip(questions, halve(questions, trials, halving), strict=True):
        best = min(range(len(candidates)), key=lambda i: rank(reached[i]))
        chosen.append(candidates[best])
    return chosen


def rank(reached: Reached) -> tuple[float, int]:
    """Sorts the best first, and of equals who trained longer.

    Who was left behind was worse than all who went on, and these only become better: so the first
    of all is one of the last stage.
    """
    return reached.valid_perplexity, -reached.epochs


def halve(
    questions: Sequence[Sequence[Trial]], trials: Trials, halving: int = 3
) -> list[list[Reached]]:
    """How far each candidate of each question came.

    After each stage one in ``halving`` of a question's candidates goes on; with 1 all of them train
    all epochs. A candidate whose numbers become infinite goes no further.
    """
    ways = [stages(question[0].config.run.epochs, len(question), halving) for question in questions]
    reached: list[dict[int, Reached]] = [{} for _ in questions]
    going = [list(range(len(question))) for question in questions]
    for stage in range(max(map(len, ways))):
        open_ones = [q for q, way in enumerate(ways) if stage < len(way)]
        jobs = {
            (q, i): _shortened(questions[q][i], ways[q][stage]) for q in open_ones for i in going[q]
        }
        outcomes = trials.run(list(jobs.values()), keep_checkpoints=True)
        for (q, i), outcome in zip(jobs, outcomes, strict=True):
            reached[q][i] = Reached(ways[q][stage], outcome)
        for q in open_ones:
            if all(reached[q][i].outcome.failure for i in going[q]):
                failure = reached[q][going[q][0]].outcome.failure
                raise UserError(f"no candidate can be trained; the first: {failure}")
            going[q] = _best(reached[q], going[q], halving)
        needed = {questions[q][i] for q in range(len(questions)) for i in going[q]}
        # A run that went out here may still be going on as the candidate of another question.
        over = [job for (q, i), job in jobs.items() if questions[q][i] not in needed]
        trials.drop_checkpoints(over)
    trials.drop_checkpoints([trial for question in questions for trial in question])
    return [[found[i] for i in range(len(found))] for found in reached]


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


def _best(reached: dict[int, Reached], going: Sequence[int], halving: int) -> list[int]:
    """One in ``halving``, rounded up, of those that can be trained at all."""
    ranked = sorted(going, key=lambda i: reached[i].valid_perplexity)
    chosen = ranked[: -(-len(going) // halving)]
    return [i for i in chosen if not reached[i].outcome.failure]


def _shortened(trial: Trial, epochs: int) -> Trial:
    run = replace(trial.config.run, epochs=epochs)
    return replace(trial, config=replace(trial.config, run=run), may_diverge=True)
