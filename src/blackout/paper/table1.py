"""Table 1: 64,000 words, networks of growing size, alone and mixed with a full 5-gram.

For each network some ways to train it are tried, each a run of its own: without dropout and with
some. Validation text chooses; so does it among all that earlier commands have tried. The same with
an LSTM, which the paper does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blackout.pages.picture import Curve, Level, Panel
from blackout.paper import large
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.paper.mixing import Mixed, five_gram, mix

SIZES = (128, 256, 512, 1024, 2048, 4096)
EPOCHS = 8
DROPOUTS = (0.0, 0.2)
PAPER = {128: 59.0, 256: 55.1, 512: 51.5, 1024: 47.6, 2048: 43.9, 4096: 42.0}
"""Perplexities of the mixtures."""
PAPERS_HOURS = {128: 9, 256: 14, 512: 24, 1024: 38, 2048: 63, 4096: 240}


def study(lab: Lab) -> Finding:
    corpus = large.shortlist(lab)
    sizes = (8, 16) if lab.quick else SIZES
    # with the paper's settings the α that the paper has: 0.4
    loss = {"alpha": 0.4, "collisions": "keep"} if lab.preset == "paper" else {}
    asked = [
        each
        for network in large.networks(lab, sizes)
        for each in large.tries(lab, corpus, network, EPOCHS, DROPOUTS, keep_words=True, **loss)
    ]
    tried = large.run_tries(lab, asked)
    chosen = large.best_of(tried)
    scored = five_gram(lab, corpus)
    mixed = {network: mix(_words(of), scored) for network, of in chosen.items()}
    ngram = next(iter(mixed.values())).ngram
    return Finding(
        title="Networks of growing size, mixed with a 5-gram",
        claim=(
            "on the billion-word benchmark the 5-gram alone has 66.95, mixed with networks of 128, "
            "256, 512 … 4096 units 59.0, 55.1, 51.5 … 42.0: larger is better, and mixing helps."
        ),
        setting=(
            f"{large.describe(corpus, asked[0].trial.config)}, one seed; of each network the "
            "dropout and the epochs that validation text prefers among those of the second table; "
            "the 5-gram (interpolated modified Kneser-Ney) over all words, weights by EM on "
            "validation text. “All words”: the network's <unk> spread over the words it does not "
            "have, so that the three are about the same words. Minutes of training; the paper's "
            "networks are sigmoid ones."
        ),
        rows=[_row(of, mixed[network]) for network, of in chosen.items()],
        panels=[_panel(chosen, mixed, ngram)],
        tries=large.table_of_tries(tried),
    )


def _words(tried: large.Tried) -> Any:
    assert tried.outcome.words is not None  # asked for, so it was not known without
    return tried.outcome.words


def _row(of: large.Tried, mixed: Mixed) -> dict[str, Any]:
    cell, hidden = of.network.cell, of.network.hidden
    test = of.outcome.perplexity["test"]
    is_papers = cell == "sigmoid"
    return {
        "cell": cell,
        "units": hidden,
        "parameters": of.outcome.parameters,
        "dropout": of.config.model.dropout,
        "epochs": of.outcome.curve[-1].epoch,
        "valid": of.outcome.valid_perplexity,
        "network, 64K words": test.perplexity,
        "network, all words": mixed.network,
        "5-gram": mixed.ngram,
        "mixture": mixed.mixture,
        "network's weight": mixed.weight,
        "minutes": large.minutes(of.outcome),
        "paper's mixture": PAPER.get(hidden) if is_papers else None,
        "paper's hours": PAPERS_HOURS.get(hidden) if is_papers else None,
    }


def _panel(
    chosen: Mapping[large.Network, large.Tried],
    mixed: Mapping[large.Network, Mixed],
    ngram: float,
) -> Panel:
    curves = []
    for cell in dict.fromkeys(network.cell for network in chosen):
        of_cell = sorted((n for n in chosen if n.cell == cell), key=lambda n: n.hidden)
        widths = [network.hidden for network in of_cell]
        for name, values in (
            ("alone", [mixed[network].network for network in of_cell]),
            ("mixed with the 5-gram", [mixed[network].mixture for network in of_cell]),
        ):
            curves.append(Curve(f"{cell}, {name}", widths, values))
    ticks: Sequence[int] = sorted({network.hidden for network in chosen})
    return Panel(
        "hidden units",
        "test perplexity, all words",
        curves,
        [Level("5-gram alone", ngram)],
        x_log=True,
        y_log=True,
        x_ticks=ticks,
    )
