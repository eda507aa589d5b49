"""Figure 4a: perplexity against alpha, the power of the proposal."""

from __future__ import annotations

from blackout.paper import large
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.paper.picture import Curve, Panel
from blackout.train.trials import Trial

ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def study(lab: Lab) -> Finding:
    corpus = large.shortlist(lab)
    alphas = ALPHAS[::2] if lab.quick else ALPHAS
    hidden = 16 if lab.quick else 256
    trials = [Trial(large.config(lab, hidden, 2, alpha=alpha), corpus.prepared) for alpha in alphas]
    outcomes = lab.run(trials)
    rows = []
    for alpha, outcome in zip(alphas, outcomes, strict=True):
        test = outcome.perplexity["test"]
        rows.append(
            {"α": alpha}
            | {f"valid, epoch {e.epoch}": e.valid_perplexity for e in outcome.curve}
            | {"test": test.perplexity, "without <unk>": test.perplexity_without_unk}
        )
    curves = [
        Curve("validation", alphas, [o.valid_perplexity for o in outcomes]),
        Curve("test", alphas, [o.perplexity["test"].perplexity for o in outcomes]),
    ]
    samples = trials[0].config.loss.samples
    return Finding(
        title="Perplexity against α",
        claim=(
            "α matters much: uniform (0) and unigram (1) proposals are often worse than what lies "
            "between; with 64,000 words, 256 units and 500 samples 0.4 is best."
        ),
        setting=(
            f"{corpus.words:,} words, V = {corpus.vocab_size:,}, {hidden} hidden units, "
            f"K = {samples}, {trials[0].config.run.epochs} epochs, one seed."
        ),
        rows=rows,
        panels=[Panel("α", "perplexity", curves, x_ticks=alphas)],
    )
