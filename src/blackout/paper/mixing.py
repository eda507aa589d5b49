"""Networks mixed with a 5-gram of the whole vocabulary, for table 1."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from blackout.mixture.components import NetworkComponent, NGramComponent, Reference, Text
from blackout.mixture.evaluate import Component, Part, evaluate, tune
from blackout.models import load
from blackout.ngram import NGram, train
from blackout.paper.lab import Corpus, Lab
from blackout.runtime import choose_device
from blackout.text.prepared import open_prepared
from blackout.trials.trials import Outcome


def five_gram(lab: Lab, corpus: Corpus) -> Path:
    """The 5-gram of a corpus with all its words, estimated once."""
    path = lab.out / "cache" / f"5-gram-{corpus.name}.arpa"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        train(corpus.files["train"], path)
    return path


def mix_with(lab: Lab, outcome: Outcome, corpus: Corpus, ngram: Path) -> dict[str, Any]:
    """Test perplexities of network, 5-gram and mixture over all words, and the network's weight."""
    assert outcome.model is not None
    model = outcome.model
    text = open_prepared(corpus.prepared, verify=False)
    about = {
        "mixture": model.name,  # its folder is named by what decides the model
        "valid": text.shard("valid").source.checksum,
        "test": text.shard("test").source.checksum,
    }
    return lab.remember(about, lambda: _mix(model, corpus, ngram))


@functools.cache
def _load_ngram(path: Path) -> NGram:
    return NGram.load(path)  # which takes a while


def _mix(model: Path, corpus: Corpus, ngram_path: Path) -> dict[str, Any]:
    ngram, network = _load_ngram(ngram_path), load(model, device=str(choose_device("auto")))
    reference = Reference.of_ngram(ngram)
    components: list[Component] = [
        NetworkComponent("network", network, reference),
        NGramComponent("5-gram", ngram, reference),
    ]
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for name in ("valid", "test"):
            shards = Path(folder) / name
            shards.mkdir()
            parts.append(Part(components, [], Text(corpus.files[name], shards, reference)))
        fit, _ = tune(parts[0])
        test = evaluate(parts[1], fit.weights)
    network_alone, ngram_alone = test.component_perplexities
    return {
        "network": network_alone,
        "ngram": ngram_alone,
        "mixture": test.perplexity,
        "weight": float(fit.weights[0]),
    }
