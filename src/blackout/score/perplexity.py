"""Exact perplexity: the full softmax over V, whatever the training loss was.

Sentences of similar length are scored side by side; the vocabulary is gone through in tiles; a
words × V matrix never exists. With ``context = "stream"`` the text is one stream, from its first
word to its last, as the model reads it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import numpy as np
import torch
from torch import Tensor

from blackout.models.language_model import LanguageModel
from blackout.perplexity import Perplexity
from blackout.score.checked import checked
from blackout.text.shards import Shard
from blackout.text.streams import columns_of
from blackout.text.vocab import EOS, UNK

_CHUNK = 1 << 16  # tokens read and put in order together
_BATCH = 1 << 13  # tokens scored together, padding included
_ON_GPU = 4  # times as many there: a step of few streams is done before the next is launched
_STREAM_STEPS = 1 << 10  # time steps of a stream scored together


Score = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def scored_at_once(device: torch.device) -> int:
    """How many words, padding included, are scored together on that device."""
    return _BATCH * _times(device)


def _times(device: torch.device) -> int:
    return _ON_GPU if device.type == "cuda" else 1


def evaluate(
    model: LanguageModel,
    shard: Shard,
    *,
    dump: IO[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    watch: Callable[[np.ndarray], None] | None = None,
) -> Perplexity:
    """Perplexity of a text; ``dump`` takes a line "word<TAB>log10-probability" for each word.

    ``watch`` sees the log-probabilities of each piece of the text; its time is not counted.
    """
    started = time.perf_counter()
    total = unknown_total = 0.0
    done = 0
    for tokens, log_probs in log_probabilities(model, shard):
        total += float(log_probs.sum())
        unknown_total += float(log_probs[tokens == UNK].sum())
        done += len(tokens)
        if watch is not None:
            begun = time.perf_counter()
            watch(log_probs)
            started += time.perf_counter() - begun
        if dump is not None:
            assert model.vocab is not None
            for token, value in zip(tokens.tolist(), log_probs.tolist(), strict=True):
                dump.write(f"{model.vocab.word(token)}\t{value / math.log(10):.7g}\n")
        if progress is not None:
            progress(done, len(shard.tokens))
    seconds = time.perf_counter() - started
    return Perplexity.of(total, unknown_total, done, shard.sentences, shard.unknown, seconds)


@torch.no_grad()  # as a decorator it lets go whenever a piece is handed out; `with` would not
def log_probabilities(
    model: LanguageModel, shard: Shard, score: Score | None = None, *, normalised: bool = True
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pieces (tokens, natural log-probabilities in float64) of a text, in its order.

    ``score`` takes hidden states (n, h), target words (n,) and their histories (n, k) or None, and
    gives the log-probability (n,) wanted of each, -∞ where there is none; by default that of the
    target. ``normalised``: whether these are log-probabilities, so that one above 0 is an error.
    """
    was_training = model.training
    model.eval()
    asked = score or model.output.target_log_prob
    if model.config.context == "stream":
        pieces = _score_stream(model, shard.tokens, asked)
    else:
        pieces = _score_sentences(model, shard, asked)
    try:
        for tokens, values in pieces:
            if normalised:
                values = checked(values, model, may_be_impossible=score is not None)
            yield tokens, values
    finally:
        model.train(was_training)


