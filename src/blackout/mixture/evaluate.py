"""A mixture of models and dumps on texts: weights from one, perplexity of another.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> _ = (folder / "a").write_text("the\\t-1\\n</s>\\t-0.5\\n")
>>> _ = (folder / "b").write_text("the\\t-2\\n</s>\\t-0.1\\n")
>>> part = Part([], [folder / "a", folder / "b"])
>>> fit, _ = tune(part)
>>> result = evaluate(part, fit.weights)
>>> result.words, result.perplexity < min(result.component_perplexities)
(1, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from blackout.errors import UserError
from blackout.mixture.arithmetic import Fit, Floats, Tally, fit_weights, mix_log_probs
from blackout.mixture.components import Text
from blackout.score.dumps import read_dump
from blackout.text.vocab import EOS_WORD, UNK_WORD

__all__ = ["Component", "Mixed", "Part", "evaluate", "tune"]


class Component(Protocol):
    """A model that scores a text over the mixture's vocabulary."""

    name: str
    kind: str

    def pieces(self, text: Text) -> Iterator[Floats]: ...


@dataclass(frozen=True)
class Part:
    """One text as every component of a mixture sees it: models score it, dumps have scored it."""

    models: Sequence[Component]
    dumps: Sequence[Path] = ()
    text: Text | None = None
    """What the models score; without models the first dump says which words there are."""

    def pieces(self) -> Iterator[tuple[list[str], Floats]]:
        """Words, as the mixture's vocabulary knows them, and log-probabilities (n, M)."""
        if self.text is None:
            yield from _dumps_alone(self.dumps)
            return
        scored = [_Reader(model.pieces(self.text)) for model in self.models]
        known = set(self.text.reference.vocab.words) if self.dumps else None
        dumps = [_DumpReader(path, str(self.text.path), known) for path in self.dumps]
        for words in self.text.words():
            columns = [reader.take(len(words)) for reader in scored]
            columns += [dump.take(words) for dump in dumps]
            yield words, np.stack(columns, axis=1)
        for dump in dumps:
            dump.expect_end()


@dataclass(frozen=True)
class Mixed:
    """Perplexity of a text under a mixture, and under each component alone."""

    perplexity: float
    perplexity_without_unk: float
    component_perplexities: list[float]
    """Over the mixture's vocabulary, so that they can be compared with the mixture's."""
    component_perplexities_without_unk: list[float]
    words: int
    """Words, unknown ones among them, sentence ends not."""
    sentence_ends: int
    unknown: int
    """Words outside the mixture's vocabulary."""
    impossible: int
    """Words to which no component gives any probability; the perplexity is then infinite."""


def tune(part: Part) -> tuple[Fit, Floats]:
    """The weights that suit a text best, and the log-probabilities (n, M) they come from."""
    log_probs = np.concatenate([logs for _, logs in part.pieces()])
    return fit_weights(log_probs), log_probs


def evaluate(part: Part, weights: Floats, dump: IO[str] | None = None) -> Mixed:
    """Perplexity of a text; ``dump`` takes a line "word<TAB>log10-probability" for each word."""
    tally, impossible = Tally(1 + len(weights)), 0
    for words, logs in part.pieces():
        mixed = mix_log_probs(logs, weights)
        impossible += int(np.isneginf(mixed).sum())
        unknown = np.array([word == UNK_WORD for word in words])
        ends = np.array([word == EOS_WORD for word in words])
        tally.add(np.column_stack([mixed, logs]), unknown, ends)
        if dump is not None:
            for word, value in zip(words, (mixed / math.log(10)).tolist(), strict=True):
                dump.write(f"{word}\t{value:.7g}\n")
    mixture, *alone = tally.perplexities()
    mixture_known, *alone_known = tally.perplexities_without_unk()
    return Mixed(
        perplexity=mixture,
        perplexity_without_unk=mixture_known,
        component_perplexities=alone,
        component_perplexities_without_unk=alone_known,
        words=tally.words,
        sentence_ends=tally.sentence_ends,
        unknown=tally.unknown,
        impossible=impossible,
    )


class _Reader:
    """Numbers that come in pieces of any length, taken in pieces of the length asked for."""

    def __init__(self, pieces: Iterator[Floats]) -> None:
        self._pieces, self._rest = pieces, np.empty(0)

    def take(self, count: int) -> Floats:
        parts = [self._rest]
        found = len(self._rest)
        while found < count:
            parts.append(next(self._pieces))
            found += len(parts[-1])
        joined = np.concatenate(parts)
        self._rest = joined[count:]
        return joined[:count]


class _DumpReader:
    """A dump beside a text whose words it must have.

    ``known``: the words of the mixture's vocabulary; None if that is not known.
    """

    def __init__(self, path: Path, beside: str, known: set[str] | None) -> None:
        self._path, self._beside, self._known = path, beside, known
        self._blocks = read_dump(path)
        self._words: list[str] = []
        self._logs = np.empty(0)
        self._line = 0

    def take(self, words: list[str]) -> Floats:
        """Log-probabilities of the next words, if the dump's words are these."""
        while len(self._words) < len(words):
            block = next(self._blocks, None)
            if block is None:
                break
            self._words = self._words + block[0]
            self._logs = np.concatenate([self._logs, block[1]])
        for i, (word, own) in enumerate(zip(words, self._words, strict=False)):
            if word != own:
                self._compare(word, own, self._line + i + 1)
        if len(self._words) < len(words):
            last = self._line + len(self._words)
            raise UserError(f"{self._path}: ends after line {last}, {self._beside} has more words")
        logs = self._logs[: len(words)]
        self._words, self._logs = self._words[len(words) :], self._logs[len(words) :]
        self._line += len(words)
        return logs

    def _compare(self, word: str, own: str, line: int) -> None:
        """A word of the text beside another one in the dump."""
        where = f"{self._path}: line {line}"
        if self._known is not None and word == UNK_WORD and own not in self._known:
            return  # a dump of another program has the word itself where the mixture has <unk>
        fault = f"{where}: {own!r} stands where {self._beside} has {word!r}"
        if UNK_WORD in (word, own):
            fault += ": dumps of different vocabularies cannot be mixed; mix the models themselves"
        raise UserError(fault)

    def expect_end(self) -> None:
        if self._words or next(self._blocks, None) is not None:
            raise UserError(
                f"{self._path}: line {self._line + 1}: goes on where {self._beside} ends"
            )


def _dumps_alone(dumps: Sequence[Path]) -> Iterator[tuple[list[str], Floats]]:
    first, *others = dumps
    readers = [_DumpReader(path, str(first), None) for path in others]
    for words, logs in read_dump(first):
        yield words, np.stack([logs, *(reader.take(words) for reader in readers)], axis=1)
    for reader in readers:
        reader.expect_end()
