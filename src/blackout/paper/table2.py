"""Table 2: the full vocabulary of the text, no mixing."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import perplexity_panel
from blackout.paper import large
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.trials.trials import Trial

ALPHA = 1.0


def study(lab: Lab) -> Finding:
    corpus = large.full(lab)
    sizes = (8,) if lab.quick else lab.hidden or (128,)
    samples = 50 if lab.quick else 1000
    configs = {
        h: large.config(lab, h, 1, alpha=ALPHA, samples=samples, collisions="keep") for h in sizes
    }
    found = lab.rows({large.name(h): [Trial(c, corpus.prepared)] for h, c in configs.items()})
    sizes = tuple(hidden for hidden in sizes if large.name(hidden) in found)
    rows: list[dict[str, Any]] = []
    names = []
    for hidden in sizes:
        (outcome,) = found[large.name(hidden)]
        names.append(large.name(hidden))
        rows.append(
            {
                "hidden": hidden,
                "parameters": outcome.parameters,
                "valid": outcome.valid_perplexity,
                "test": outcome.perplexity["test"].perplexity,
                "without <unk>": outcome.perplexity["test"].perplexity_without_unk,
                "training minutes": outcome.curve[-1].seconds / 60,
                "words/s": outcome.words_per_second,
            }
        )
    return Finding(
        title=f"The full vocabulary: {corpus.vocab_size:,} words",
        claim=(
            "one machine trains a million words: 78.4 with 1,024 units, 68.3 with 2,048 in 175 "
            "hours, with 2,000 samples (0.2 %) and α = 0.1; NCE converged too slowly to report."
        ),
        setting=f"{large.describe(corpus, configs[sizes[0]])}, α {ALPHA:g}; no word is left out.",
        rows=rows,
        panels=[perplexity_panel(names, rows)],
    )
