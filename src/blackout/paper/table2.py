"""Table 2: the full vocabulary of the text, no mixing.

Of each network validation text chooses the dropout, as in :mod:`blackout.paper.table1`.
"""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import perplexity_panel
from blackout.paper import large
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab

SIZES = (1024, 2048)
EPOCHS = 6
DROPOUTS = (0.0, 0.2)
SAMPLES = 1000  # 0.25 % of the words; the paper's 2,000 of a million are 0.2 %
PAPER = {1024: 78.4, 2048: 68.3}
PAPERS_HOURS = 175


def study(lab: Lab) -> Finding:
    corpus = large.full(lab)
    asked = [
        each
        for network in large.networks(lab, (8,) if lab.quick else SIZES)
        for each in large.tries(
            lab, corpus, network, EPOCHS, DROPOUTS, samples=50 if lab.quick else SAMPLES
        )
    ]
    tried = large.run_tries(lab, asked)
    chosen = large.best_of(tried)
    rows = [_row(of) for of in chosen.values()]
    return Finding(
        title=f"The full vocabulary: {corpus.vocab_size:,} words",
        claim=(
            "one machine trains a million words: 78.4 with 1,024 units, 68.3 with 2,048 in 175 "
            "hours, with 2,000 samples (0.2 %) and α = 0.1; NCE converged too slowly to report."
        ),
        setting=(
            f"{large.describe(corpus, asked[0].trial.config)}, α "
            f"{asked[0].trial.config.loss.alpha:g}, one seed; no word is left out; of each network "
            "the dropout and the epochs that validation text prefers among those of the second "
            "table. Minutes of training; the paper's networks are sigmoid ones, its text another."
        ),
        rows=rows,
        panels=[perplexity_panel([str(network) for network in chosen], rows)],
        tries=large.table_of_tries(tried),
    )


def _row(of: large.Tried) -> dict[str, Any]:
    cell, hidden, test = of.network.cell, of.network.hidden, of.outcome.perplexity["test"]
    is_papers = cell == "sigmoid" and hidden in PAPER
    return {
        "cell": cell,
        "units": hidden,
        "parameters": of.outcome.parameters,
        "dropout": of.config.model.dropout,
        "epochs": of.outcome.curve[-1].epoch,
        "valid": of.outcome.valid_perplexity,
        "test": test.perplexity,
        "without <unk>": test.perplexity_without_unk,
        "minutes": large.minutes(of.outcome),
        "words/s": of.outcome.words_per_second,
        "paper's test": PAPER[hidden] if is_papers else None,
        "paper's hours": PAPERS_HOURS if is_papers else None,
    }
