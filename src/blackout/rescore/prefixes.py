"""Exact log-probabilities of many sentences that begin alike: each distinct prefix is read once.

The sentences of a batch form a tree of prefixes. It is walked level by level: all distinct
prefixes of t words are one step of the network, whose states come from their parents'; the sum
over the vocabulary is made once for each of them, however many words follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from blackout.models.language_model import LanguageModel, Reading
from blackout.models.state import State
from blackout.score.checked import checked
from blackout.score.unnormalised import ScoreErrors
from blackout.text.vocab import EOS

_SENTENCES = 1 << 14  # at most, walked together …
_STATE_BYTES = 1 << 28  # … as many as have their states in this
_ROWS = 1 << 13  # prefixes whose sums over the vocabulary are made together
_EVENT_ROWS = 1 << 8
_CHECKED = 1 << 10  # pairs whose exact scores are made beside unnormalised ones


@dataclass(frozen=True)
class SentenceScores:
    """Natural log-probabilities of the words and sentence ends, and what they took."""

    log_probs: np.ndarray  # (tokens,), float64
    prefixes: int
    """Distinct prefixes: steps of the network, and sums over the vocabulary."""
    pairs: int
    """Distinct prefixes with their next word."""
    events: np.ndarray | None = None
    """What :class:`Event` gives where the word is one of its own, -∞ elsewhere."""
    errors: ScoreErrors | None = None
    """How far scores without the sum over the vocabulary are off, in some of the pairs."""


@dataclass(frozen=True)
class Event:
    """Something else that may be asked wherever one of these words stands."""

    words: np.ndarray  # (V,), bool
    log_prob: Callable[[Tensor, Tensor | None], Tensor]
    """Its log-probability after hidden states (n, h) with their histories (n, k) or None; n times V
    numbers must fit into memory."""


class _Level(NamedTuple):
    """Prefixes of one length in a batch, and the words that follow them."""

    read: Reading  # of M prefixes
    row: np.ndarray  # (P,), the prefix of each distinct pair
    word: np.ndarray  # (P,)
    place: np.ndarray  # (N,), tokens of the text …
    pair: np.ndarray  # (N,), … and which pair each of them is


def score_sentences(
    model: LanguageModel,
    tokens: np.ndarray,
    offsets: np.ndarray,
    *,
    event: Event | None = None,
    unnormalised: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SentenceScores:
    """Scores sentences, each from the model's initial state, whatever its ``context``.

    ``tokens`` are word numbers; sentence i is ``tokens[offsets[i] : offsets[i + 1]]``, its last
    token, and no other, being the sentence end. ``unnormalised``: without the sum over the
    vocabulary. ``progress`` is called with the tokens done and all tokens.

    >>> from blackout.config import Config
    >>> from blackout.models import build_model
    >>> model = build_model(Config.from_dict({"model": {"hidden": 8}}), counts=[4, 1, 3, 2, 1])
    >>> scores = score_sentences(model, np.array([2, 3, 0, 2, 4, 0]), np.array([0, 3, 6]))
    >>> scores.log_probs.shape, scores.prefixes, scores.pairs  # "2" is shared
    ((6,), 4, 5)
    """
    log_probs = np.empty(len(tokens), np.float64)
    events = None if event is None else np.full(len(tokens), -np.inf)
    prefixes = pairs = 0
    errors = ScoreErrors() if unnormalised else None
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for first, last in _batches(model, len(offsets) - 1):
                for levels in _gather(_walk(model, tokens, offsets[first : last + 1])):
                    prefixes += sum(len(level.read.hidden) for level in levels)
                    pairs += sum(len(level.word) for level in levels)
                    _score(model, levels, log_probs, errors)
                    if event is not None and events is not None:
                        _score_event(model, event, levels, events)
                if progress is not None:
                    progress(int(offsets[last]), len(tokens))
    finally:
        model.train(was_training)
    return SentenceScores(log_probs, prefixes, pairs, events, errors)


def _batches(model: LanguageModel, sentences: int) -> Iterator[tuple[int, int]]:
    state = model.initial_state(1)
    size = max(64, min(_SENTENCES, _STATE_BYTES // state.layers.nbytes))
    for first in range(0, sentences, size):
        yield first, min(first + size, sentences)


def _walk(model: LanguageModel, tokens: np.ndarray, offsets: np.ndarray) -> Iterator[_Level]:
    """The levels of the prefix tree of a batch of sentences."""
    size = np.int64(model.output.n_classes)
    place = offsets[:-1].astype(np.int64)  # the next token of each sentence that goes on
    node = np.zeros(len(place), np.int64)  # its prefix, numbered within the level
    read = _step(model, np.array([EOS]), model.initial_state(1))
    while True:
        words = tokens[place].astype(np.int64)
        distinct, pair = np.unique(node * size + words, return_inverse=True)
        row, word = np.divmod(distinct, size)
        yield _Level(read, row, word, place, pair)
        grows = word != EOS
        if not grows.any():
            return
        child = np.cumsum(grows) - 1
        goes_on = words != EOS
        place, node = place[goes_on] + 1, child[pair[goes_on]]
        parent = torch.from_numpy(row[grows]).to(model.device)
        read = _step(model, word[grows], read.state.of_streams(parent))


def _step(model: LanguageModel, words: np.ndarray, state: State) -> Reading:
    return model.read_word(torch.from_numpy(words).to(model.device), state)


def _gather(levels: Iterator[_Level]) -> Iterator[list[_Level]]:
    """Levels in groups of at least _ROWS prefixes: a product wants many rows."""
    group: list[_Level] = []
    rows = 0
    for level in levels:
        group.append(level)
        rows += len(level.read.hidden)
        if rows >= _ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _score(
    model: LanguageModel, levels: list[_Level], log_probs: np.ndarray, errors: ScoreErrors | None
) -> None:
    """The exact scores, or where ``errors`` are counted those without the sum."""
    hidden = torch.cat([level.read.hidden for level in levels])
    histories = [level.read.history for level in levels if level.read.history is not None]
    first = np.cumsum([0] + [len(level.read.hidden) for level in levels])
    row = np.concatenate([level.row + start for level, start in zip(levels, first, strict=False)])
    word = np.concatenate([level.word for level in levels])
    past = torch.cat(histories) if histories else None

    def scored(score: Callable[..., Tensor], pairs: slice) -> np.ndarray:
        rows, words = (torch.from_numpy(part[pairs]).to(hidden.device) for part in (row, word))
        found: np.ndarray = score(hidden, rows, words, past).double().cpu().numpy()
        return found

    if errors is None:
        values = checked(scored(model.output.pair_log_prob, slice(None)), model)
    else:
        values = scored(model.output.unnormalised_log_prob, slice(None))
        left = slice(0, max(0, _CHECKED - errors.words))
        errors.add(values[left], scored(_of_few(model.output.pair_log_prob), left))
    end = 0
    for level in levels:
        start, end = end, end + len(level.word)
        log_probs[level.place] = values[start:end][level.pair]


def _of_few(score: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same scores, of the states that are asked for alone."""

    def of(hidden: Tensor, rows: Tensor, words: Tensor, history: Tensor | None) -> Tensor:
        return score(hidden[rows], None, words, None if history is None else history[rows])

    return of


def _score_event(
    model: LanguageModel, event: Event, levels: list[_Level], events: np.ndarray
) -> None:
    for level in levels:
        asked = event.words[level.word]
        rows = np.unique(level.row[asked])  # the answer is the same for all words of a prefix
        hidden, history, _ = level.read
        answers = np.full(len(hidden), -np.inf)
        for start in range(0, len(rows), _EVENT_ROWS):
            some = rows[start : start + _EVENT_ROWS]
            index = torch.from_numpy(some).to(hidden.device)
            logs = event.log_prob(hidden[index], None if history is None else history[index])
            values = logs.double().cpu().numpy()
            answers[some] = checked(values, model, may_be_impossible=True)
        values = np.where(asked, answers[level.row], -np.inf)
        events[level.place] = values[level.pair]
