"""What is computed for whom: pieces of :data:`~blackout.serve.worker.Work`, many questions at once.

The arithmetic is that of ``eval``, ``mix``, ``generate`` and ``rescore``: the exact softmax over
all words, one model or several mixed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from blackout.mixture.arithmetic import Floats
from blackout.mixture.voices import State
from blackout.perplexity import exp_mean
from blackout.rescore.formats.jsonl import to_records
from blackout.rescore.nbest import Hypothesis, NBest, Utterance
from blackout.rescore.score import score_lists
from blackout.rescore.weights import Weights
from blackout.score.generate import Chooser, piece
from blackout.serve.shelf import Shown, nearest
from blackout.serve.worker import Job
from blackout.text.vocab import EOS_WORD, UNK

__all__ = ["Asked", "generate_words", "near_words", "next_words", "rescore_lists", "score_texts"]

_WORDS = 1 << 12  # of several texts, scored together
_STREAMS = 64  # texts that grow together
_READ = 256  # words of hypotheses scored together, more where the vocabulary is small


@dataclass(frozen=True)
class Asked:
    """A question that was found to be good: nothing in it can fail any more."""

    question: Any
    words: list[str] = field(default_factory=list)
    weights: Floats | None = None
    lists: NBest | None = None


# ---------------------------------------------------------------------- score


def score_texts(model: Shown, jobs: deque[Job]) -> Iterator[None]:
    """Scores the texts of several questions as one."""
    some = _take(jobs)
    texts = [job.asked.words for job in some]
    weights = [job.asked.weights for job in some]
    tops = [job.asked.question.top for job in some]
    tokens: list[dict[str, Any]] = []
    every = [word for text in texts for word in text]
    top_of = [top for text, top in zip(texts, tops, strict=True) for _ in text]
    for logs in model.voice.rows(texts, weights):
        start = len(tokens)
        words, top = every[start : start + len(logs)], top_of[start : start + len(logs)]
        tokens += _tokens(model, logs, words, top)
        if not any(job.wanted for job in some):
            return
        yield
    end = 0
    for job, text in zip(some, texts, strict=True):
        start, end = end, end + len(text)
        job.send(_summary(model, tokens[start:end]))


def _take(jobs: deque[Job]) -> list[Job]:
    """The first jobs that anybody waits for, as many as fit into one go."""
    some: list[Job] = []
    total = 0
    while jobs and (not some or total + len(jobs[0].asked.words) <= _WORDS):
        job = jobs.popleft()
        if job.wanted:
            some.append(job)
            total += len(job.asked.words) + 1
    return some


def _tokens(
    model: Shown, logs: Floats, words: list[str], tops: list[int]
) -> Iterator[dict[str, Any]]:
    """What is said of each word: its probability, its rank, the best in its place."""
    vocab = model.voice.vocab
    ids = np.array(vocab.ids(words))
    own = logs[np.arange(len(ids)), ids]
    ranks = (logs > own[:, None]).sum(1) + 1
    most = min(max(tops), len(vocab))
    best = torch.from_numpy(logs).topk(most)
    places, values = best.indices.tolist(), best.values.exp().tolist()
    for i, word in enumerate(words):
        yield {
            "word": word,
            "probability": math.exp(own[i]),
            "log10": float(own[i]) / math.log(10),
            "rank": int(ranks[i]),
            "unknown": bool(ids[i] == UNK),
            "best": [
                {"word": vocab.word(place), "probability": value}
                for place, value in zip(places[i][: tops[i]], values[i], strict=False)
            ],
        }


def _summary(model: Shown, tokens: list[dict[str, Any]]) -> dict[str, Any]:
    total = math.fsum(token["log10"] for token in tokens) * math.log(10)
    ends = sum(token["word"] == EOS_WORD for token in tokens)
    return {
        "model": model.name,
        "perplexity": exp_mean(-total, len(tokens)) if tokens else None,
        "words": len(tokens) - ends,
        "sentence_ends": ends,
        "unknown": sum(token["unknown"] for token in tokens),
        "tokens": tokens,
    }


# ---------------------------------------------------------------------- next


def next_words(model: Shown, jobs: deque[Job]) -> Iterator[None]:
    """The most probable words after the texts of several questions."""
    some = _take(jobs)
    states, weights = [], [job.asked.weights for job in some]
    for job in some:
        states.append(model.voice.read(job.asked.words))
        yield
    size = model.voice.rows_at_a_time
    for start in range(0, len(some), size):
        logs = model.voice.log_probs(states[start : start + size], weights[start : start + size])
        for job, row in zip(some[start : start + size], logs, strict=True):
            job.send({"model": model.name, "words": _best(model, row, job.asked.question)})
        yield


def _best(model: Shown, row: Floats, question: Any) -> list[dict[str, Any]]:
    vocab = model.voice.vocab
    if question.prefix:
        begins = [i for i, word in enumerate(vocab.words) if word.startswith(question.prefix)]
        places = np.array([i for i in begins if i > UNK], np.int64)
    else:
        places = np.delete(np.arange(len(row)), UNK)
    order = torch.from_numpy(row[places]).topk(min(question.top, len(places)))
    return [
        {"word": vocab.word(int(places[i])), "probability": math.exp(value)}
        for value, i in zip(order.values.tolist(), order.indices.tolist(), strict=True)
    ]


# ---------------------------------------------------------------------- generate


@dataclass
class _Singer:
    """A text that grows."""

    job: Job
    state: State
    weights: Floats | None
    chooser: Chooser
    before: str
    left: int


def generate_words(model: Shown, jobs: deque[Job]) -> Iterator[None]:
    """Words for several texts, one each at every step; who comes later joins in."""
    singers: list[_Singer] = []
    while True:
        while jobs and len(singers) < _STREAMS:
            job = jobs.popleft()
            if job.wanted:
                singers.append(_begin(model, job))
        singers = [singer for singer in singers if singer.job.wanted and singer.left]
        if not singers:
            return
        words = []
        size = model.voice.rows_at_a_time
        for start in range(0, len(singers), size):
            some = singers[start : start + size]
            logs = model.voice.log_probs([s.state for s in some], [s.weights for s in some])
            words += [_sing(model, s, row) for s, row in zip(some, logs, strict=True)]
        states = model.voice.advance([singer.state for singer in singers], words)
        for singer, state in zip(singers, states, strict=True):
            singer.state = state
        yield


def _begin(model: Shown, job: Job) -> _Singer:
    question = job.asked.question
    return _Singer(
        job,
        model.voice.read(job.asked.words),
        job.asked.weights,
        Chooser(question.temperature, question.top_k, question.seed),
        question.prompt,
        question.words,
    )


def _sing(model: Shown, singer: _Singer, row: Floats) -> str:
    """The next word of a text; it is sent."""
    place = singer.chooser(torch.from_numpy(row.copy()))
    word = model.voice.vocab.word(place)
    text = piece(word, singer.before)
    singer.before = text
    singer.left -= 1
    singer.job.send({"word": word, "text": text, "probability": math.exp(row[place])})
    if not singer.left:
        singer.job.end()
    return word


# ---------------------------------------------------------------------- rescore and near


@dataclass(eq=False)
class _Lists:
    """The lists of a question, and which of their hypotheses wait for their scores."""

    job: Job
    weights: Weights
    left: deque[Hypothesis]


def rescore_lists(model: Shown, jobs: deque[Job]) -> Iterator[None]:
    """New scores for the lists of several questions, some hypotheses of each at every step."""
    waiting: deque[_Lists] = deque()
    size = min(max(_READ, model.voice.rows_at_a_time), _WORDS)
    while True:
        while jobs:
            waiting.append(_lists_of(model, jobs.popleft()))
        waiting = deque(lists for lists in waiting if lists.job.wanted)
        if not waiting:
            return
        piece = _piece(waiting, size)
        _score(model, piece)
        for lists in piece:
            if not lists.left:
                lists.job.send(_rescored(model, lists.job.asked.lists))
                waiting.remove(lists)
        yield


def _lists_of(model: Shown, job: Job) -> _Lists:
    given = job.asked.weights
    share = float((model.voice.weights if given is None else given)[0])
    weights = job.asked.question.rescore_weights(share)
    return _Lists(job, weights, deque(job.asked.lists.hypotheses))


def _piece(waiting: deque[_Lists], size: int) -> dict[_Lists, list[Hypothesis]]:
    """Hypotheses of about so many words, one of each question in turn."""
    piece: dict[_Lists, list[Hypothesis]] = {}
    turns = deque(waiting)
    while turns and size > 0:
        lists = turns.popleft()
        hypothesis = lists.left.popleft()
        piece.setdefault(lists, []).append(hypothesis)
        size -= len(hypothesis.words) + 1
        if lists.left:
            turns.append(lists)
    waiting.rotate(-len(piece))  # who was not among them is the first of the next
    return piece


def _score(model: Shown, piece: dict[_Lists, list[Hypothesis]]) -> None:
    """Writes the new scores into the hypotheses."""
    assert model.network is not None
    together = NBest("jsonl", 1.0, [Utterance("", some) for some in piece.values()])
    scored = score_lists(model.network, together, model.ngram)
    with np.errstate(over="ignore", invalid="ignore"):  # scores and weights are strangers'
        for lists, start, end in zip(piece, scored.first, scored.first[1:], strict=False):
            logs = scored.language(lists.weights)[start:end].tolist()
            totals = scored.totals(lists.weights)[start:end].tolist()
            for hypothesis, lm, total in zip(piece[lists], logs, totals, strict=True):
                hypothesis.lm, hypothesis.total = lm, total


def _rescored(model: Shown, lists: NBest) -> dict[str, Any]:
    """The answer; a total that is no number is the best of none."""
    found = []
    for record, utterance in zip(to_records(lists), lists.utterances, strict=True):
        totals = [-math.inf if math.isnan(h.total) else h.total for h in utterance.hypotheses]
        found.append({**record, "best": totals.index(max(totals))})
    return {"model": model.name, "utterances": found}


def near_words(model: Shown, jobs: deque[Job]) -> Iterator[None]:
    """The words near a word in the tables of a network."""
    while jobs:
        job = jobs.popleft()
        if job.wanted:
            assert model.network is not None
            question = job.asked.question
            job.send({"model": model.name, **nearest(model.network, question.word, question.top)})
        yield
