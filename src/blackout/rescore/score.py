"""Rescoring n-best lists with a network, alone or mixed with an n-gram.

The total of a hypothesis W is

    am_weight · acoustic + lm_weight · lm + old_lm_weight · old_lm - word_penalty · |W|

in natural logarithms, where lm = Σ log P(w | the words before it), sentence end included, less
``oov_penalty`` for each unknown word, and P = λ P_network + (1 - λ) P_ngram with ``weight`` = λ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from blackout.errors import UserError
from blackout.mixture.arithmetic import mix_log_probs
from blackout.mixture.components import NetworkComponent, Reference
from blackout.models.language_model import LanguageModel
from blackout.ngram import NGram
from blackout.rescore.nbest import Hypothesis, NBest
from blackout.rescore.prefixes import Event, SentenceScores, score_sentences
from blackout.rescore.weights import Weights
from blackout.score.unnormalised import ScoreErrors
from blackout.text.vocab import EOS_WORD, UNK

__all__ = ["ScoredLists", "rescore", "score_lists", "set_scores"]

IMPOSSIBLE = -1e30  # stands for log 0, which a mixture without the network can give: 0 · -∞ is NaN


@dataclass
class ScoredLists:
    """All that totals are made of; hypotheses are numbered through all utterances."""

    acoustic: np.ndarray  # (N,), natural logarithms like all scores
    old_lm: np.ndarray  # (N,)
    words: np.ndarray  # (N,), how many
    unknown: np.ndarray  # (N,), how many
    first: np.ndarray  # (U + 1,), the hypotheses of utterance i are first[i] … first[i + 1] - 1
    starts: np.ndarray  # (N,), where the tokens of each hypothesis begin
    network: np.ndarray  # (tokens,), log-probabilities
    ngram: np.ndarray | None  # (tokens,)
    prefixes: int
    """Distinct prefixes that the network has read."""
    pairs: int
    """Distinct prefixes with their next word."""
    errors: ScoreErrors | None = None
    """How far scores without the sum over the vocabulary are off, in some of the pairs."""
    _sums: dict[float, np.ndarray] = field(default_factory=dict, repr=False)

    def language(self, weights: Weights) -> np.ndarray:
        """The new language model scores, (N,)."""
        weight = 1.0 if self.ngram is None else weights.weight
        if weight not in self._sums:  # tuning asks for the same again and again
            self._sums[weight] = np.add.reduceat(self._tokens(weight), self.starts)
        scores = self._sums[weight] - weights.oov_penalty * self.unknown
        return np.maximum(scores, IMPOSSIBLE)

    def _tokens(self, weight: float) -> np.ndarray:
        if self.ngram is None:
            return self.network
        return mix_log_probs(np.stack([self.network, self.ngram], 1), [weight, 1 - weight])

    def totals(self, weights: Weights) -> np.ndarray:
        """The totals, (N,)."""
        return (
            weights.am_weight * self.acoustic
            + weights.lm_weight * self.language(weights)
            + weights.old_lm_weight * self.old_lm
            - weights.word_penalty * self.words
        )

    def best(self, totals: np.ndarray) -> np.ndarray:
        """The hypothesis with the highest total of each utterance, (U,); the first of equals."""
        highest = np.maximum.reduceat(totals, self.first[:-1])
        winners = np.flatnonzero(totals == np.repeat(highest, np.diff(self.first)))
        owner = np.searchsorted(self.first, winners, side="right") - 1
        return winners[np.unique(owner, return_index=True)[1]]


def rescore(
    model: LanguageModel,
    nbest: NBest,
    weights: Weights | None = None,
    ngram: NGram | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ScoredLists:
    """Gives every hypothesis its new ``lm`` and its ``total``.

    >>> from blackout.config import Config
    >>> from blackout.rescore.nbest import Utterance
    >>> from blackout.models.saved import new_model
    >>> from blackout.text.vocab import Vocab
    >>> vocab = Vocab.from_counts({"</s>": 2, "the": 2, "cat": 1, "sat": 1})
    >>> model = new_model(Config.from_dict({"model": {"hidden": 8}}), vocab)
    >>> texts = [("the", "cat"), ("the", "mat")]
    >>> lists = [Utterance("a", [Hypothesis(" ".join(words), words) for words in texts])]
    >>> scored = rescore(model, NBest("jsonl", 1.0, lists))
    >>> scored.unknown.tolist(), scored.prefixes
    ([0, 1], 4)
    """
    scored = score_lists(model, nbest, ngram, progress=progress)
    set_scores(nbest, scored, weights or Weights())
    return scored


def set_scores(nbest: NBest, scored: ScoredLists, weights: Weights) -> None:
    """Writes the new scores into the hypotheses."""
    language, totals = scored.language(weights).tolist(), scored.totals(weights).tolist()
    for hypothesis, lm, total in zip(nbest.hypotheses, language, totals, strict=True):
        hypothesis.lm, hypothesis.total = lm, total


def score_lists(
    model: LanguageModel,
    nbest: NBest,
    ngram: NGram | None = None,
    *,
    unnormalised: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ScoredLists:
    """Scores all hypotheses; each begins a sentence, also where the model reads a stream.

    ``unnormalised``: without the sum over the vocabulary, of a model that normalises itself.
    """
    if unnormalised and ngram is not None:
        raise UserError("unnormalised: a mixture with an n-gram needs probabilities")
    if model.vocab is None:
        raise ValueError("the model has no vocabulary")
    hypotheses = list(nbest.hypotheses)
    words, tokens, offsets = _number_words(hypotheses)
    ids = np.array(model.vocab.ids(words), np.int64)
    ngram_logs = None
    if ngram is None:
        result = score_sentences(
            model, ids[tokens], offsets, unnormalised=unnormalised, progress=progress
        )
        network, is_unknown = result.log_probs, ids == UNK
    else:
        bridge = _Bridge(model, ngram, words)
        result = score_sentences(model, ids[tokens], offsets, event=bridge.event, progress=progress)
        network, is_unknown = bridge.network(result, tokens), bridge.is_unknown
        ngram_logs = bridge.ngram(tokens)
    return ScoredLists(
        acoustic=np.array([h.acoustic for h in hypotheses]),
        old_lm=np.array([h.lm for h in hypotheses]),
        words=np.diff(offsets) - 1,
        unknown=np.add.reduceat(is_unknown[tokens], offsets[:-1], dtype=np.int64),
        first=np.cumsum([0] + [len(utterance.hypotheses) for utterance in nbest.utterances]),
        starts=offsets[:-1],
        network=network,
        ngram=ngram_logs,
        prefixes=result.prefixes,
        pairs=result.pairs,
        errors=result.errors,
    )


class _Bridge:
    """A network's probabilities of words over the n-gram's vocabulary, as ``blackout mix`` has it.

    The network's ``<unk>`` is spread over the words that it lacks; what it gives to words that the
    n-gram lacks counts for the n-gram's ``<unk>``.
    """

    def __init__(self, model: LanguageModel, ngram: NGram, words: list[str]) -> None:
        assert model.vocab is not None
        reference, own = Reference.of_ngram(ngram), model.vocab.words
        places = np.array(reference.vocab.ids(words), np.int64)
        self.is_unknown = places == UNK
        self._log_share = reference.log_shares(set(own), "unigram")[places]
        self._model, self._ids = ngram, ngram.ids(words)
        self.event: Event | None = None
        lacking = np.array(reference.vocab.ids(own)) == UNK  # <unk> is always among them
        if lacking.sum() > 1:
            component = NetworkComponent("the network", model, reference)
            self.event = Event(lacking, component.log_unknown)

    def network(self, scores: SentenceScores, tokens: np.ndarray) -> np.ndarray:
        """Natural log-probabilities of the tokens by the network."""
        logs = scores.log_probs + self._log_share[tokens]
        if scores.events is not None:
            logs = np.where(self.is_unknown[tokens], scores.events, logs)
        return logs

    def ngram(self, tokens: np.ndarray) -> np.ndarray:
        """… and by the n-gram."""
        return self._model.score_tokens(self._ids[tokens]).astype(np.float64) * math.log(10)


def _number_words(hypotheses: list[Hypothesis]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The distinct words, the hypotheses as numbers of them, and where each begins and ends."""
    number = {EOS_WORD: 0}
    tokens: list[int] = []
    for hypothesis in hypotheses:
        tokens += [number.setdefault(word, len(number)) for word in hypothesis.words]
        tokens.append(0)
    lengths = np.array([0] + [len(h.words) + 1 for h in hypotheses], np.int64)
    return list(number), np.array(tokens, np.int64), np.cumsum(lengths)
