"""Figure 5: the training perplexities behind figure 2. Does the exact softmax overfit?"""

from __future__ import annotations

from typing import Any

from blackout.config import TextConfig
from blackout.pages.picture import Curve, Level, Panel
from blackout.paper import small
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab


def study(lab: Lab) -> Finding:
    rows, panels = [], []
    for text in (small.FULL, small.TOP):
        more, panel = _half(lab, text)
        rows += more
        panels.append(panel)
    return Finding(
        title="Training perplexities: who overfits",
        claim=(
            "the exact softmax overfits: it reaches lower training perplexities than NCE and "
            "BlackOut, whose sampling regularises as DropOut does."
        ),
        setting=(
            "The runs of fig2a and fig2b: exact perplexity of the best model on its training text "
            "and on the test text."
        ),
        rows=rows,
        panels=panels,
    )


def _half(lab: Lab, text: TextConfig) -> tuple[list[dict[str, Any]], Panel]:
    corpus, samples = lab.corpus(small.CORPUS, text), small.size(lab).samples
    cells, exact = small.sweep(lab, corpus, samples, small.TUNED)
    rows = [
        _row(corpus.vocab_size, method, k, cell)
        for (method, k), cell in [*cells.items(), (("exact softmax", None), exact)]
    ]
    curves = [
        Curve.of_runs(method, samples, [cells[method, k].perplexities("train") for k in samples])
        for method in small.TUNED
    ]
    panel = Panel(
        "K, samples (logarithmic)",
        "training perplexity",
        curves,
        [Level("exact softmax", exact.mean("train")[0])],
        title=f"{corpus.vocab_size:,} words",
        x_log=True,
        y_log=True,
        x_ticks=samples,
    )
    return rows, panel


def _row(vocab_size: int, method: str, k: int | None, cell: small.Cell) -> dict[str, Any]:
    train, test = cell.mean("train")[0], cell.mean("test")[0]
    return {
        "V": vocab_size,
        "method": method,
        "K": k,
        "training": train,
        "test": test,
        "test / training": test / train,
    }
