"""Figure 4b: discriminative training against maximum likelihood, the loss's first term alone.

The runs with BlackOut are those of figure 4a.
"""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import perplexity_panel
from blackout.paper import large
from blackout.paper.fig4a import setting, trials
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab

# α, and whether copies of the target are taken out of its samples or kept
CASES = ((0.4, "remove"), (1.0, "remove"), (1.0, "keep"))
KINDS = {"BlackOut": "blackout", "maximum likelihood": "sampled"}


def study(lab: Lab) -> Finding:
    corpus = large.shortlist(lab)
    keys = [(alpha, copies, kind) for alpha, copies in CASES for kind in KINDS]
    asked = {
        (alpha, copies, kind): trials(lab, corpus, KINDS[kind], copies, alpha)
        for alpha, copies, kind in keys
    }
    names = {key: _name(*key) for key in keys}
    found = lab.rows({names[key]: asked[key] for key in keys})
    keys = [key for key in keys if names[key] in found]
    rows: list[dict[str, Any]] = []
    for key in keys:
        alpha, copies, kind = key
        rows.append(
            {"α": alpha, "copies": copies, "training": kind} | large.over_seeds(found[names[key]])
        )
    return Finding(
        title="Discriminative against maximum-likelihood training",
        claim="discriminative training is 1 to 3 points better (512 units, two values of α).",
        setting=setting(corpus, asked[keys[0]]),
        rows=rows,
        panels=[perplexity_panel([names[key] for key in keys], rows)],
    )


def _name(alpha: float, copies: str, kind: str) -> str:
    return f"{kind}, α {alpha:g}{', copies kept' if copies == 'keep' else ''}"
