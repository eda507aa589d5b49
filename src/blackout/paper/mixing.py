"""Networks mixed with a 5-gram of the whole vocabulary, for table 1.

A trial leaves the log-probability of each word (:func:`blackout.trials.words.read_words`), the
5-gram's are found once for a corpus: from there on mixing needs neither the network nor the 5-gram,
and takes a second. So networks can be trained on a machine that never sees the 5-gram.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.mixture.arithmetic import Floats, fit_weights, mix_log_probs
from blackout.mixture.components import NGramComponent, Reference, Text
from blackout.ngram import NGram, train
from blackout.paper.lab import Corpus, Lab, short_hash
from blackout.perplexity import exp_mean
from blackout.text.prepared import Prepared, open_prepared
from blackout.trials.words import read_words, write_words

PARTS = ("valid", "test")


class Scored(NamedTuple):
    """What a 5-gram makes of the words of a text, and what a network with a shortlist lacks."""

    ngram: Floats
    """Natural log-probabilities."""
    shares: Floats
    """log of each word's share in the network's ``<unk>``; 0 for a word that it has."""


class Mixed(NamedTuple):
    """Test perplexities over all words, and the network's weight."""

    network: float
    ngram: float
    mixture: float
    weight: float


def five_gram(lab: Lab, corpus: Corpus) -> dict[str, Scored]:
    """What the 5-gram of a corpus, with all its words, makes of its texts; found once."""
    prepared = open_prepared(corpus.prepared, verify=False)
    sums = {part: shard.checksum for part, shard in prepared.shards.items()}
    name = f"5-gram-{short_hash({'vocabulary': prepared.vocab.hash, 'texts': sums})}.safetensors"
    path = lab.out / "cache" / "other" / name
    if not path.exists():
        make_folder(path.parent)
        found = _score(corpus, prepared, path.parent)
        write_words(path, {f"{p}_{n}": a for p, s in found.items() for n, a in s._asdict().items()})
    arrays = read_words(path)
    return {p: Scored(arrays[f"{p}_ngram"], arrays[f"{p}_shares"]) for p in PARTS}


def _score(corpus: Corpus, prepared: Prepared, place: Path) -> dict[str, Scored]:
    with tempfile.TemporaryDirectory(dir=place) as folder:  # the 5-gram may take gigabytes
        arpa = Path(folder) / "5-gram.arpa"
        train(corpus.files["train"], arpa)
        model = NGram.load(arpa)
        reference = Reference.of_ngram(model)
        strange = set(prepared.vocab.words) - set(reference.vocab.words)
        assert not strange, "the network's words are of the same text"
        shares = reference.log_shares(set(prepared.vocab.words), "unigram")
        component = NGramComponent("5-gram", model, reference)
        found = {}
        for part in PARTS:
            text = Text(corpus.files[part], Path(folder) / part, reference)
            make_folder(Path(folder) / part)
            logs = np.concatenate(list(component.pieces(text)))
            found[part] = Scored(logs, shares[text.tokens])
    return found


def mix(words: Path, scored: dict[str, Scored]) -> Mixed:
    """A network, by what it made of each word, with the 5-gram; the weight is validation text's."""
    own = read_words(words)
    if any(len(own.get(part, ())) != len(scored[part].ngram) for part in PARTS):
        raise UserError(f"{words}: has not the words of this corpus")
    both = {
        part: np.stack([own[part] + scored[part].shares, scored[part].ngram], 1) for part in PARTS
    }
    weights = fit_weights(both["valid"]).weights
    test = both["test"]
    network, ngram = (exp_mean(-float(logs.sum()), len(test)) for logs in test.T)
    mixed = exp_mean(-float(mix_log_probs(test, weights).sum()), len(test))
    return Mixed(network, ngram, mixed, float(weights[0]))
