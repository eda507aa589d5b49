"""What a mixture is made of: networks, n-grams and per-word dumps, over one vocabulary.

The mixture speaks of the words of one reference vocabulary, that of the n-gram: its words,
``</s>`` and its ``<unk>``, one event for all words that it does not know. A network with a
shortlist of these words has its ``<unk>`` probability spread over the words outside the shortlist
(the reference's ``<unk>`` among them), and what it gives to words that the reference does not
know counts for the reference's ``<unk>``: so each component, and hence the mixture, sums to 1
over the reference vocabulary.

The reference is the n-gram with the most words, or without an n-gram the network with the most.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from blackout.config import ReadingConfig
from blackout.errors import UserError
from blackout.mixture.arithmetic import Floats, spread_unknown
from blackout.models.language_model import LanguageModel
from blackout.ngram import NGram
from blackout.score.perplexity import log_probabilities
from blackout.text.corpus import encode_file
from blackout.text.shards import Shard
from blackout.text.vocab import EOS_WORD, UNK, UNK_WORD, Vocab

__all__ = [
    "NGramComponent",
    "NetworkComponent",
    "Reference",
    "Text",
    "Unknown",
    "choose_reference",
]

Unknown = Literal["unigram", "uniform"]

_TOKENS = 1 << 16  # scored at a time
_LOGITS = 1 << 24  # held at a time


@dataclass(frozen=True, eq=False)
class Reference:
    """The vocabulary a mixture sums to 1 over, and how probable its words are by themselves."""

    vocab: Vocab
    unigram: Floats

    @classmethod
    def of_ngram(cls, model: NGram) -> Reference:
        special = (EOS_WORD, UNK_WORD, "<s>")
        ids = [i for i, w in enumerate(model.vocab) if w not in special and i != model.unk]
        words = [EOS_WORD, UNK_WORD, *(model.vocab[i] for i in ids)]
        places = np.array([model.ids([EOS_WORD])[0], model.unk, *ids])
        unigram = model.prob_all([])[places]
        return cls(Vocab(words, np.zeros(len(words), np.uint64)), unigram)

    @classmethod
    def of_network(cls, model: LanguageModel) -> Reference:
        vocab = _vocab_of(model)
        counts = np.maximum(vocab.counts.astype(np.float64), 1)
        return cls(vocab, counts / counts.sum())

    def log_shares(self, own: Collection[str], how: Unknown) -> Floats:
        """log share of each word in the ``<unk>`` of a model with these words; 0 for its own."""
        missing = np.array([word not in own for word in self.vocab.words])
        missing[UNK] = True
        return np.where(missing, spread_unknown(self.unigram, missing, how), 0.0)


def choose_reference(networks: Sequence[LanguageModel], ngrams: Sequence[NGram]) -> Reference:
    """The reference vocabulary of a mixture of these models."""
    if ngrams:
        return Reference.of_ngram(max(ngrams, key=len))
    return Reference.of_network(max(networks, key=lambda model: len(_vocab_of(model))))


class Text:
    """A text file, encoded with one vocabulary after another; shards go into ``folder``."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        reference: Reference,
        config: ReadingConfig | None = None,
        threads: int = 0,
    ) -> None:
        self.path, self.reference = path, reference
        self._folder, self._config, self._threads = folder, config, threads
        self._shards: dict[str, Shard] = {}

    def shard(self, vocab: Vocab) -> Shard:
        """The text in the numbers of a vocabulary."""
        if vocab.hash not in self._shards:
            place = self._folder / f"{len(self._shards)}.shard"
            self._shards[vocab.hash] = encode_file(
                self.path, vocab, self._config, place, self._threads
            )
        return self._shards[vocab.hash]

    @property
    def tokens(self) -> np.ndarray:
        """The words in the numbers of the reference vocabulary."""
        return self.shard(self.reference.vocab).tokens

    def words(self) -> Iterator[list[str]]:
        """The words as the reference vocabulary knows them, some at a time."""
        names = self.reference.vocab.words
        for start in range(0, len(self.tokens), _TOKENS):
            yield [names[i] for i in self.tokens[start : start + _TOKENS].tolist()]


