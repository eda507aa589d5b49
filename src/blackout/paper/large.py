"""The runs on English Wikipedia: 24 million words of training text for the paper's billion.

Batch 128, bptt 20, the preset "paper" but for what a study is about. On a machine with a GPU
the runs use it.
"""

from __future__ import annotations

from typing import Any

from blackout.config import Config, TextConfig
from blackout.paper.finding import counted
from blackout.paper.lab import Corpus, Lab

CORPUS = "enwiki"


def shortlist(lab: Lab) -> Corpus:
    """The text with the 64,000 most frequent words."""
    return lab.corpus(CORPUS, TextConfig(vocab_size=1000 if lab.quick else 64_000))


def full(lab: Lab) -> Corpus:
    """The text with all its words."""
    return lab.corpus(CORPUS, TextConfig())


def name(hidden: int) -> str:
    """What a row with a network of this size is called."""
    return f"{hidden} units"


def epochs(lab: Lab, usual: int) -> int:
    return 1 if lab.quick else lab.epochs or usual


def describe(corpus: Corpus, config: Config) -> str:
    """The size of a run, in words."""
    return (
        f"{corpus.words:,} words, V = {corpus.vocab_size:,}, K = {config.loss.samples:,}, "
        f"{counted(config.run.planned_epochs, 'epoch')}, one seed"
    )


def config(lab: Lab, hidden: int, usual_epochs: int, **loss: Any) -> Config:
    """The settings of a run."""
    batch = 16 if lab.quick else 128
    return Config.from_dict(
        {
            "preset": "paper",
            "model": {"hidden": hidden},
            "loss": {"samples": 20 if lab.quick else 500} | loss,
            "run": {"batch": batch, "bptt": 20, "epochs": epochs(lab, usual_epochs)},
        }
    )
