"""Do the defaults hold? Cells, widths, layers, losses, blocks and vocabularies, nothing tuned.

Every case is trained with the default settings, with half and with twice the learning rate. A
default that holds is never far behind the best of them. The second question is whether a wider
network is ever worse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from blackout.config import Cell, Config, TextConfig
from blackout.pages.picture import Curve, Panel
from blackout.paper.finding import Finding, counted
from blackout.paper.lab import Corpus, Lab
from blackout.trials.trials import Outcome, Trial

RATES = (0.5, 1.0, 2.0)
SEEDS = (1,)
WIDTHS: dict[Cell, tuple[int, ...]] = {
    "sigmoid": (64, 128, 256),
    "tanh": (64, 128, 256),
}


@dataclass(frozen=True)
class Text:
    """A text, or its beginning, and what suits it."""

    corpus: str
    config: TextConfig
    lines: int | None = None
    samples: int = 500
    batch: int = 128
    bptt: int = 20
    epochs: int = 1


TEXTS = {
    "rnnlm-small": Text("rnnlm-small", TextConfig(), None, 50, 8, 15, 10),
    "WikiText-2": Text("wikitext-2", TextConfig(), 20_000, epochs=3),
}


@dataclass(frozen=True)
class Case:
    """A network and a loss, on a text."""

    text: str
    cell: Cell
    hidden: int
    layers: int = 1
    loss: str = "blackout"
    batch: int | None = None
    """None: what suits the text."""


CASES = (
    *(Case("rnnlm-small", c, 16) for c in ("sigmoid", "tanh", "lstm")),
    *(Case("rnnlm-small", c, 64) for c in ("sigmoid", "relu", "gru")),
    *(Case("rnnlm-small", "tanh", 64, loss=loss) for loss in ("sampled", "nce", "full")),
    *(Case("WikiText-2", "sigmoid", h) for h in (64, 256)),
    *(Case("WikiText-2", "tanh", h) for h in (64, 256)),
    *(Case("WikiText-2", c, 1024) for c in ("relu", "lstm", "gru")),
    Case("WikiText-2", "tanh", 128, layers=2),
    Case("WikiText-2", "tanh", 256, batch=1024),
)
_QUICK_WIDTHS: dict[Cell, tuple[int, ...]] = {"sigmoid": (8, 16)}
QUICK = (Case("rnnlm-small", "sigmoid", 16), Case("WikiText-2", "lstm", 16, batch=32))


def study(lab: Lab) -> Finding:
    cases, rates = (QUICK, (0.5, 1.0)) if lab.quick else (CASES, RATES)
    widths = _QUICK_WIDTHS if lab.quick else WIDTHS
    seeds = SEEDS
    corpora = {
        name: lab.corpus(t.corpus, t.config, t.lines)
        for name, t in TEXTS.items()
        if any(case.text == name for case in cases)
    }
    grid = [trial(lab, corpora, case, lr) for case in cases for lr in rates]
    series = [
        trial(lab, corpora, Case("WikiText-2", cell, hidden), 1.0, seed)
        for cell, sizes in widths.items()
        for hidden in sizes
        for seed in seeds
    ]
    outcomes = lab.run([*grid, *series])
    found = [outcomes[i : i + len(rates)] for i in range(0, len(grid), len(rates))]
    rows = [row(case, corpora[case.text], rates, of) for case, of in zip(cases, found, strict=True)]
    wider = iter(outcomes[len(grid) :])
    curves = [
        Curve.of_runs(cell, sizes, [[perplexity(next(wider)) for _ in seeds] for _ in sizes])
        for cell, sizes in widths.items()
    ]
    worst = max(row["behind, %"] for row in rows)
    return Finding(
        title="One rule for every network",
        claim="nothing about it: its settings are those of one network.",
        setting=(
            "Validation perplexity with the default settings (lr 1) and with other learning rates; "
            f"the default is at most {worst:.1f} % behind the best of them. WikiText-2: its first "
            "20,000 lines, three epochs; rnnlm-small: ten epochs. The "
            f"picture: the defaults at every width, {counted(len(seeds), 'seed')}."
        ),
        rows=rows,
        panels=[
            Panel(
                "hidden units",
                "validation perplexity",
                curves,
                title="WikiText-2, three epochs, nothing tuned",
                x_log=True,
                x_ticks=sorted({width for sizes in widths.values() for width in sizes}),
            )
        ],
    )


def trial(lab: Lab, corpora: dict[str, Corpus], case: Case, lr: float, seed: int = 1) -> Trial:
    """The training of a case with a learning rate; one that fails is an outcome like any other."""
    text = TEXTS[case.text]
    config = Config.from_dict(
        {
            "model": {"cell": case.cell, "hidden": case.hidden, "layers": case.layers},
            "loss": {"loss": case.loss, "samples": 20 if lab.quick else text.samples},
            "optim": {"lr": lr},
            "run": {
                "batch": case.batch or text.batch,
                "bptt": text.bptt,
                "epochs": 1 if lab.quick else text.epochs,
                "precision": "bf16",
                "seed": seed,
                # Blocks of 120 words are no work for a GPU.
                "device": "cpu" if text.batch < 32 else "auto",
            },
        }
    )
    return Trial(config, corpora[case.text].prepared, measure=(), may_diverge=True)


def perplexity(outcome: Outcome) -> float:
    return math.inf if outcome.failure else outcome.valid_perplexity


def row(
    case: Case, corpus: Corpus, rates: Sequence[float], outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """A case's line of the table."""
    text, found = TEXTS[case.text], [perplexity(outcome) for outcome in outcomes]
    default, best = found[rates.index(1.0)], min(found)
    return {
        "text": case.text,
        "V": corpus.vocab_size,
        "network": f"{case.cell} {case.layers} × {case.hidden:,}",
        "loss": case.loss,
        "B·T": (case.batch or text.batch) * text.bptt,
        **{f"lr {lr:g}": None if math.isinf(p) else p for lr, p in zip(rates, found, strict=True)},
        "behind, %": 100 * (default / best - 1),
    }
