"""The paper's small data set: test perplexity of each loss, beside the authors' program.

    python benchmarks/small_table.py DATA [--workers N] [--cache FOLDER]

DATA holds the files train, valid and test of rnnlm-small (`blackout data rnnlm-small`). Hidden 16,
batch 8, bptt 15, lr 0.01, lr-decay 0.999, beta 0.999, damping 1e-6, clip 1, 50 epochs; mean over
seeds 1-3. BlackOut as the paper has it, alpha 0.3 and copies of the target taken out of its
samples, and with the defaults of this package, alpha 1 and copies kept. NCE's alpha and log Z are
chosen by validation perplexity with seed 1.
Finished runs are kept in the cache folder, so an interrupted study goes on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from blackout.config import Config
from blackout.errors import UserError
from blackout.text.prepared import prepare
from blackout.trials.trials import Outcome, Trial, Trials

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
    collisions: str = "remove"
    log_z: float | str = 0.0


ROWS = [
    Row("V 3,720, BlackOut, K = 2", 1, 3720, "blackout", 2, "140.6 / 100.0"),
    Row("V 3,720, BlackOut, K = 10", 1, 3720, "blackout", 10, "107.6 / 77.0"),
    Row("V 3,720, BlackOut, K = 50", 1, 3720, "blackout", 50, "97.8 / 71.9"),
    Row("V 3,720, BlackOut, defaults, K = 2", 1, 3720, "blackout", 2, "–", 1.0, "keep"),
    Row("V 3,720, BlackOut, defaults, K = 10", 1, 3720, "blackout", 10, "–", 1.0, "keep"),
    Row("V 3,720, BlackOut, defaults, K = 50", 1, 3720, "blackout", 50, "–", 1.0, "keep"),
    Row("V 3,720, importance sampling, K = 50", 1, 3720, "sampled", 50, "–"),
    Row("V 3,720, exact softmax", 1, 3720, "full", 50, "87.5 / 72.7"),
    Row("V 2,065, BlackOut, K = 50", 2, None, "blackout", 50, "68.7 / 64.4"),
    Row("V 2,065, BlackOut, defaults, K = 50", 2, None, "blackout", 50, "–", 1.0, "keep"),
    Row("V 2,065, exact softmax", 2, None, "full", 50, "63.9 / 65.2"),
]
NCE_NAME, NCE_AUTHORS = (
    "V 3,720, NCE, K = 50, alpha and Z tuned on valid",
    "147.8 / 111.7 (untuned)",
)


class Study:
    """Runs rows of the table, with the text prepared once for each vocabulary."""

    def __init__(self, texts: Path, folder: Path, workers: int, epochs: int) -> None:
        self.texts, self.folder, self.epochs = texts, folder, epochs
        self.trials = Trials(folder, workers=workers)

    def results(self, jobs: list[tuple[Row, int]]) -> list[Outcome]:
        """The outcomes of rows with seeds."""
        return self.trials.run([self._trial(row, seed) for row, seed in jobs])

    def _trial(self, row: Row, seed: int) -> Trial:
        names = ("loss", "samples", "alpha", "collisions", "log_z")
        optim = {"lr": 0.01, "lr_decay": 0.999, "beta": 0.999, "damping": 1e-6, "clip": 1.0}
        run = {"batch": 8, "bptt": 15, "epochs": self.epochs, "seed": seed}
        config = Config.from_dict(
            {
                "preset": "paper",
                "text": {"min_count": row.min_count, "vocab_size": row.vocab_size},
                "model": {"hidden": 16, "context": "sentence"},
                "loss": {name: getattr(row, name) for name in names},
                "optim": optim,
                "run": run | {"threads": 1, "device": "cpu"},
            }
        )
        data = prepare(
            self.texts / "train",
            self.folder / f"data-{row.min_count}-{row.vocab_size}",
            config.text,
            valid=self.texts / "valid",
            test=self.texts / "test",
        )
        return Trial(config, data.folder)


def tune_nce(study: Study) -> Row:
    """The NCE settings with the best validation perplexity of seed 1."""
    rows = [Row(NCE_NAME, 1, 3720, "nce", 50, NCE_AUTHORS, alpha, log_z=z) for alpha, z in NCE_GRID]
    outcomes = study.results([(row, 1) for row in rows])
    return min(zip(rows, outcomes, strict=True), key=lambda pair: pair[1].valid_perplexity)[0]


def show(row: Row, outcomes: list[Outcome]) -> None:
    tests = [outcome.perplexity["test"] for outcome in outcomes]
    pairs = [(test.perplexity, test.perplexity_without_unk) for test in tests]
    averages = " / ".join(f"{mean(pair[i] for pair in pairs):.1f}" for i in (0, 1))
    each = ", ".join(f"{a:.1f} / {b:.1f}" for a, b in pairs)
    name = row.name
    if row.loss == "nce":
        name += f" (alpha {row.alpha}, log Z {row.log_z})"
    print(f"| {name} | {row.authors} | {averages} | {each} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--epochs", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.cache or Path(scratch)
        study = Study(options.data, folder, options.workers, options.epochs)
        study.results([(row, seed) for row in ROWS for seed in SEEDS])  # no worker idles
        print("| | authors' program | ours, mean of 3 seeds | ours, each seed |")
        print("|---|---|---|---|")
        for row in [*ROWS, tune_nce(study)]:
            show(row, study.results([(row, seed) for seed in SEEDS]))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
