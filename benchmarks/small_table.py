"""The paper's small data set: test perplexity of each loss, beside the authors' program.

    python benchmarks/small_table.py DATA [--workers N] [--cache FILE] > docs/small-table.md

DATA holds the files train, valid and test of rnnlm-small (`blackout data rnnlm-small`). Hidden 16,
batch 8, bptt 15, lr 0.01, lr-decay 0.999, beta 0.999, damping 1e-6, clip 1, 50 epochs, alpha 0.3;
mean over seeds 1-3. NCE's alpha and log Z are chosen by validation perplexity with seed 1.
Finished runs are kept in the cache file, so an interrupted study goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

SEEDS = (1, 2, 3)
NCE_GRID = [(0.6, "learned"), (1.0, "learned"), (1.0, 9.0), (1.0, 0.0)]


@dataclass(frozen=True)
class Row:
    """A line of the table: settings, and what the authors' program gives."""

    name: str
    min_count: int
    vocab_size: int | None
    loss: str
    samples: int
    authors: str
    alpha: float = 0.3
    log_z: float | str = 0.0


ROWS = [
    Row("V 3,720, BlackOut, K = 2", 1, 3720, "blackout", 2, "140.6 / 100.0"),
    Row("V 3,720, BlackOut, K = 10", 1, 3720, "blackout", 10, "107.6 / 77.0"),
    Row("V 3,720, BlackOut, K = 50", 1, 3720, "blackout", 50, "97.8 / 71.9"),
    Row("V 3,720, importance sampling, K = 50", 1, 3720, "sampled", 50, "–"),
    Row("V 3,720, exact softmax", 1, 3720, "full", 50, "87.5 / 72.7"),
    Row("V 2,065, BlackOut, K = 50", 2, None, "blackout", 50, "68.7 / 64.4"),
    Row("V 2,065, exact softmax", 2, None, "full", 50, "63.9 / 65.2"),
]
NCE_NAME, NCE_AUTHORS = (
    "V 3,720, NCE, K = 50, alpha and Z tuned on valid",
    "147.8 / 111.7 (untuned)",
)


def run_one(data: str, row: dict[str, Any], seed: int, epochs: int) -> dict[str, Any]:
    """Trains one network in a process of its own."""
    from blackout.config import Config
    from blackout.text.prepared import prepare
    from blackout.train import train

    config = Config.from_dict(
        {
            "text": {"min_count": row["min_count"], "vocab_size": row["vocab_size"]},
            "model": {"hidden": 16, "context": "sentence"},
            "loss": {
                "loss": row["loss"],
                "samples": row["samples"],
                "alpha": row["alpha"],
                "log_z": row["log_z"],
            },
            "optim": {"lr": 0.01, "lr_decay": 0.999, "beta": 0.999, "damping": 1e-6, "clip": 1.0},
            "run": {"batch": 8, "bptt": 15, "epochs": epochs, "seed": seed, "threads": 1}
            | {"device": "cpu"},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        texts = {part: Path(data) / part for part in ("train", "valid", "test")}
        prepared = prepare(
            texts["train"],
            Path(folder) / "data",
            config.text,
            valid=texts["valid"],
            test=texts["test"],
            threads=1,
        )
        result = train(config, prepared, Path(folder) / "run")
    assert result.test is not None
    return {
        "valid": result.valid_perplexity,
        "test": result.test.perplexity,
        "test_without_unk": result.test.perplexity_without_unk,
        "words_per_second": result.words_per_second,
    }


class Study:
    """Runs what is asked for, several at a time, and remembers every result."""

    def __init__(self, data: str, workers: int, cache: Path | None, epochs: int) -> None:
        self.data, self.workers, self.cache, self.epochs = data, workers, cache, epochs
        self.done: dict[str, Any] = {}
        if cache and cache.exists():
            self.done = json.loads(cache.read_text())

    def results(self, jobs: Sequence[tuple[Row, int]]) -> list[dict[str, Any]]:
        keys = [self._key(row, seed) for row, seed in jobs]
        missing = {k: job for k, job in zip(keys, jobs, strict=True) if k not in self.done}
        with ProcessPoolExecutor(self.workers, get_context("spawn")) as pool:
            running = {
                pool.submit(run_one, self.data, asdict(row), seed, self.epochs): key
                for key, (row, seed) in missing.items()
            }
            for future in as_completed(running):
                self.done[running[future]] = future.result()
                print(f"{len(self.done)} runs done: {running[future]}", file=sys.stderr, flush=True)
                if self.cache:
                    self.cache.write_text(json.dumps(self.done, indent=1))
        return [self.done[key] for key in keys]

    def _key(self, row: Row, seed: int) -> str:
        settings = {k: v for k, v in asdict(row).items() if k not in ("name", "authors")}
        return json.dumps(settings | {"seed": seed, "epochs": self.epochs}, sort_keys=True)


def nce_row(alpha: float, log_z: float | str) -> Row:
    return Row(NCE_NAME, 1, 3720, "nce", 50, NCE_AUTHORS, alpha, log_z)


def tune_nce(study: Study) -> Row:
    """The NCE settings with the best validation perplexity of seed 1."""
    rows = [nce_row(alpha, log_z) for alpha, log_z in NCE_GRID]
    results = study.results([(row, 1) for row in rows])
    best = min(range(len(rows)), key=lambda i: results[i]["valid"])
    return rows[best]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--epochs", type=int, default=50)
    options = parser.parse_args()
    study = Study(options.data, options.workers, options.cache, options.epochs)
    study.results([(row, seed) for row in ROWS for seed in SEEDS])  # all at once: no worker idles
    rows = [*ROWS, tune_nce(study)]
    print("| | authors' program | ours, mean of 3 seeds | ours, each seed |")
    print("|---|---|---|---|")
    for row in rows:
        results = study.results([(row, seed) for seed in SEEDS])
        pairs = [(r["test"], r["test_without_unk"]) for r in results]
        averages = " / ".join(f"{mean(p[i] for p in pairs):.1f}" for i in (0, 1))
        each = ", ".join(f"{a:.1f} / {b:.1f}" for a, b in pairs)
        name = row.name
        if row.loss == "nce":
            name += f" (alpha {row.alpha}, log Z {row.log_z})"
        print(f"| {name} | {row.authors} | {averages} | {each} |")


if __name__ == "__main__":
    main()
