"""Is twice the width ever worse? The default settings, every width, several seeds, by epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from blackout.config import Cell
from blackout.pages.picture import Curve, Panel
from blackout.paper.finding import Finding, counted
from blackout.paper.lab import Lab, mean_and_spread
from blackout.paper.networks import Case, open_texts, shown, trial
from blackout.trials.trials import Outcome

TEXT = "WikiText-2"
CELLS: tuple[Cell, ...] = ("sigmoid", "gru")
WIDTHS = (64, 128, 256, 512, 1024, 2048)
SEEDS = (1, 2)
EPOCHS = 1


def study(lab: Lab) -> Finding:
    cells, widths, seeds = (CELLS[:1], (8, 16), SEEDS[:2]) if lab.quick else (CELLS, WIDTHS, SEEDS)
    cases = [Case(TEXT, cell, hidden, epochs=EPOCHS) for cell in cells for hidden in widths]
    corpora = open_texts(lab, cases)
    found = lab.rows({str(c): [trial(lab, corpora, c, seed=seed) for seed in seeds] for c in cases})
    cases = [case for case in cases if str(case) in found]
    runs = [found[str(case)] for case in cases]
    rows = [row(case, of) for case, of in zip(cases, runs, strict=True)]
    by_epoch = [[epoch_perplexities(run) for run in of] for of in runs]
    worse = [
        f"{cases[i].network} after epoch {epoch + 1}"
        for i in range(1, len(cases))
        if cases[i].cell == cases[i - 1].cell and cases[i].hidden == 2 * cases[i - 1].hidden
        for epoch in range(len(by_epoch[i][0]))
        if is_worse([r[epoch] for r in by_epoch[i]], [r[epoch] for r in by_epoch[i - 1]])
    ]
    return Finding(
        title="Twice the width",
        claim="larger is better (its table 1), with settings tuned for each size.",
        setting=(
            "The first 20,000 lines of WikiText-2, the default settings. Validation perplexity "
            f"after each epoch, the mean and half the range of {counted(len(seeds), 'seed')}. "
            "Worse than half the width by more than the seeds differ: "
            + (", ".join(worse) or "none")
            + "."
        ),
        rows=rows,
        panels=[
            Panel(
                "hidden units",
                "validation perplexity",
                [
                    Curve.of_runs(cell, *last_perplexities(cell, cases, by_epoch))
                    for cell in {case.cell: None for case in cases}
                ],
                title="After the last epoch, nothing tuned",
                x_log=True,
                x_ticks=widths,
            )
        ],
    )


def last_perplexities(
    cell: Cell, cases: Sequence[Case], by_epoch: Sequence[Sequence[Sequence[float]]]
) -> tuple[list[int], list[list[float]]]:
    """The widths of a cell's networks, and where their runs ended."""
    of_cell = [(c, runs) for c, runs in zip(cases, by_epoch, strict=True) if c.cell == cell]
    return [c.hidden for c, _ in of_cell], [[run[-1] for run in runs] for _, runs in of_cell]


def epoch_perplexities(run: Outcome) -> list[float]:
    return [math.inf if run.failure else epoch.valid_perplexity for epoch in run.curve] or [
        math.inf
    ]


def is_worse(wider: Sequence[float], narrower: Sequence[float]) -> bool:
    """Whether every seed of the wider network ends above every seed of the narrower one."""
    return min(wider) > max(narrower)


def row(case: Case, runs: Sequence[Outcome]) -> dict[str, Any]:
    """A network's line of the table."""
    curves = zip(*(epoch_perplexities(run) for run in runs), strict=True)
    found = [mean_and_spread(values) for values in curves]
    return {
        "cell": case.cell,
        "units": case.hidden,
        **{
            name: value
            for epoch, (mean, spread) in enumerate(found, 1)
            for name, value in ((f"epoch {epoch}", shown(mean)), (f"± {epoch}", shown(spread)))
        },
    }
