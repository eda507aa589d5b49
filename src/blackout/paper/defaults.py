"""Do the defaults hold? Cells, widths, layers, losses, blocks and vocabularies, nothing tuned.

Every case is trained with the default settings, with half and with twice the learning rate. A
default that holds is never far behind the best of them. Rows that only a GPU trains in minutes are
run where they are asked for: ``--only "2,048" "1,024" "Wikipedia,"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blackout.pages.picture import Curve, Panel
from blackout.paper.finding import Finding
from blackout.paper.lab import Corpus, Lab
from blackout.paper.networks import Case, open_texts, perplexity, shown, trial
from blackout.trials.trials import Outcome, Trial

RATES = (0.5, 1.0, 2.0)

# Two cores train each of these in minutes.
CASES = (
    *(Case("rnnlm-small", c, 16) for c in ("sigmoid", "tanh", "lstm")),
    *(Case("rnnlm-small", c, 64) for c in ("sigmoid", "relu", "gru")),
    *(Case("rnnlm-small", "tanh", 64, epochs=n) for n in (1, 3, 10)),
    *(Case("rnnlm-small", "tanh", 64, loss=loss) for loss in ("sampled", "nce", "full")),
    *(Case("WikiText-2", "sigmoid", h) for h in (64, 256, 384, 512, 768, 1024)),
    *(Case("WikiText-2", "tanh", h) for h in (64, 256, 512, 1024)),
    Case("WikiText-2", "tanh", 256, batch=1024),
    Case("WikiText-2", "relu", 256),
    *(Case("WikiText-2", "gru", h) for h in (64, 256)),
    Case("WikiText-2", "lstm", 256),
    *(Case("WikiText-2", c, 256, layers=2) for c in ("sigmoid", "lstm", "gru")),
    *(Case("WikiText-2", "gru", 256, loss=loss) for loss in ("sampled", "nce")),
    *(Case("WikiText-2", c, 256, epochs=10) for c in ("tanh", "gru")),
    *(Case("Wikipedia, a quarter", c, 256) for c in ("sigmoid", "tanh", "gru")),
    *(Case("Wikipedia, a quarter", c, 512) for c in ("sigmoid", "tanh")),
)
# Work for a GPU, or for hours: run where --only names them.
WIDE = (
    *(Case("WikiText-2", c, 1024) for c in ("relu", "lstm", "gru")),
    *(Case("WikiText-2", c, 2048) for c in ("sigmoid", "tanh", "relu", "lstm", "gru")),
    *(Case("WikiText-2", c, 1024, layers=2) for c in ("sigmoid", "lstm", "gru")),
    Case("WikiText-2", "gru", 1024, batch=1024),
    *(Case("Wikipedia, a quarter", c, h) for h in (1024, 2048) for c in ("sigmoid", "lstm", "gru")),
    Case("Wikipedia, a quarter", "gru", 512, epochs=10),
    *(Case("Wikipedia", c, 256) for c in ("sigmoid", "gru")),
    *(Case("Wikipedia", c, 1024) for c in ("sigmoid", "lstm", "gru")),
)
QUICK = (Case("rnnlm-small", "sigmoid", 16), Case("WikiText-2", "lstm", 16, batch=32))


def study(lab: Lab) -> Finding:
    cases, rates = (QUICK, (0.5, 1.0)) if lab.quick else (CASES, RATES)
    texts = {case.text for case in cases}  # of another one only what somebody asks for
    wide = [
        case
        for case in (() if lab.quick else WIDE)
        if case.text in texts or lab.known or (lab.only and lab.is_wanted(str(case)))
    ]
    corpora = open_texts(lab, (*cases, *wide))

    def runs(of: Sequence[Case]) -> dict[str, list[Trial]]:
        return {str(case): [trial(lab, corpora, case, lr) for lr in rates] for case in of}

    found = lab.rows(runs(cases), on_request=runs(wide))
    rows = [
        row(case, corpora[case.text], rates, found[str(case)])
        for case in (*cases, *wide)
        if str(case) in found
    ]
    behind = [r["behind, %"] for r in rows]
    return Finding(
        title="One rule for every network",
        claim="nothing about it: its settings are those of one network.",
        setting=(
            "Validation perplexity with the default settings (lr 1) and with other learning rates; "
            f"the default is at most {max(behind):.1f} % behind the best of them. WikiText-2: its "
            "first 20,000 lines, validation its first 1,000; Wikipedia: validation its first 1,500 "
            "sentences, with all its words; a quarter: the first 230,000 sentences, 64,000 words."
        ),
        rows=rows,
        panels=[
            Panel(
                "case, as in the table",
                "behind the best learning rate, %",
                [Curve("the default", range(1, len(rows) + 1), behind)],
                title="The default against the best of a grid",
            )
        ],
    )


def row(
    case: Case, corpus: Corpus, rates: Sequence[float], outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """A case's line of the table."""
    found = [perplexity(outcome) for outcome in outcomes]
    return {
        "text": case.text,
        "V": corpus.vocab_size,
        "network": case.network,
        "loss": case.loss,
        "B·T": case.words,
        "epochs": case.passes,
        **{f"lr {lr:g}": shown(p) for lr, p in zip(rates, found, strict=True)},
        "behind, %": 100 * (found[rates.index(1.0)] / min(found) - 1),
    }
