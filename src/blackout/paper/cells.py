"""Which cell should a newcomer get? The default settings, one cell after another, at equal time.

A cell's run is looked at after each of the times (:mod:`blackout.paper.timed`); it is done once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from blackout.config import Cell
from blackout.pages.picture import Curve, Panel
from blackout.paper.finding import Finding, counted
from blackout.paper.lab import Lab
from blackout.paper.networks import Case, open_texts, trial
from blackout.paper.timed import RULES, train_for

CELLS: tuple[Cell, ...] = ("sigmoid", "lstm", "gru")
TEXT = "Wikipedia, a quarter"  # long enough for the fastest not to learn it by heart
MINUTES = (0.5, 1.0, 2.0)
HIDDEN = 256


def study(lab: Lab) -> Finding:
    minutes = tuple(sorted(lab.minutes or ((0.004,) if lab.quick else MINUTES)))
    threads = 1 if lab.quick else lab.threads or 2
    hidden = 16 if lab.quick else HIDDEN
    rows = [
        row for cell in CELLS for row in cell_rows(lab, Case(TEXT, cell, hidden), minutes, threads)
    ]
    clock = "processor time of one thread" if threads == 1 else counted(threads, "thread")
    return Finding(
        title="Cells at equal time",
        claim="nothing: it has sigmoid units only.",
        setting=(
            f"{hidden} units, the default settings, bf16 products, the first 230,000 lines "
            f"of Wikipedia; each row trained for the minutes it names ({clock}, evaluation not "
            "counted), its learning rate falling to 0 in the second half of them. One seed."
        ),
        rows=rows,
        panels=[
            Panel(
                "minutes of training",
                "validation perplexity",
                [curve(cell, rows) for cell in CELLS],
                x_log=len(minutes) > 1,
                x_ticks=minutes,
            )
        ],
    )


def cell_rows(lab: Lab, case: Case, minutes: Sequence[float], threads: int) -> list[dict[str, Any]]:
    """A cell after some minutes of training."""
    corpora = open_texts(lab, [case])
    asked, corpus = trial(lab, corpora, case), corpora[case.text]
    config = replace(asked.config, run=replace(asked.config.run, threads=threads, device="cpu"))

    def compute() -> dict[str, Any]:
        seconds = [60 * each for each in minutes]
        marks = train_for(config, corpus.prepared, seconds, apart=not lab.quick)
        return {"marks": [asdict(mark) for mark in marks]}

    about = {
        "cells": str(case),
        "text": corpus.name,
        "minutes": minutes,
        "threads": threads,
        "timed": RULES,
    }
    return [
        {
            "cell": case.cell,
            "minutes": each,
            "epochs": mark["words"] / corpus.words,
            "valid": mark["perplexity"],
            "words/s": mark["words"] / mark["seconds"],
        }
        for each, mark in zip(minutes, lab.remember(about, compute)["marks"], strict=True)
    ]


def curve(cell: Cell, rows: Sequence[dict[str, Any]]) -> Curve:
    points = [(r["minutes"], r["valid"]) for r in rows if r["cell"] == cell]
    points = [(x, y) for x, y in points if math.isfinite(y)]
    return Curve(cell, [x for x, _ in points], [y for _, y in points])
