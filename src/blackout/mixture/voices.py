"""Models word by word: a state and a word in, the state after it and all next words out.

A :class:`Voice` is one model, or several mixed, over one vocabulary. What it carries from word to
word is small and belongs to whoever speaks with it, so that many texts go through the same model
side by side: what a server does. Of a network it is the recurrent state and the hidden state that
the output layer looks at (:class:`~blackout.models.language_model.Reading`), of an n-gram the last
words.

    P(w | state) = Σ_m λ_m P_m(w | state)

over the reference vocabulary of :mod:`blackout.mixture.components`, so it sums to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from blackout.mixture.arithmetic import Floats, mix_log_probs
from blackout.mixture.components import (
    NetworkComponent,
    NGramComponent,
    Reference,
    choose_reference,
)
from blackout.models.language_model import LanguageModel, Reading
from blackout.ngram import NGram
from blackout.score.checked import checked
from blackout.score.perplexity import read_streams
from blackout.text.vocab import EOS, EOS_WORD, Vocab

__all__ = ["NGramPart", "NetworkPart", "Part", "State", "Voice"]

_LOGITS = 1 << 23  # log-probabilities held at a time

State = tuple[Any, ...]
"""What a voice carries from word to word: a part for each of its models."""


class Part(Protocol):
    """A model of a voice, over the voice's vocabulary."""

    @property
    def context(self) -> str:
        """Whether it forgets at a sentence's end ("sentence") or not ("stream")."""

    def read(self, words: Sequence[str]) -> Any:
        """The state after a text that begins with a sentence."""

    def advance(self, states: Sequence[Any], words: Sequence[str]) -> list[Any]:
        """The states after one more word each."""

    def log_probs(self, states: Sequence[Any]) -> Floats:
        """Natural log-probabilities of all next words, (B, V)."""

    def rows(self, texts: Sequence[Sequence[str]], size: int) -> Iterator[Floats]:
        """The same before each word of some texts, one after another, ``size`` at a time."""


class NetworkPart:
    """A network of a voice; a state is the :class:`Reading` of one stream."""

    def __init__(self, model: LanguageModel, reference: Reference) -> None:
        self.model = model.eval()
        self.component = NetworkComponent("network", model, reference)
        self.context = model.config.context
        self._same = reference.vocab.words == self.component.vocab.words

    @torch.no_grad()
    def read(self, words: Sequence[str]) -> Reading:
        # the last word alone is a step: what the output layer looks at comes with it
        *before, last = [EOS, *self.component.vocab.ids(self._remembered(words))]
        state = self.model.initial_state(1)
        if before:
            _, state = self.model(torch.tensor(before, device=self.model.device)[:, None], state)
        return self.model.read_word(torch.tensor([last], device=self.model.device), state)

    def _remembered(self, words: Sequence[str]) -> Sequence[str]:
        if self.context == "stream" or EOS_WORD not in words:
            return words
        return words[len(words) - list(words)[::-1].index(EOS_WORD) :]

    @torch.no_grad()
    def advance(self, states: Sequence[Reading], words: Sequence[str]) -> list[Reading]:
        ids = torch.tensor(self.component.vocab.ids(words), device=self.model.device)
        after = self.model.read_word(ids, Reading.joined(states).state)
        return [after.stream(i) for i in range(len(words))]

    def log_probs(self, states: Sequence[Reading]) -> Floats:
        joined = Reading.joined(states)
        return self._log_probs(joined.hidden, joined.history)

    @torch.no_grad()
    def _log_probs(self, hidden: torch.Tensor, history: torch.Tensor | None) -> Floats:
        logs = self.model.output.log_prob(hidden, history=history).double().cpu().numpy()
        own = checked(logs, self.model, may_be_impossible=True)
        return own if self._same else self.component.log_probs(own)

    def rows(self, texts: Sequence[Sequence[str]], size: int) -> Iterator[Floats]:
        ids = [np.array(self.component.vocab.ids(text), np.int64) for text in texts]
        streams = ids if self.context == "stream" else [s for text in ids for s in _sentences(text)]
        hidden, history = read_streams(self.model, streams)
        for start in range(0, len(hidden), size):
            past = None if history is None else history[start : start + size]
            yield self._log_probs(hidden[start : start + size], past)


