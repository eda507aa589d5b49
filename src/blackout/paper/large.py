"""The runs on English Wikipedia: 24 million words of training text for the paper's billion.

Batch 128, bptt 20, the default settings, bf16 products; with ``--preset paper`` the paper's, in
float32. On a machine with a GPU the runs use it. No checkpoint after each epoch: on a GPU writing
one takes as long as the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from blackout.config import Cell, Config, TextConfig
from blackout.paper.finding import Row, counted
from blackout.paper.lab import Corpus, Lab, mean_and_spread
from blackout.trials.trials import Outcome, Trial

CORPUS = "enwiki"
CELLS: tuple[Cell, ...] = ("sigmoid", "lstm")
_BATCH, _QUICK_BATCH, _BPTT = 128, 16, 20
_SAMPLES, _QUICK_SAMPLES = 500, 20

# What may have been run before, here or on another machine: it counts whatever is asked for now.
_DROPOUTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_EPOCHS: tuple[int | Literal["auto"], ...] = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, "auto")


def shortlist(lab: Lab) -> Corpus:
    """The text with the 64,000 most frequent words."""
    return lab.corpus(CORPUS, TextConfig(vocab_size=1000 if lab.quick else 64_000))


def full(lab: Lab) -> Corpus:
    """The text with all its words."""
    return lab.corpus(CORPUS, TextConfig())


def config(lab: Lab, model: Mapping[str, Any], epochs: int, seed: int = 1, **loss: Any) -> Config:
    """The settings of a run; ``epochs``: where nobody asks for others."""
    run: dict[str, Any] = {
        "batch": _QUICK_BATCH if lab.quick else _BATCH,
        "bptt": _BPTT,
        "epochs": lab.epochs or (1 if lab.quick else epochs),
        "seed": seed,
        "epoch_checkpoints": False,
    }
    settings: dict[str, Any] = {
        "model": dict(model),
        "loss": {"samples": _QUICK_SAMPLES if lab.quick else _SAMPLES} | loss,
        "run": run,
    }
    if lab.preset is None:
        run["precision"] = "bf16"
    else:
        settings["preset"] = lab.preset
    return Config.from_dict(settings)


def describe(corpus: Corpus, config: Config) -> str:
    """The size of a run, in words."""
    return (
        f"{corpus.words:,} words, V = {corpus.vocab_size:,}, K = {config.loss.samples:,}, "
        f"B = {config.run.batch}, T = {config.run.bptt}, {_settings(config)}"
    )


def _settings(config: Config) -> str:
    kind = "the default rates" if config.optim.rates == "width" else "the preset paper"
    return f"{kind}, {'float32' if config.run.precision == 'fp32' else 'bf16 products'}"


def passes(config: Config) -> str:
    """How long a run trains, in words."""
    if config.run.epochs == "auto":
        return "epochs auto"
    return counted(config.run.epochs, "epoch")


# ---------------------------------------------------------------------- one setting, several seeds


def seeds(lab: Lab) -> Sequence[int]:
    """The seeds of each setting."""
    return (1,) if lab.quick else lab.seeds or (1, 2, 3)


def over_seeds(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The columns of a setting that was run with several seeds."""
    tests = [outcome.perplexity["test"] for outcome in outcomes]
    valid, valid_spread = mean_and_spread([outcome.valid_perplexity for outcome in outcomes])
    test, spread = mean_and_spread([found.perplexity for found in tests])
    known, _ = mean_and_spread([found.perplexity_without_unk for found in tests])
    return {
        "seeds": len(outcomes),
        "valid": valid,
        "valid ±": valid_spread,
        "test": test,
        "±": spread,
        "without <unk>": known,
        "minutes": mean_and_spread([minutes(outcome) for outcome in outcomes])[0],
    }


def minutes(outcome: Outcome) -> float:
    """Of training; validation and saving left out."""
    return outcome.curve[-1].seconds / 60


# ---------------------------------------------------------------------- networks, with their tries


@dataclass(frozen=True)
class Network:
    """A network whose dropout and number of epochs are for validation text to choose."""

    cell: Cell
    hidden: int

    def __str__(self) -> str:
        return f"{self.cell} {self.hidden} units"


@dataclass(frozen=True)
class Try:
    """A way to train a network."""

    network: Network
    trial: Trial

    def __str__(self) -> str:
        config = self.trial.config
        return f"{self.network}, dropout {config.model.dropout:g}, {passes(config)}"


@dataclass(frozen=True)
class Tried:
    """What a try came to."""

    network: Network
    config: Config
    outcome: Outcome

    def figures(self) -> dict[str, Any]:
        """Its line in a table of all tries."""
        return {
            "network": str(self.network),
            "dropout": self.config.model.dropout,
            "epochs": self.outcome.curve[-1].epoch,
            "schedule": self.config.schedule,
            "valid": self.outcome.valid_perplexity,
            "minutes": minutes(self.outcome),
            "words/s": self.outcome.words_per_second,
        }


def networks(lab: Lab, sizes: Sequence[int]) -> list[Network]:
    """The networks of a table; ``sizes``: of their layers, where nobody asks for others."""
    cells, widths = lab.cells or CELLS, lab.hidden or sizes
    return [Network(cell, hidden) for cell in cells for hidden in widths]


def tries(
    lab: Lab,
    corpus: Corpus,
    network: Network,
    epochs: int,
    dropouts: Sequence[float],
    *,
    keep_words: bool = False,
    **loss: Any,
) -> list[Try]:
    """The ways to train a network that are asked for; without words of others, these."""
    found = []
    for dropout in lab.dropouts or ((0.0,) if lab.quick else dropouts):
        model = {"cell": network.cell, "hidden": network.hidden, "dropout": dropout}
        settings = config(lab, model, epochs, **loss)
        found.append(Try(network, Trial(settings, corpus.prepared, keep_words=keep_words)))
    return found


def run_tries(lab: Lab, asked: Sequence[Try]) -> list[Tried]:
    """Runs those that are wanted; what all that are known came to, whenever they were run."""
    asked_by_name = {str(each): [each.trial] for each in asked}
    known = {name: each for each in asked for name, each in _others(each)}
    found = lab.rows(asked_by_name, earlier={name: [each.trial] for name, each in known.items()})
    everything = known | {str(each): each for each in asked}
    return [
        Tried(everything[name].network, everything[name].trial.config, outcome)
        for name, (outcome,) in found.items()
    ]


def _others(of: Try) -> list[tuple[str, Try]]:
    """The same network with every dropout and number of epochs that may have been run."""
    settings, found = of.trial.config, []
    for dropout in _DROPOUTS:
        for epochs in _EPOCHS:
            changed = replace(
                settings,
                model=replace(settings.model, dropout=dropout),
                run=replace(settings.run, epochs=epochs),
            )
            other = Try(of.network, replace(of.trial, config=changed))
            found.append((str(other), other))
    return found


def best_of(tried: Sequence[Tried]) -> dict[Network, Tried]:
    """Of each network the try that validation text prefers."""
    chosen: dict[Network, Tried] = {}
    for each in tried:
        rival = chosen.get(each.network)
        if rival is None or _rank(each) < _rank(rival):
            chosen[each.network] = each
    return chosen


def _rank(tried: Tried) -> float:
    found = tried.outcome.valid_perplexity
    return math.inf if math.isnan(found) else found


def table_of_tries(tried: Sequence[Tried]) -> list[Row]:
    """All tries, network by network."""
    return [
        each.figures()
        for network in dict.fromkeys(each.network for each in tried)
        for each in tried
        if each.network == network
    ]
