"""Figure 3: learning curves of BlackOut and NCE, with few and with more samples."""

from __future__ import annotations

from typing import Any

from blackout.pages.picture import Curve, Panel
from blackout.paper import small
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab

FAR_OFF = "NCE, Z = 1"  # beside it the others look alike: the second panel is without it


def ten_samples(lab: Lab) -> Finding:
    return _study(lab, 10)


def fifty_samples(lab: Lab) -> Finding:
    return _study(lab, 50)


def _study(lab: Lab, samples: int) -> Finding:
    corpus, methods = lab.corpus(small.CORPUS, small.FULL), list(small.METHODS)
    cells, exact = small.sweep(lab, corpus, [samples], methods)
    runs = {method: cells[method, samples] for method in small.TUNED}
    runs |= {"exact softmax": exact, FAR_OFF: cells[FAR_OFF, samples]}
    rows, curves = [], []
    for method, cell in runs.items():
        curve = _curve(method, cell)
        curves.append(curve)
        rows.append({"method": method, "chosen": cell.chosen} | _milestones(curve))
    return Finding(
        title=f"Learning curves with {samples} samples",
        claim=(
            "BlackOut converges much faster than NCE when samples are few (10); with more (50) "
            "the advantage gets smaller."
        ),
        setting=(
            f"The runs of fig2a with K = {samples}: settings chosen on validation text, "
            f"{small.size(lab)}."
        ),
        rows=rows,
        panels=[
            Panel("epoch", "validation perplexity", shown, y_log=True)
            for shown in (curves, curves[:-1])
        ],
    )


def _curve(label: str, cell: small.Cell) -> Curve:
    by_run = [[epoch.valid_perplexity for epoch in outcome.curve] for outcome in cell.outcomes]
    by_epoch = list(zip(*by_run, strict=True))
    return Curve.of_runs(label, list(range(1, len(by_epoch) + 1)), by_epoch)


def _milestones(curve: Curve) -> dict[str, Any]:
    """Validation perplexity after some epochs."""
    last = len(curve.y)
    after = [epoch for epoch in (1, 2, 5, 10, 20, 50) if epoch <= last]
    return {f"after {epoch}": curve.y[epoch - 1] for epoch in after}
