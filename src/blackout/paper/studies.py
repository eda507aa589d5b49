"""The names of the studies and where they are written down. Nothing heavy is imported here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blackout.paper.finding import Finding
    from blackout.paper.lab import Lab

# name → (module of blackout.paper, function in it, what it shows)
STUDIES = {
    "fig2a": ("fig2", "full_vocabulary", "perplexity against K, full vocabulary"),
    "fig2b": ("fig2", "top_words", "perplexity against K, most frequent words"),
    "fig3a": ("fig3", "ten_samples", "learning curves of BlackOut and NCE, K = 10"),
    "fig3b": ("fig3", "fifty_samples", "learning curves of BlackOut and NCE, K = 50"),
    "fig4a": ("fig4a", "study", "perplexity against alpha, 64,000 words"),
    "fig4b": ("fig4b", "study", "discriminative against maximum-likelihood training"),
    "fig5": ("fig5", "study", "training perplexities of fig2: who overfits"),
    "table1": ("table1", "study", "64,000 words, alone and mixed with a 5-gram"),
    "table2": ("table2", "study", "the full vocabulary, no mixing"),
    "footnote1": ("footnote1", "study", "q = 1 for the target hurts"),
    "appendix-a": ("appendix_a", "study", "the noise distribution has expectation Q"),
    "appendix-c": ("appendix_c", "study", "how second moments of untouched rows age"),
    "speedup": ("speedup", "study", "words a second against V and K"),
    "defaults": ("defaults", "study", "the default settings with every cell, width and block"),
    "widths": ("widths", "study", "the default settings at every width, by epoch and seed"),
    "schedules": ("schedules", "study", "how the learning rate should fall"),
    "cells": ("cells", "study", "sigmoid, LSTM and GRU at equal training time"),
    "choose": ("choose", "study", "every layer, and programs of others, at equal training time"),
    "beyond": ("beyond", "study", "sharing, proposals, negatives and cells"),
}


def run_study(name: str, lab: Lab) -> Finding:
    """Does a study."""
    module, function, _ = STUDIES[name]
    finding: Finding = getattr(importlib.import_module(f"blackout.paper.{module}"), function)(lab)
    return finding
