"""Figure 2: test perplexity against the number of samples K, for each method at its best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blackout.config import TextConfig
from blackout.pages.picture import Curve, Level, Panel
from blackout.paper import small
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab

# The authors' program on this test set, alpha 0.3: unknown words counted / left out
AUTHORS_FULL: dict[tuple[str, int | None], str] = {
    ("BlackOut", 2): "140.6 / 100.0",
    ("BlackOut", 10): "107.6 / 77.0",
    ("BlackOut", 50): "97.8 / 71.9",
    ("NCE, Z = 1", 50): "147.8 / 111.7",
    ("exact softmax", None): "87.5 / 72.7",
}
AUTHORS_TOP: dict[tuple[str, int | None], str] = {
    ("BlackOut", 50): "68.7 / 64.4",
    ("exact softmax", None): "63.9 / 65.2",
}

CLAIM = (
    "BlackOut uses samples far better than NCE, above all when they are few; with 20 to 50 samples "
    "both reach the exact softmax"
)


def full_vocabulary(lab: Lab) -> Finding:
    return _study(lab, small.FULL, list(small.METHODS), AUTHORS_FULL, f"{CLAIM}.")


def top_words(lab: Lab) -> Finding:
    claim = f"{CLAIM}; with the 2,065 most frequent words BlackOut is even better than it."
    return _study(lab, small.TOP, small.TUNED, AUTHORS_TOP, claim)


def _study(
    lab: Lab,
    text: TextConfig,
    methods: Sequence[str],
    authors: dict[tuple[str, int | None], str],
    claim: str,
) -> Finding:
    corpus, samples = lab.corpus(small.CORPUS, text), small.size(lab).samples
    cells, exact = small.sweep(lab, corpus, samples, methods)
    all_cells = [*cells.items(), (("exact softmax", None), exact)]
    rows = [
        _row(method, k, cell, None if lab.quick else authors.get((method, k)))
        for (method, k), cell in all_cells
    ]
    curves = [
        Curve.of_runs(method, samples, [cells[method, k].perplexities("test") for k in samples])
        for method in methods
    ]
    panels, fewer = [_panel(curves, exact)], ""
    if len(methods) > len(small.TUNED):  # one far off makes the others look alike
        fewer = " (NCE with Z = 1: three)"
        panels.append(_panel([curve for curve in curves if curve.label in small.TUNED], exact))
    return Finding(
        title=f"Perplexity against K, {corpus.vocab_size:,} words",
        claim=claim,
        setting=(
            f"16 hidden units, {small.size(lab)}, ± half their range; α, and Z for NCE, chosen on "
            f"validation text from six candidates for each method and K{fewer}."
        ),
        rows=rows,
        panels=panels,
    )


def _panel(curves: Sequence[Curve], exact: small.Cell) -> Panel:
    level = Level("exact softmax", exact.mean("test")[0])
    return Panel(
        "K, samples (logarithmic)",
        "test perplexity",
        curves,
        [level],
        x_log=True,
        y_log=True,
        x_ticks=curves[0].x,
    )


def _row(method: str, k: int | None, cell: small.Cell, authors: str | None) -> dict[str, Any]:
    return {
        "method": method,
        "K": k,
        "chosen": cell.chosen,
        **cell.figures(),
        "without <unk>": cell.mean_without_unk("test"),
        "authors' program": authors,
    }
