"""How the learning rate should fall: to zero by step, linearly or as a cosine, or by validation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from blackout.pages.picture import Curve, Panel
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.paper.networks import Case, open_texts, perplexity, shown, trial

SCHEDULES = ("linear", "cosine", "validation", "constant")
RATES = (0.5, 1.0)
EPOCHS = (2,)
CASES = (
    Case("WikiText-2", "sigmoid", 256),
    Case("WikiText-2", "gru", 64),
)
QUICK = (Case("WikiText-2", "sigmoid", 16, batch=32),)


def study(lab: Lab) -> Finding:
    cases, rates, lengths = (QUICK, (1.0,), (1, 2)) if lab.quick else (CASES, RATES, EPOCHS)
    corpora = open_texts(lab, cases)
    settings = [(c, n, s, lr) for c in cases for n in lengths for s in SCHEDULES for lr in rates]
    outcomes = lab.run(
        [trial(lab, corpora, replace(c, epochs=n), lr, schedule=s) for c, n, s, lr in settings]
    )
    found = {setting: perplexity(run) for setting, run in zip(settings, outcomes, strict=True)}

    def best(case: Case, epochs: int, schedule: str) -> float:
        return min(found[case, epochs, schedule, lr] for lr in rates)

    rows: list[dict[str, Any]] = [
        {"network": case.network, "epochs": n, "schedule": s}
        | {f"lr {lr:g}": shown(found[case, n, s, lr]) for lr in rates}
        | {"best": shown(best(case, n, s))}
        for case in cases
        for n in lengths
        for s in SCHEDULES
    ]
    return Finding(
        title="Schedules",
        claim="the rate is multiplied by 0.7 when validation gets worse (schedule validation).",
        setting="Validation perplexity on the first 20,000 lines of WikiText-2, one seed.",
        rows=rows,
        panels=[
            Panel(
                "epochs planned",
                "validation perplexity",
                [Curve(s, lengths, [best(case, n, s) for n in lengths]) for s in SCHEDULES],
                title=f"{case.network}, the best learning rate",
            )
            for case in cases
        ],
    )