class NGramPart:
    """An n-gram of a voice; a state is the words it looks back at, ``</s>`` where they began."""

    context = "sentence"

    def __init__(self, model: NGram, reference: Reference) -> None:
        self.model = model
        self.component = NGramComponent("n-gram", model, reference)

    def read(self, words: Sequence[str]) -> tuple[str, ...]:
        state: tuple[str, ...] = (EOS_WORD,)
        for word in words[-self.model.order :]:  # so many push the beginning out
            (state,) = self.advance([state], [word])
        return state

    def advance(
        self, states: Sequence[tuple[str, ...]], words: Sequence[str]
    ) -> list[tuple[str, ...]]:
        return [
            (EOS_WORD,) if word == EOS_WORD else self._kept((*state, word))
            for state, word in zip(states, words, strict=True)
        ]

    def _kept(self, state: tuple[str, ...]) -> tuple[str, ...]:
        return state[max(0, len(state) - max(self.model.order - 1, 0)) :]

    def log_probs(self, states: Sequence[tuple[str, ...]]) -> Floats:
        return np.stack([self.component.log_probs(state) for state in states])

    def rows(self, texts: Sequence[Sequence[str]], size: int) -> Iterator[Floats]:
        states = []
        for text in texts:
            state: tuple[str, ...] = (EOS_WORD,)
            for word in text:
                states.append(state)
                (state,) = self.advance([state], [word])
        for start in range(0, len(states), size):
            yield self.log_probs(states[start : start + size])


class Voice:
    """One model, or several mixed with weights that sum to 1, over one vocabulary."""

    def __init__(self, name: str, parts: Sequence[Part], vocab: Vocab, weights: Floats) -> None:
        self.name, self.parts, self.vocab, self.weights = name, list(parts), vocab, weights
        self.rows_at_a_time = max(1, _LOGITS // len(vocab))

    @classmethod
    def of(
        cls,
        name: str,
        models: Sequence[LanguageModel | NGram],
        weights: Sequence[float] | Floats | None = None,
    ) -> Voice:
        """The voice of one model, or of several; their weights are the same unless given.

        >>> from blackout.config import Config
        >>> from blackout.models.saved import new_model
        >>> vocab = Vocab.from_counts({"</s>": 2, "the": 2, "cat": 1})
        >>> model = new_model(Config.from_dict({"model": {"hidden": 8}}), vocab)
        >>> voice = Voice.of("network", [model])
        >>> state = voice.advance([voice.read([])], ["the"])
        >>> round(float(np.exp(voice.log_probs(state)).sum()), 5)
        1.0
        """
        reference = choose_reference(
            [model for model in models if not isinstance(model, NGram)],
            [model for model in models if isinstance(model, NGram)],
        )
        parts = [
            NGramPart(model, reference)
            if isinstance(model, NGram)
            else NetworkPart(model, reference)
            for model in models
        ]
        equal = np.full(len(parts), 1 / len(parts))
        shares = equal if weights is None else np.asarray(weights, np.float64)
        return cls(name, parts, reference.vocab, shares)

    @property
    def context(self) -> str:
        """ "stream" where some part remembers what was before a sentence, else "sentence"."""
        return "stream" if any(part.context == "stream" for part in self.parts) else "sentence"

    def read(self, words: Sequence[str]) -> State:
        """The state after a text, which may be empty; ``</s>`` ends its sentences."""
        return tuple(part.read(words) for part in self.parts)

    def advance(self, states: Sequence[State], words: Sequence[str]) -> list[State]:
        """The states of B texts after one more word each."""
        columns = zip(*states, strict=True)
        after = [p.advance(column, words) for p, column in zip(self.parts, columns, strict=True)]
        return list(zip(*after, strict=True))

    def log_probs(
        self, states: Sequence[State], weights: Sequence[Floats | None] | None = None
    ) -> Floats:
        """Natural log-probabilities of all next words of B texts, (B, V).

        ``weights``: those of each text, instead of the voice's own where they are None.
        """
        columns = zip(*states, strict=True)
        logs = [part.log_probs(column) for part, column in zip(self.parts, columns, strict=True)]
        return self._mixed(logs, weights or [None] * len(states))

    def rows(
        self, texts: Sequence[Sequence[str]], weights: Sequence[Floats | None] | None = None
    ) -> Iterator[Floats]:
        """The same before each word of some texts, one after another; some rows at a time."""
        given = weights or [None] * len(texts)
        each = [w for w, text in zip(given, texts, strict=True) for _ in text]
        if not each:
            return
        done = 0
        for logs in zip(*(p.rows(texts, self.rows_at_a_time) for p in self.parts), strict=True):
            yield self._mixed(logs, each[done : done + len(logs[0])])
            done += len(logs[0])

    def _mixed(self, logs: Sequence[Floats], weights: Sequence[Floats | None]) -> Floats:
        if len(logs) == 1:
            return logs[0]
        mixed = np.empty_like(logs[0])
        for i, own in enumerate(weights):
            parts = np.stack([part[i] for part in logs], 1)  # (V, M)
            mixed[i] = mix_log_probs(parts, self.weights if own is None else own)
        return mixed


def _sentences(ids: np.ndarray) -> list[np.ndarray]:
    """A text in its sentences, each with its end; the last may be without."""
    ends = np.flatnonzero(ids == EOS) + 1
    return [part for part in np.split(ids, ends) if len(part)]
