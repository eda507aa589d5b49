"""Trains several settings on one text, side by side, and prints a table of perplexities.

    python benchmarks/compare.py PREPARED CONFIG.toml \
        --run "exact softmax: loss.loss=full" \
        --run "BlackOut: loss.loss=blackout loss.samples=2000" [--workers N] [--minutes M]

PREPARED is a folder of `blackout prepare`; each run is CONFIG.toml with its own values on top.
After ``--minutes`` runs that have not finished are stopped and their best model so far is tested:
the table says how many epochs each one had.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any


def run_one(prepared: str, out: str, settings: str) -> None:
    """The child process: trains until done or stopped, then tests the best model."""
    from blackout.config import Config
    from blackout.evaluate.perplexity import evaluate
    from blackout.models import load
    from blackout.text.prepared import open_prepared
    from blackout.train import train
    from blackout.train.loop import Stopped

    config, data = Config.from_dict(json.loads(settings)), open_prepared(prepared)
    try:
        train(config, data, out)
    except Stopped as reason:
        print(reason, file=sys.stderr)
    device = "cpu" if config.run.device == "auto" else config.run.device
    test = evaluate(load(out, device=device), data.shard("test"))
    Path(out, "result.json").write_text(json.dumps(test.__dict__))


def with_values(config: dict[str, Any], assignments: str) -> dict[str, Any]:
    """The config with ``table.key=value`` assignments on top."""
    changed = {table: dict(values) for table, values in config.items()}
    for assignment in assignments.split():
        path, _, value = assignment.partition("=")
        table, _, key = path.partition(".")
        try:
            changed.setdefault(table, {})[key] = json.loads(value)
        except json.JSONDecodeError:
            changed.setdefault(table, {})[key] = value
    return changed


def run_all(jobs: dict[str, list[str]], workers: int, seconds: float) -> None:
    """Runs commands, ``workers`` at a time; interrupts those still running at the end of time."""
    waiting, running, end = list(jobs.values()), [], time.monotonic() + seconds
    while waiting or running:
        running = [process for process in running if process.poll() is None]
        if time.monotonic() > end:
            waiting = []
            for process in running:
                process.send_signal(signal.SIGTERM)
            end = float("inf")
        while waiting and len(running) < workers:
            running.append(subprocess.Popen(waiting.pop(0)))
        time.sleep(0.5)


def show(names: list[str], folders: dict[str, Path]) -> None:
    print("| | validation perplexity, epoch by epoch | best | test | without `<unk>` | words/s |")
    print("|---|---|---|---|---|---|")
    for name in names:
        metrics = folders[name] / "metrics.jsonl"
        events = [json.loads(line) for line in metrics.open()] if metrics.exists() else []
        epochs = [event for event in events if event["event"] == "epoch"]
        curve = [event["valid_perplexity"] for event in epochs]
        result = folders[name] / "result.json"
        test = json.loads(result.read_text()) if result.exists() else None
        cells = [
            name,
            " ".join(f"{p:.1f}" for p in curve),
            f"{min(curve):.1f}" if curve else "–",
            f"{test['perplexity']:.1f}" if test else "–",
            f"{test['perplexity_without_unk']:.1f}" if test else "–",
            f"{epochs[-1]['words_per_second']:,.0f}" if epochs else "–",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        run_one(*sys.argv[2:5])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prepared")
    parser.add_argument("config", type=Path)
    parser.add_argument("--run", action="append", required=True, metavar="NAME: table.key=value …")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_args()
    base = tomllib.loads(options.config.read_text())
    with tempfile.TemporaryDirectory() as folder:
        names, jobs, folders = [], {}, {}
        for i, run in enumerate(options.run):
            name, _, assignments = run.partition(":")
            settings = json.dumps(with_values(base, assignments))
            folders[name] = Path(folder, str(i))
            this = os.path.abspath(__file__)
            command = [sys.executable, this, "--one", options.prepared]
            jobs[name] = [*command, str(folders[name]), settings]
            names.append(name)
        run_all(jobs, options.workers, options.minutes * 60)
        show(names, folders)


if __name__ == "__main__":
    main()
