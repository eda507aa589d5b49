"""The runs on the paper's small data set: 16 hidden units, 71,350 words of training text.

Batch 8, bptt 15, 50 epochs, lr 0.01, beta 0.999, damping 1e-6. For every method and every K the
settings that the method needs are chosen on validation text, from six candidates each: alpha for
BlackOut, alpha and Z for NCE. BlackOut comes in two readings: with copies of the target taken out
of its samples, the paper's, and with copies kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from blackout import losses
from blackout.config import Config, TextConfig
from blackout.paper.finding import counted
from blackout.paper.lab import Corpus, Lab, mean_and_spread
from blackout.trials.trials import Outcome, Trial

CORPUS = "rnnlm-small"
FULL = TextConfig(vocab_size=3720)
TOP = TextConfig(min_count=2)  # the 2,063 words that occur twice or more, </s> and <unk>

_ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_NCE_ALPHAS = (0.4, 0.7, 1.0)
METHODS: dict[str, list[dict[str, Any]]] = {
    "BlackOut": [{"loss": "blackout", "alpha": a, "collisions": "remove"} for a in _ALPHAS],
    "BlackOut, copies kept": [
        {"loss": "blackout", "alpha": a, "collisions": "keep"} for a in _ALPHAS
    ],
    "NCE": [{"loss": "nce", "alpha": a, "log_z": z} for a in _NCE_ALPHAS for z in (0.0, "learned")],
    "NCE, Z = 1": [{"loss": "nce", "alpha": a, "log_z": 0.0} for a in _NCE_ALPHAS],
}
TUNED = ("BlackOut", "BlackOut, copies kept", "NCE")
"""The methods at their best: with all they have to tune tuned."""


@dataclass(frozen=True)
class Size:
    """How much of a study is done."""

    samples: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200, 500)
    seeds: tuple[int, ...] = (1, 2, 3)
    epochs: int = 50
    stride: int = 1
    """Every how many candidates one is tried."""

    def __str__(self) -> str:
        return f"{counted(self.epochs, 'epoch')}, mean of {counted(len(self.seeds), 'seed')}"


def size(lab: Lab) -> Size:
    whole = Size(epochs=lab.epochs) if isinstance(lab.epochs, int) else Size()
    return Size((2, 10), (1,), 1, 3) if lab.quick else whole


def config(lab: Lab, loss: dict[str, Any], seed: int = 1, **tables: dict[str, Any]) -> Config:
    """The settings of a run: those of the data set, with ``loss`` and other tables on top."""
    model = {"hidden": 16} | tables.get("model", {})
    optim = {"lr": 0.01, "lr_decay": 0.999, "beta": 0.999, "damping": 1e-6, "clip": 1.0}
    run = {"batch": 8, "bptt": 15, "epochs": size(lab).epochs, "seed": seed}
    return Config.from_dict(
        {
            "preset": "paper",
            "model": model,
            "loss": loss,
            "optim": optim | tables.get("optim", {}),
            "run": run | {"threads": 1, "device": "cpu"} | tables.get("run", {}),
        }
    )


def seeded(lab: Lab, trial: Trial) -> list[Trial]:
    """The same trial with every seed."""
    config = trial.config
    return [
        replace(trial, config=replace(config, run=replace(config.run, seed=seed)))
        for seed in size(lab).seeds
    ]


def trial(lab: Lab, corpus: Corpus, loss: dict[str, Any], **tables: dict[str, Any]) -> Trial:
    return Trial(config(lab, loss, 1, **tables), corpus.prepared, measure=("train", "test"))


@dataclass(frozen=True)
class Cell:
    """The runs of one method with one K: its settings, and an outcome for each seed."""

    config: Config
    outcomes: Sequence[Outcome]

    def perplexities(self, part: str) -> list[float]:
        """On "train" or "test", for each seed."""
        return [outcome.perplexity[part].perplexity for outcome in self.outcomes]

    def mean(self, part: str) -> tuple[float, float]:
        """Mean and spread of these."""
        return mean_and_spread(self.perplexities(part))

    def mean_without_unk(self, part: str) -> float:
        return mean_and_spread([o.perplexity[part].perplexity_without_unk for o in self.outcomes])[
            0
        ]

    def figures(self) -> dict[str, float]:
        """Mean validation and test perplexity over the seeds, and the latter's spread."""
        valid, _ = mean_and_spread([o.valid_perplexity for o in self.outcomes])
        test, spread = self.mean("test")
        return {"valid": valid, "test": test, "±": spread}

    @property
    def words_per_second(self) -> float:
        return mean_and_spread([o.words_per_second for o in self.outcomes])[0]

    @property
    def chosen(self) -> str:
        """What was chosen on validation text, in words."""
        loss = self.config.loss
        options = losses.find(loss.loss).options
        if "alpha" not in options:
            return "–"
        if "log_z" not in options:
            return f"α {loss.alpha:g}"
        z = "learned" if loss.log_z == "learned" else f"e^{loss.log_z:g}" if loss.log_z else "1"
        return f"α {loss.alpha:g}, Z {z}"


def repeat(lab: Lab, trials: Sequence[Trial]) -> list[Cell]:
    """Every trial with every seed."""
    all_trials = [one for trial in trials for one in seeded(lab, trial)]
    outcomes, seeds = lab.run(all_trials), len(size(lab).seeds)
    return [
        Cell(trial.config, outcomes[i * seeds : (i + 1) * seeds]) for i, trial in enumerate(trials)
    ]


def sweep(
    lab: Lab, corpus: Corpus, samples: Sequence[int], methods: Sequence[str]
) -> tuple[dict[tuple[str, int], Cell], Cell]:
    """Every method with every K, tuned, and the exact softmax."""
    keys = [(method, k) for method in methods for k in samples]
    questions = [
        [
            trial(lab, corpus, candidate | {"samples": k})
            for candidate in METHODS[method][:: size(lab).stride]
        ]
        for method, k in keys
    ]
    chosen = lab.choose(questions)
    *cells, exact = repeat(lab, [*chosen, trial(lab, corpus, {"loss": "full"})])
    return dict(zip(keys, cells, strict=True)), exact
