"""Figure 4a: perplexity against alpha, the power of the proposal, with three seeds."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import Curve, Panel
from blackout.paper import large
from blackout.paper.finding import Finding, counted
from blackout.paper.lab import Corpus, Lab
from blackout.trials.trials import Trial

# Copies of the target among its samples: taken out as in the paper, or kept. There are hardly any
# where alpha is small.
ALPHAS = {"remove": (0.0, 0.2, 0.4, 0.7, 1.0), "keep": (0.4, 0.7, 1.0)}
NAMES = {"remove": "copies taken out (the paper)", "keep": "copies kept"}
HIDDEN, EPOCHS = 512, 3


def study(lab: Lab) -> Finding:
    corpus = large.shortlist(lab)
    keys = [(copies, alpha) for copies, alphas in ALPHAS.items() for alpha in alphas]
    asked = {key: trials(lab, corpus, "blackout", *key) for key in keys}
    names = {key: f"α {key[1]:g}, {NAMES[key[0]]}" for key in keys}
    found = lab.rows({names[key]: asked[key] for key in keys})
    keys = [key for key in keys if names[key] in found]
    rows: list[dict[str, Any]] = [
        {"copies": copies, "α": alpha} | large.over_seeds(found[names[copies, alpha]])
        for copies, alpha in keys
    ]
    curves = [
        Curve.of_runs(
            NAMES[copies],
            [alpha for kind, alpha in keys if kind == copies],
            [
                [outcome.perplexity["test"].perplexity for outcome in found[names[key]]]
                for key in keys
                if key[0] == copies
            ],
        )
        for copies in dict.fromkeys(kind for kind, _ in keys)
    ]
    return Finding(
        title="Perplexity against α",
        claim=(
            "α matters much: uniform (0) and unigram (1) proposals are often worse than what lies "
            "between; with 64,000 words, 256 units and 500 samples 0.4 is best."
        ),
        setting=setting(corpus, asked[keys[0]]),
        rows=rows,
        panels=[Panel("α", "test perplexity", curves, x_ticks=ALPHAS["remove"])],
    )


def trials(lab: Lab, corpus: Corpus, loss: str, copies: str, alpha: float) -> list[Trial]:
    """A setting, with each seed."""
    (hidden,) = (16,) if lab.quick else lab.hidden[:1] or (HIDDEN,)
    (cell,) = lab.cells[:1] or ("sigmoid",)
    model = {"cell": cell, "hidden": hidden}
    settings = {"loss": loss, "alpha": alpha, "collisions": copies}
    return [
        Trial(large.config(lab, model, EPOCHS, seed, **settings), corpus.prepared)
        for seed in large.seeds(lab)
    ]


def setting(corpus: Corpus, of: list[Trial]) -> str:
    """What was run, in words."""
    model = of[0].config.model
    return (
        f"{large.describe(corpus, of[0].config)}, {model.hidden} {model.cell} units, "
        f"{large.passes(of[0].config)}, mean of {counted(len(of), 'seed')}, ± half their range."
    )
