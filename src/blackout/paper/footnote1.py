"""Footnote 1: q = 1 for the target in the weighted softmax, instead of 1 / Q(target)."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import perplexity_panel
from blackout.paper import small
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab

ALPHA = 0.4


def study(lab: Lab) -> Finding:
    corpus = lab.corpus(small.CORPUS, small.FULL)
    settings = [
        (k, weight) for k in (10, 50)[: 1 if lab.quick else 2] for weight in ("proposal", "one")
    ]
    trials = [
        small.trial(
            lab,
            corpus,
            {"samples": k, "alpha": ALPHA, "target_weight": weight, "collisions": "remove"},
        )
        for k, weight in settings
    ]
    rows: list[dict[str, Any]] = []
    names = []
    for (k, weight), cell in zip(settings, small.repeat(lab, trials), strict=True):
        shown = "1 / Q" if weight == "proposal" else "1"
        rows.append({"K": k, "q of the target": shown, **cell.figures()})
        names.append(f"K {k}, q = {shown}")
    return Finding(
        title="The target's weight in the softmax",
        claim="setting q = 1 for the target hurts the accuracy significantly.",
        setting=f"The small data set, BlackOut, α {ALPHA}, {small.size(lab)}.",
        rows=rows,
        panels=[perplexity_panel(names, rows)],
    )
