"""Networks mixed with a 5-gram of the whole vocabulary, for table 1."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from blackout.mixture.mixture import Mixture
from blackout.models import load
from blackout.ngram import NGram, train
from blackout.paper.lab import Corpus, Lab
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
    network, ngram = load(model, device="auto"), _load_ngram(ngram_path)
    mixture = Mixture([("network", network), ("5-gram", ngram)])
    fit, _ = mixture.tune(corpus.files["valid"])
    test = mixture.evaluate(corpus.files["test"], fit.weights)
    network_alone, ngram_alone = test.component_perplexities
    return {
        "network": network_alone,
        "ngram": ngram_alone,
        "mixture": test.perplexity,
        "weight": float(fit.weights[0]),
    }
