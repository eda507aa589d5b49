"""What the paper left open: who shares samples, other proposals, other negatives, other cells."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import perplexity_panel
from blackout.paper import small
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "BlackOut with our defaults": {},
    "copies taken out, α 0.4 (paper)": {"loss": {"collisions": "remove", "alpha": 0.4}},
    "samples for each word": {"loss": {"sharing": "word"}},
    "samples for each block": {"loss": {"sharing": "block"}},
    "proposal: words of the batch": {"loss": {"proposal": "batch"}},
    "proposal: bigram": {"loss": {"proposal": "bigram"}},
    "proposal: adapted to the model": {"loss": {"proposal": "model"}},
    "negatives against noise (nce)": {"loss": {"negatives": "nce"}},
    "sampled softmax": {"loss": {"loss": "sampled"}},
    "tanh cell": {"model": {"cell": "tanh"}},
    "IRNN (relu) cell": {"model": {"cell": "relu"}},
    "LSTM cell": {"model": {"cell": "lstm"}},
}
SAMPLES, ALPHA = 20, 1.0


def study(lab: Lab) -> Finding:
    corpus = lab.corpus(small.CORPUS, small.FULL)
    keys = list(VARIANTS)
    trials = [
        small.trial(
            lab,
            corpus,
            {"samples": SAMPLES, "alpha": ALPHA, "collisions": "keep"}
            | VARIANTS[name].get("loss", {}),
            model=VARIANTS[name].get("model", {}),
        )
        for name in keys
    ]
    rows: list[dict[str, Any]] = [
        {"variant": name, **cell.figures(), "words/s": cell.words_per_second}
        for name, cell in zip(keys, small.repeat(lab, trials), strict=True)
    ]
    of_cells = [row for row in rows if row["variant"].endswith(" cell")]
    of_losses = [row for row in rows if row not in of_cells]
    return Finding(
        title="Beyond the paper",
        claim="nothing: these are the questions it leaves open.",
        setting=(
            f"The small data set, K = {SAMPLES}, α {ALPHA:g} where a proposal has one, all else as "
            f"in fig2a, {small.size(lab)}; words a second of one core."
        ),
        rows=rows,
        panels=[
            perplexity_panel([row["variant"] for row in shown], shown)
            for shown in (of_losses, [rows[0], *of_cells])
        ],
    )
