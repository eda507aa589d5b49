"""The models of a server by their names: networks, n-grams, and each network mixed with the n-gram.

A name is that of a folder or file alone: answers say nothing about where things lie.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from blackout import losses
from blackout.mixture.arithmetic import Floats
from blackout.mixture.voices import Voice
from blackout.models.language_model import LanguageModel
from blackout.ngram import NGram
from blackout.run_folder import RunFolder
from blackout.serve.questions import Refusal
from blackout.train.metrics import read_metrics

__all__ = ["Shelf", "Shown", "nearest"]


@dataclass(frozen=True)
class Shown:
    """A model that people can ask: what it is, and its voice."""

    name: str
    kind: Literal["network", "n-gram", "mixture"]
    voice: Voice
    network: LanguageModel | None = None
    ngram: NGram | None = None

    def weights(self, network_share: float | None) -> Floats | None:
        """The weights of the models in it, where a question has its own."""
        if network_share is None:
            return None
        if self.kind != "mixture":
            raise Refusal(400, f"weight: {self.name} is not a mixture")
        return np.array([network_share, 1 - network_share])

    def about(self) -> dict[str, Any]:
        """What GET /v1/models says of it."""
        found: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "words": len(self.voice.vocab),
            "context": self.voice.context,
        }
        if self.network is not None:
            network, config = self.network, self.network.config
            found["network"] = {
                "cell": config.cell,
                "hidden": config.hidden,
                "layers": config.layers,
                "parameters": sum(p.numel() for p in network.parameters()),
                "loss": _loss_of(network),
            }
        if self.ngram is not None:
            found["n-gram"] = {"order": self.ngram.order, "ngrams": list(self.ngram.ngrams)}
        if self.kind == "mixture":
            found["weight"] = float(self.voice.weights[0])
        return found


def _loss_of(network: LanguageModel) -> str | None:
    if network.folder is None:
        return None
    return losses.find(RunFolder(network.folder).description().config.loss.loss).title


class Shelf:
    """Models in the order they were given; the first is the one meant where none is named."""

    def __init__(
        self,
        networks: Sequence[tuple[str, LanguageModel]],
        ngram: tuple[str, NGram] | None = None,
        weights: Sequence[float] = (),
    ) -> None:
        """``weights``: the share of each network in its mixture with the n-gram, else one half."""
        self._models: dict[str, Shown] = {}
        for name, network in networks:
            self._add(Shown(name, "network", Voice.of(name, [network]), network))
        if ngram is not None:
            self._add(Shown(ngram[0], "n-gram", Voice.of(ngram[0], [ngram[1]]), None, ngram[1]))
        for i, (name, network) in enumerate(networks if ngram is not None else ()):
            assert ngram is not None
            share = weights[i] if weights else 0.5
            both = f"{self.names[i]}+{ngram[0]}"
            voice = Voice.of(name, [network, ngram[1]], [share, 1 - share])
            self._add(Shown(both, "mixture", voice, network, ngram[1]))

    def _add(self, shown: Shown) -> None:
        name, number = shown.name, 1
        while name in self._models:  # two folders of one name
            number += 1
            name = f"{shown.name}-{number}"
        self._models[name] = dataclasses.replace(shown, name=name)

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def find(self, name: str) -> Shown:
        """The model of that name, the first for an empty one."""
        if not name:
            return next(iter(self._models.values()))
        if name not in self._models:
            known = ", ".join(self._models)
            raise Refusal(404, f"there is no model {name[:80]!r}; there are: {known}")
        return self._models[name]

    @cached_property
    def about(self) -> list[dict[str, Any]]:
        """What GET /v1/models says."""
        return [shown.about() for shown in self._models.values()]

    def curves(self, name: str) -> dict[str, Any]:
        """The epochs of the run that a network comes from, as far as its folder tells."""
        shown = self.find(name)
        folder = None if shown.network is None else shown.network.folder
        epochs: list[dict[str, Any]] = []
        if folder is not None and (metrics := RunFolder(folder).metrics).is_file():
            kept = ("epoch", "train_loss", "valid_perplexity", "words_per_second", "lr", "seconds")
            epochs = [
                {key: _finite(event[key]) for key in kept if key in event}
                for event in read_metrics(metrics)
                if event["event"] == "epoch"
            ]
        return {"model": shown.name, "epochs": epochs}

    def without_paths(self, text: str) -> str:
        """A message with the names of models where it has their places."""
        for shown in self._models.values():
            folder = None if shown.network is None else shown.network.folder
            file = None if shown.ngram is None else shown.ngram.path
            for place in (folder, file):
                if place is not None:
                    for path in (str(place.resolve()), str(place)):
                        # the place "." is in every sentence: a path stands by itself
                        alone = rf"(?<![\w./\\-]){re.escape(path)}(?![\w.-])"
                        text = place.resolve().name.join(re.split(alone, text))
        return text


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def nearest(model: LanguageModel, word: str, top: int) -> dict[str, Any]:
    """The words nearest to a word by the cosine of their vectors, in the input and output table.

    The output table is None where the layer has no vector for each word.
    """
    assert model.vocab is not None
    place = model.vocab.id(word)
    output = getattr(getattr(model.output, "table", None), "weight", None)
    if output is not None and len(output) != len(model.vocab):
        output = None
    return {
        "word": word,
        "count": int(model.vocab.counts[place]),
        "input": _near(model.embedding.weight, place, top, model),
        "output": None if output is None else _near(output, place, top, model),
    }


@torch.no_grad()
def _near(table: torch.Tensor, place: int, top: int, model: LanguageModel) -> list[dict[str, Any]]:
    assert model.vocab is not None
    wanted = table[place].float()
    wanted = wanted / wanted.norm().clamp_min(1e-30)
    cosines = torch.cat(
        [
            (rows.float() @ wanted) / rows.float().norm(dim=1).clamp_min(1e-30)
            for rows in table.split(1 << 14)
        ]
    )
    cosines[place] = -torch.inf
    best = cosines.topk(min(top, len(cosines) - 1))
    return [
        {"word": model.vocab.word(i), "cosine": round(c, 6)}
        for c, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
