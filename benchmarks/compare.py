"""Trains several settings on one text, side by side, and prints a table of perplexities.

    python benchmarks/compare.py PREPARED CONFIG.toml \
        --run "exact softmax: loss.loss=full" \
        --run "BlackOut: loss.loss=blackout loss.samples=2000" [--workers N] [--minutes M]

PREPARED is a folder of `blackout prepare`; each run is CONFIG.toml with its own values on top.
After ``--minutes`` runs that have not finished are stopped and their best model so far is tested:
the table says how many epochs each one had. With ``--folder`` finished runs are remembered there,
and unfinished ones go on when the command is given again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from blackout.config import Config
from blackout.errors import UserError
from blackout.trials.trials import Outcome, Trial, Trials


def with_values(config: dict[str, Any], assignments: str) -> Config:
    """The config with ``table.key=value`` assignments on top."""
    changed: dict[str, Any] = {
        name: dict(part) if isinstance(part, dict) else part for name, part in config.items()
    }
    for assignment in assignments.split():
        path, _, value = assignment.partition("=")
        table, _, key = path.partition(".")
        try:
            changed.setdefault(table, {})[key] = json.loads(value)
        except json.JSONDecodeError:
            changed.setdefault(table, {})[key] = value
    return Config.from_dict(changed, "--run")


def show(names: list[str], outcomes: list[Outcome]) -> None:
    print("| | validation perplexity, epoch by epoch | best | test | without `<unk>` | words/s |")
    print("|---|---|---|---|---|---|")
    for name, outcome in zip(names, outcomes, strict=True):
        curve, test = outcome.curve, outcome.perplexity.get("test")
        cells = [
            name,
            " ".join(f"{epoch.valid_perplexity:.1f}" for epoch in curve),
            f"{outcome.valid_perplexity:.1f}" if curve else "–",
            f"{test.perplexity:.1f}" if test else "–",
            f"{test.perplexity_without_unk:.1f}" if test else "–",
            f"{outcome.words_per_second:,.0f}" if curve else "–",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prepared", type=Path)
    parser.add_argument("config", type=Path)
    parser.add_argument("--run", action="append", required=True, metavar="NAME: table.key=value …")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    base = tomllib.loads(options.config.read_text())
    runs = [run.partition(":") for run in options.run]
    with tempfile.TemporaryDirectory() as scratch:
        trials = Trials(options.folder or Path(scratch), workers=options.workers)
        asked = [Trial(with_values(base, values), options.prepared) for _, _, values in runs]
        outcomes = trials.run(asked, minutes=options.minutes)
    show([name for name, _, _ in runs], outcomes)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
