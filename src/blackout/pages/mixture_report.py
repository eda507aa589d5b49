"""The page about a mixture: perplexity against the weights, on the text they were tuned on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blackout.mixture.arithmetic import Fit, Floats, mix_log_probs, perplexity_curve
from blackout.mixture.evaluate import Mixed
from blackout.pages import page
from blackout.pages.plots import Plot, Series
from blackout.perplexity import exp_mean

__all__ = ["mixture_plot", "write_mix_report"]

POINTS = 51


def mixture_plot(names: Sequence[str], fit: Fit, tuning: Floats) -> Plot:
    """Perplexity of the tuning text as one weight goes from 0 to 1, the chosen weight marked.

    Two components make one curve, over the weight of the first; more make a curve each, along
    which the others keep their proportions.
    """
    grid = (1 - np.cos(np.linspace(0, np.pi, POINTS))) / 2  # closer at the ends, where it bends
    best = exp_mean(-float(mix_log_probs(tuning, fit.weights).sum()), len(tuning))
    curves = range(len(names)) if len(names) > 2 else range(1)
    series = []
    for i in curves:
        x = np.unique(np.append(grid, fit.weights[i]))
        y = perplexity_curve(tuning, fit.weights, i, x)
        label = names[i] if len(names) > 2 else "mixture"
        series.append(Series(label, x.tolist(), y.tolist()))
    chosen = [float(fit.weights[i]) for i in curves]
    label = f"chosen: λ = {chosen[0]:.3f}" if len(chosen) == 1 else "chosen"
    series.append(Series(label, chosen, [best] * len(chosen)))
    return Plot(
        "Perplexity of the tuning text",
        f"weight of {names[0]}" if len(names) == 2 else "weight of one component",
        "perplexity",
        series,
        whole=False,
        mark=(chosen[0], best) if len(chosen) == 1 else None,
    )


def write_mix_report(
    path: Path, names: Sequence[str], fit: Fit, tuning: Floats, result: Mixed
) -> Path:
    """Writes the page and gives its path."""
    short = _short(names)
    best = exp_mean(-float(mix_log_probs(tuning, fit.weights).sum()), len(tuning))
    figures = [
        ("Test perplexity", f"{result.perplexity:,.2f}", "of the mixture"),
        (
            "Test, without <unk>",
            f"{result.perplexity_without_unk:,.2f}",
            f"{result.unknown:,} of {result.words + result.sentence_ends:,} left out",
        ),
        (
            "Tuning perplexity",
            f"{best:,.2f}",
            f"{fit.iterations} iterations of EM, {len(tuning):,} words",
        ),
    ]
    rows = [
        [name, f"{weight:.4f}", f"{perplexity:,.2f}", f"{known:,.2f}"]
        for name, weight, perplexity, known in zip(
            short,
            fit.weights.tolist(),
            result.component_perplexities,
            result.component_perplexities_without_unk,
            strict=True,
        )
    ]
    rows.append(
        ["mixture", "", f"{result.perplexity:,.2f}", f"{result.perplexity_without_unk:,.2f}"]
    )
    header = ["", "Weight", "Test perplexity", "without <unk>"]
    note = (
        "Every figure is over the same vocabulary, that of the mixture: a network's <unk> is "
        "spread over the words it lacks. Weights are those under which the tuning text is most "
        "probable; the test text had no part in them."
    )
    sections = [
        page.section("Results", page.cards(figures)),
        page.section("Alone and together", page.prose(note), page.table(header, rows)),
        page.section("Choice of the weights", page.plots([mixture_plot(short, fit, tuning)])),
    ]
    return page.write(path, page.page("A mixture of language models", " + ".join(short), sections))


def _short(names: Sequence[str]) -> list[str]:
    """The names of the files, where they tell the components apart."""
    short = [Path(name).resolve().name for name in names]
    return short if len(set(short)) == len(short) else list(names)
