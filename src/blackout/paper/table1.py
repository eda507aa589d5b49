"""Table 1: 64,000 words, networks of growing size, alone and mixed with a full 5-gram."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import Curve, Level, Panel
from blackout.paper import large
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.paper.mixing import five_gram, mix_with
from blackout.trials.trials import Trial

PAPER = {128: 59.0, 256: 55.1, 512: 51.5, 1024: 47.6, 2048: 43.9, 4096: 42.0}


def study(lab: Lab) -> Finding:
    corpus = large.shortlist(lab)
    sizes = (8, 16) if lab.quick else lab.hidden or (128, 256, 512)
    configs = {h: large.config(lab, h, 3, alpha=0.4, collisions="keep") for h in sizes}
    found = lab.rows(
        {large.name(h): [Trial(c, corpus.prepared, keep_model=True)] for h, c in configs.items()}
    )
    sizes = tuple(hidden for hidden in sizes if large.name(hidden) in found)
    ngram = five_gram(lab, corpus)
    rows: list[dict[str, Any]] = []
    for hidden in sizes:
        (outcome,) = found[large.name(hidden)]
        mixed = mix_with(lab, outcome, corpus, ngram)
        rows.append(
            {
                "hidden": hidden,
                "parameters": outcome.parameters,
                "network, 64K words": outcome.perplexity["test"].perplexity,
                "network, all words": mixed["network"],
                "5-gram": mixed["ngram"],
                "mixture": mixed["mixture"],
                "network's weight": mixed["weight"],
                "training minutes": outcome.curve[-1].seconds / 60,
                "paper's mixture": None if lab.quick else PAPER.get(hidden),
            }
        )
    curves = [
        Curve("network alone", sizes, [row["network, all words"] for row in rows]),
        Curve("mixed with the 5-gram", sizes, [row["mixture"] for row in rows]),
    ]
    level = Level("5-gram alone", rows[0]["5-gram"])
    panel = Panel(
        "hidden units", "test perplexity", curves, [level], x_log=True, y_log=True, x_ticks=sizes
    )
    return Finding(
        title="Networks of growing size, mixed with a 5-gram",
        claim=(
            "on the billion-word benchmark the 5-gram alone has 66.95, mixed with networks of 128, "
            "256, 512 … 4096 units 59.0, 55.1, 51.5 … 42.0: larger is better, and mixing helps."
        ),
        setting=(
            f"{large.describe(corpus, configs[sizes[0]])}, α 0.4; the 5-gram (interpolated "
            "modified Kneser-Ney) over all words; weights by EM on validation text. “All words”: "
            "the network's <unk> spread over the words it does not have, so that the three are "
            "about the same words."
        ),
        rows=rows,
        panels=[panel],
    )
