"""Exact perplexity: the full softmax over V, whatever the training loss was.

Sentences of similar length are scored side by side; the vocabulary is gone through in tiles; a
words × V matrix never exists. With ``context = "stream"`` the text is one stream, from its first
word to its last, as the model reads it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np
import torch
from torch import Tensor

from blackout.models.language_model import LanguageModel
from blackout.perplexity import Perplexity
from blackout.score.checked import checked
from blackout.text.shards import Shard
from blackout.text.vocab import EOS, UNK

_CHUNK = 1 << 16  # tokens read and put in order together
_BATCH = 1 << 13  # tokens scored together, padding included
_STREAM_STEPS = 1 << 10  # time steps of a stream scored together

Score = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def evaluate(
    model: LanguageModel,
    shard: Shard,
    *,
    dump: IO[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Perplexity of a text; ``dump`` takes a line "word<TAB>log10-probability" for each word."""
    started = time.perf_counter()
    total = unknown_total = 0.0
    done = 0
    for tokens, log_probs in log_probabilities(model, shard):
        total += float(log_probs.sum())
        unknown_total += float(log_probs[tokens == UNK].sum())
        done += len(tokens)
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
    model: LanguageModel, shard: Shard, score: Score | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pieces (tokens, natural log-probabilities in float64) of a text, in its order.

    ``score`` takes hidden states (n, h), target words (n,) and their histories (n, k) or None, and
    gives the log-probability (n,) wanted of each, -∞ where there is none; by default that of the
    target.
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
            yield tokens, checked(values, model, may_be_impossible=score is not None)
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
        yield tokens, _to_numpy(score(read.hidden[:, 0], targets, history))
        state = read.state
        previous = tokens[-1:]


def _score_sentences(
    model: LanguageModel, shard: Shard, score: Score
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for first, last in _sentence_chunks(shard.offsets):
        start, end = int(shard.offsets[first]), int(shard.offsets[last])
        if end - start > _CHUNK:  # a single sentence
            yield from _score_stream(model, shard.tokens[start:end], score)
            continue
        tokens = shard.tokens[start:end].astype(np.int64)
        offsets = shard.offsets[first : last + 1].astype(np.int64) - start
        scores = np.empty(len(tokens), dtype=np.float64)
        lengths = np.diff(offsets)
        order = np.argsort(lengths, kind="stable")
        for batch in _batches(order, lengths):
            place = _positions(offsets[batch], lengths[batch])  # (L, n), -1 where padded
            filled = place >= 0
            scores[place[filled]] = _score_batch(model, tokens[place], filled, score)
        yield tokens, scores


def _sentence_chunks(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of sentences with about _CHUNK tokens, at least one sentence each."""
    first, sentences = 0, len(offsets) - 1
    while first < sentences:
        # Of the offsets' own type: searchsorted would convert them all for another.
        limit = offsets[first] + offsets.dtype.type(_CHUNK)
        last = max(first + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
        yield first, last
        first = last


def _batches(order: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Groups of sentences, ascending by length, with at most _BATCH places after padding."""
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and lengths[order[end]] * (end + 1 - start) <= _BATCH:
            end += 1
        yield order[start:end]
        start = end


def _positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    steps = np.arange(int(lengths.max()))[:, None]
    return np.where(steps < lengths, starts + steps, -1)


def _score_batch(
    model: LanguageModel, targets: np.ndarray, filled: np.ndarray, score: Score
) -> np.ndarray:
    """Log-probabilities of the filled places of sentences (L, n), row by row."""
    inputs = np.concatenate([np.full((1, targets.shape[1]), EOS), targets[:-1]])
    inputs[1:][~filled[1:]] = EOS  # padding: any word will do
    hidden, history = _run(model, torch.from_numpy(inputs).to(model.device))
    mask = torch.from_numpy(filled).to(model.device)
    words = torch.from_numpy(targets).to(model.device)
    return _to_numpy(score(hidden[mask], words[mask], None if history is None else history[mask]))


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
