"""Appendix C: how the second moment of a row ages while the row is not touched."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import perplexity_panel
from blackout.paper import small
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab

SAMPLES = 10
DECAYS: dict[str, dict[str, Any]] = {
    "exact": {"decay": "exact"},
    "paper": {"decay": "paper"},
    "paper, rate capped": {"decay": "paper", "cap_update_rate": True},
    "none": {"decay": "none"},
}
# The paper leaves open how much damping it used; where λ is large it hides what v does.
DAMPINGS = {"λ 1e-6": 1e-6, "λ default": None}


def study(lab: Lab) -> Finding:
    corpus = lab.corpus(small.CORPUS, small.FULL)
    settings = [(damping, decay) for damping in DAMPINGS for decay in DECAYS]
    trials = [
        small.trial(
            lab,
            corpus,
            {"samples": SAMPLES, "alpha": 1.0, "collisions": "keep"},
            optim=DECAYS[decay] | {"damping": DAMPINGS[damping]},
        )
        for damping, decay in settings
    ]
    rows: list[dict[str, Any]] = []
    names = []
    for (damping, decay), cell in zip(settings, small.repeat(lab, trials), strict=True):
        rows.append(
            {
                "damping": damping.removeprefix("λ "),
                "decay": decay,
                **cell.figures(),
                "words/s": cell.words_per_second,
            }
        )
        names.append(f"{damping}, {decay}")
    return Finding(
        title="How second moments age",
        claim=(
            "ignoring that rows which are not touched still decay makes perplexity 5 to 10 points "
            "worse; its own rule, by expected update rates, costs no bookkeeping."
        ),
        setting=(
            f"The small data set, BlackOut, K = {SAMPLES}, α 1, {small.size(lab)}; words a second "
            "of one core."
        ),
        rows=rows,
        panels=[perplexity_panel(names, rows)],
    )