class NGramComponent:
    """An n-gram over the reference vocabulary; its own vocabulary may be a part of it."""

    kind = "n-gram"

    def __init__(
        self, name: str, model: NGram, reference: Reference, how: Unknown = "unigram"
    ) -> None:
        self.name, self.model = name, model
        words = reference.vocab.words
        own = {word for i, word in enumerate(model.vocab) if i != model.unk}
        strange = own - set(words) - {"<s>"}
        if strange:
            raise UserError(
                f"{name}: has the word {min(strange)!r}, which the mixture's vocabulary, "
                f"that of the n-gram with the most words, has not"
            )
        self._ids = model.ids(words)  # of the reference's words
        self._log_share = reference.log_shares(own, how)

    def log_probs(self, context: Sequence[str]) -> Floats:
        """Natural log-probabilities of all words of the reference after a context.

        Where it begins with ``</s>`` a sentence has begun there.
        """
        bos = bool(context) and context[0] == EOS_WORD
        ids = self.model.ids(context[1:] if bos else context)
        logs = self.model.score_next(ids, bos=bos)[self._ids] * math.log(10)
        return np.asarray(logs + self._log_share)

    def pieces(self, text: Text) -> Iterator[Floats]:
        """Natural log-probabilities of the words of a text, in its order."""
        tokens, context = text.tokens, self.model.order - 1
        for start in range(0, len(tokens), _TOKENS):
            # enough words in front that each word's context is whole
            begin = max(0, start - context)
            piece = tokens[begin : start + _TOKENS]
            scores = self.model.score_tokens(self._ids[piece])[start - begin :]
            logs = scores.astype(np.float64) * math.log(10)
            yield logs + self._log_share[piece[start - begin :]]


class NetworkComponent:
    """A network whose words outside the reference, and whose ``<unk>``, are put to rights."""

    kind = "network"

    def __init__(
        self, name: str, model: LanguageModel, reference: Reference, how: Unknown = "unigram"
    ) -> None:
        self.name, self.model = name, model.eval()
        self.vocab = _vocab_of(model)
        self._log_share = reference.log_shares(set(self.vocab.words), how)
        self._places = np.array(self.vocab.ids(reference.vocab.words))
        known = set(reference.vocab.words)
        self._extra = [i for i, word in enumerate(self.vocab.words) if word not in known]

    def pieces(self, text: Text) -> Iterator[Floats]:
        """Natural log-probabilities of the words of a text, in its order."""
        shard, position = text.shard(self.vocab), 0
        unknown = self._unknown_pieces(shard)
        for own, logs in log_probabilities(self.model, shard):
            reference = text.tokens[position : position + len(own)]
            position += len(own)
            logs = logs + self._log_share[reference]
            if self._extra:
                logs = np.where(reference == UNK, next(unknown), logs)
            yield logs

    def log_probs(self, own: Floats) -> Floats:
        """Log-probabilities (n, V) of the network's own words, over those of the reference."""
        logs = own[:, self._places] + self._log_share
        if self._extra:
            words, shares = (part.cpu().numpy() for part in self._unknown_words)
            logs[:, UNK] = np.logaddexp.reduce(own[:, words] + shares, axis=1)
        return logs

    def _unknown_pieces(self, shard: Shard) -> Iterator[Floats]:
        """log P of the reference's ``<unk>``, at the words that may be it."""
        for _, logs in log_probabilities(self.model, shard, self._score_unknown):
            yield logs

    def _score_unknown(self, hidden: Tensor, targets: Tensor, history: Tensor | None) -> Tensor:
        result = torch.full(targets.shape, -math.inf, dtype=torch.float64, device=targets.device)
        rows = torch.isin(targets, self._unknown_words[0]).nonzero()[:, 0]
        for some in rows.split(max(1, _LOGITS // len(self.vocab))):
            result[some] = self.log_unknown(
                hidden[some], None if history is None else history[some]
            )
        return result

    def log_unknown(self, hidden: Tensor, history: Tensor | None = None) -> Tensor:
        """log of what the network gives the reference's ``<unk>``, after hidden states (n, h).

        Its share of the network's own ``<unk>``, and all of each word the reference lacks.
        """
        words, log_shares = self._unknown_words
        logs = self.model.output.log_prob(hidden, history=history)[:, words].double()
        return torch.logsumexp(logs + log_shares, 1)

    @cached_property
    def _unknown_words(self) -> tuple[Tensor, Tensor]:
        device = self.model.device
        words = torch.tensor([UNK, *self._extra], device=device)
        log_shares = torch.zeros(len(words), dtype=torch.float64, device=device)
        log_shares[0] = self._log_share[UNK]
        return words, log_shares


def _vocab_of(model: LanguageModel) -> Vocab:
    if model.vocab is None:
        raise ValueError("the network has no vocabulary: it was not made for a text")
    return model.vocab
