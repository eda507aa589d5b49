"""The networks and texts on which the default settings are tried: what the three studies share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from blackout.config import Cell, Config, TextConfig
from blackout.paper.finding import counted
from blackout.paper.lab import Corpus, Lab
from blackout.trials.trials import Outcome, Trial


@dataclass(frozen=True)
class Text:
    """A text, or its beginning, and what suits it."""

    corpus: str
    config: TextConfig
    lines: int | None = None
    """Of training text; None: all."""
    valid_lines: int | None = None
    samples: int = 500
    batch: int = 128
    bptt: int = 20
    epochs: int = 1


TEXTS = {
    "rnnlm-small": Text("rnnlm-small", TextConfig(), samples=50, batch=8, bptt=15, epochs=10),
    "WikiText-2": Text("wikitext-2", TextConfig(), 20_000, 1_000),
    "Wikipedia, a quarter": Text("enwiki", TextConfig(vocab_size=64_000), 230_000, 1_500),
    "Wikipedia": Text("enwiki", TextConfig(), None, 1_500, samples=2000, batch=1024),
}


@dataclass(frozen=True)
class Case:
    """A network and a loss, on a text."""

    text: str
    cell: Cell
    hidden: int
    layers: int = 1
    loss: str = "blackout"
    batch: int | None = None
    """None: what suits the text."""
    epochs: int | None = None
    """None: what suits the text."""

    @property
    def passes(self) -> int:
        """Epochs."""
        return self.epochs or TEXTS[self.text].epochs

    @property
    def words(self) -> int:
        """B·T, the words of a block."""
        text = TEXTS[self.text]
        return (self.batch or text.batch) * text.bptt

    def __str__(self) -> str:
        epochs = counted(self.passes, "epoch")
        return f"{self.text}, {self.network}, {self.loss}, {self.words:,}, {epochs}"

    @property
    def network(self) -> str:
        return f"{self.cell} {self.layers} × {self.hidden:,}"


def open_texts(lab: Lab, cases: Iterable[Case]) -> dict[str, Corpus]:
    """The texts of these cases, prepared."""
    names = {case.text for case in cases}
    return {
        name: lab.corpus(text.corpus, text.config, text.lines, text.valid_lines)
        for name, text in TEXTS.items()
        if name in names
    }


def trial(
    lab: Lab,
    corpora: dict[str, Corpus],
    case: Case,
    lr: float = 1.0,
    seed: int = 1,
    schedule: str | None = None,
) -> Trial:
    """The training of a case; one that fails is an outcome like any other."""
    text = TEXTS[case.text]
    config = Config.from_dict(
        {
            "model": {"cell": case.cell, "hidden": case.hidden, "layers": case.layers},
            "loss": {"loss": case.loss}
            | ({} if case.loss == "full" else {"samples": 20 if lab.quick else text.samples}),
            "optim": {"lr": lr} | ({} if schedule is None else {"schedule": schedule}),
            "run": {
                "batch": case.batch or text.batch,
                "bptt": text.bptt,
                "epochs": 1 if lab.quick else case.passes,
                "precision": "bf16",
                "seed": seed,
                # Blocks of 120 words are no work for a GPU.
                "device": "cpu" if text.batch < 32 else "auto",
                "epoch_checkpoints": False,
            },
        }
    )
    return Trial(config, corpora[case.text].prepared, measure=(), may_diverge=True)


def perplexity(outcome: Outcome) -> float:
    """Of validation text; infinite for a run that failed."""
    return math.inf if outcome.failure else outcome.valid_perplexity


def shown(value: float) -> float | None:
    """A perplexity for a table."""
    return None if math.isinf(value) else value