def _score_stream(
    model: LanguageModel, text: np.ndarray, score: Score
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One word after another, in pieces of time steps: any length in the same memory."""
    state = model.initial_state(1)
    previous = np.array([EOS], dtype=np.int64)
    for start in range(0, len(text), _STREAM_STEPS):
        tokens = text[start : start + _STREAM_STEPS].astype(np.int64)
        inputs = np.concatenate([previous, tokens[:-1]])
        read = model.read(torch.from_numpy(inputs)[:, None].to(model.device), state)
        targets = torch.from_numpy(tokens).to(model.device)
        history = None if read.history is None else read.history[:, 0]
        # every rank reads the stream, and scores its piece of it
        own = slice(*columns_of(len(tokens), model.ranks.rank, model.ranks.size))
        found = score(read.hidden[own, 0], targets[own], None if history is None else history[own])
        yield tokens, np.concatenate(_of_ranks(model, found, np.ones((1, len(tokens)), bool)))
        state = read.state
        previous = tokens[-1:]


def _score_sentences(
    model: LanguageModel, shard: Shard, score: Score
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    chunk = _times(model.device) * _CHUNK
    for first, last in _sentence_chunks(shard.offsets, chunk):
        start, end = int(shard.offsets[first]), int(shard.offsets[last])
        if end - start > chunk:  # a single sentence
            yield from _score_stream(model, shard.tokens[start:end], score)
            continue
        tokens = shard.tokens[start:end].astype(np.int64)
        offsets = shard.offsets[first : last + 1].astype(np.int64) - start
        scores = np.empty(len(tokens), dtype=np.float64)
        lengths = np.diff(offsets)
        order = np.argsort(lengths, kind="stable")
        for batch in _batches(order, lengths, scored_at_once(model.device)):
            place = _positions(offsets[batch], lengths[batch])  # (L, n), -1 where padded
            filled = place >= 0
            scores[place[filled]] = _score_batch(model, tokens[place], filled, score)
        yield tokens, scores


def _sentence_chunks(offsets: np.ndarray, tokens: int) -> Iterator[tuple[int, int]]:
    """Ranges of sentences with about so many tokens, at least one sentence each."""
    first, sentences = 0, len(offsets) - 1
    while first < sentences:
        # Of the offsets' own type: searchsorted would convert them all for another.
        limit = offsets[first] + offsets.dtype.type(tokens)
        last = max(first + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
        yield first, last
        first = last


def _batches(order: np.ndarray, lengths: np.ndarray, places: int) -> Iterator[np.ndarray]:
    """Groups of sentences, ascending by length, with at most so many places after padding."""
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and lengths[order[end]] * (end + 1 - start) <= places:
            end += 1
        yield order[start:end]
        start = end


def _positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    steps = np.arange(int(lengths.max()))[:, None]
    return np.where(steps < lengths, starts + steps, -1)


def _inputs(targets: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """The word before each word of sentences (L, n)."""
    inputs = np.concatenate([np.full((1, targets.shape[1]), EOS), targets[:-1]])
    inputs[1:][~filled[1:]] = EOS  # padding: any word will do
    return inputs


def _score_batch(
    model: LanguageModel, targets: np.ndarray, filled: np.ndarray, score: Score
) -> np.ndarray:
    """Log-probabilities of the filled places of sentences (L, n), row by row.

    Each rank scores some of the sentences, and all get all scores.
    """
    inputs = _inputs(targets, filled)
    first, last = columns_of(filled.shape[1], model.ranks.rank, model.ranks.size)
    here = np.zeros_like(filled)
    here[:, first:last] = filled[:, first:last]
    own = slice(min(first, filled.shape[1] - 1), max(last, first + 1))  # one of nothing, if need be
    hidden, history = _run(model, torch.from_numpy(inputs[:, own]).to(model.device))
    mask = torch.from_numpy(here[:, own]).to(model.device)
    words = torch.from_numpy(targets[:, own]).to(model.device)
    found = score(hidden[mask], words[mask], None if history is None else history[mask])
    values = np.empty(filled.shape)
    for rank, part in enumerate(_of_ranks(model, found, filled)):
        columns = slice(*columns_of(filled.shape[1], rank, model.ranks.size))
        values[:, columns][filled[:, columns]] = part
    return values[filled]


def _of_ranks(model: LanguageModel, found: Tensor, filled: np.ndarray) -> list[np.ndarray]:
    """What each rank found for its columns of ``filled`` (L, n), on every rank."""
    ranks = model.ranks
    columns = (columns_of(filled.shape[1], rank, ranks.size) for rank in range(ranks.size))
    lengths = [int(filled[:, first:last].sum()) for first, last in columns]
    parts = ranks.gather_uneven(found.contiguous(), lengths, "scores")
    return [_to_numpy(part) for part in parts]


@torch.no_grad()
def read_streams(
    model: LanguageModel, streams: Sequence[np.ndarray]
) -> tuple[Tensor, Tensor | None]:
    """All that the output layer looks at before each word of some streams, one after another.

    Each stream (n,) begins anew, behind a sentence end; those of similar length are read together.
    """
    lengths = np.array([len(stream) for stream in streams], np.int64)
    starts = np.cumsum(lengths) - lengths
    tokens = np.concatenate(streams).astype(np.int64)
    hidden: Tensor | None = None
    history: Tensor | None = None
    for batch in _batches(np.argsort(lengths, kind="stable"), lengths, _BATCH):
        place = _positions(starts[batch], lengths[batch])
        filled = place >= 0
        states, pasts = _run(
            model, torch.from_numpy(_inputs(tokens[place], filled)).to(model.device)
        )
        index = torch.from_numpy(place[filled]).to(model.device)
        mask = torch.from_numpy(filled).to(model.device)
        if hidden is None:
            hidden = states.new_empty(len(tokens), states.shape[-1])
            history = None if pasts is None else pasts.new_empty(len(tokens), pasts.shape[-1])
        hidden[index] = states[mask]
        if history is not None and pasts is not None:
            history[index] = pasts[mask]
    assert hidden is not None
    return hidden, history


def _run(model: LanguageModel, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """Hidden states and histories of whole sentences, in pieces so that a long line fits."""
    state = model.initial_state(inputs.shape[1])
    hidden, histories = [], []
    for piece in inputs.split(_STREAM_STEPS):
        read = model.read(piece, state)
        hidden.append(read.hidden)
        histories += [] if read.history is None else [read.history]
        state = read.state
    return torch.cat(hidden), torch.cat(histories) if histories else None


def _to_numpy(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
