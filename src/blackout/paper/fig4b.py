"""Figure 4b: discriminative training against maximum likelihood, the loss's first term alone."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import perplexity_panel
from blackout.paper import large
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.trials.trials import Trial

# α, and whether copies of the target are taken out of its samples or kept
CASES = ((0.4, "remove"), (1.0, "remove"), (1.0, "keep"))
KINDS = {"BlackOut": "blackout", "maximum likelihood": "sampled"}


def study(lab: Lab) -> Finding:
    corpus = large.shortlist(lab)
    hidden = 16 if lab.quick else 256
    keys = [(alpha, copies, kind) for alpha, copies in CASES for kind in KINDS]
    trials = [
        Trial(
            large.config(lab, hidden, 1, alpha=alpha, collisions=copies, loss=KINDS[kind]),
            corpus.prepared,
        )
        for alpha, copies, kind in keys
    ]
    rows: list[dict[str, Any]] = []
    names = []
    for (alpha, copies, kind), outcome in zip(keys, lab.run(trials), strict=True):
        valid = [epoch.valid_perplexity for epoch in outcome.curve]
        kept = ", copies kept" if copies == "keep" else ""
        names.append(f"{kind}, α {alpha:g}{kept}")
        rows.append(
            {"α": alpha, "copies": copies, "training": kind}
            | {f"valid, epoch {i}": value for i, value in enumerate(valid, 1)}
            | {"test": outcome.perplexity["test"].perplexity}
        )
    return Finding(
        title="Discriminative against maximum-likelihood training",
        claim="discriminative training is 1 to 3 points better (512 units, two values of α).",
        setting=f"{large.describe(corpus, trials[0].config)}, {hidden} hidden units.",
        rows=rows,
        panels=[perplexity_panel(names, rows)],
    )
