"""Figure 4a: perplexity against alpha, the power of the proposal."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import Curve, Panel
from blackout.paper import large
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.trials.trials import Trial

# Copies of the target among its samples: taken out as in the paper, or kept. There are hardly any
# where alpha is small.
ALPHAS = {"remove": (0.0, 0.2, 0.4, 0.7, 1.0), "keep": (0.4, 0.7, 1.0)}
NAMES = {"remove": "copies taken out (the paper)", "keep": "copies kept"}


def study(lab: Lab) -> Finding:
    corpus = large.shortlist(lab)
    hidden = 16 if lab.quick else 256
    keys = [(copies, alpha) for copies, alphas in ALPHAS.items() for alpha in alphas]
    trials = [
        Trial(large.config(lab, hidden, 1, alpha=alpha, collisions=copies), corpus.prepared)
        for copies, alpha in keys
    ]
    rows: list[dict[str, Any]] = []
    for (copies, alpha), outcome in zip(keys, lab.run(trials), strict=True):
        test = outcome.perplexity["test"]
        rows.append(
            {"copies": copies, "α": alpha}
            | {f"valid, epoch {e.epoch}": e.valid_perplexity for e in outcome.curve}
            | {"test": test.perplexity, "without <unk>": test.perplexity_without_unk}
        )
    curves = [
        Curve(NAMES[copies], alphas, [row["test"] for row in rows if row["copies"] == copies])
        for copies, alphas in ALPHAS.items()
    ]
    return Finding(
        title="Perplexity against α",
        claim=(
            "α matters much: uniform (0) and unigram (1) proposals are often worse than what lies "
            "between; with 64,000 words, 256 units and 500 samples 0.4 is best."
        ),
        setting=f"{large.describe(corpus, trials[0].config)}, {hidden} hidden units.",
        rows=rows,
        panels=[Panel("α", "test perplexity", curves, x_ticks=ALPHAS["remove"])],
    )
