"""The vocabulary: which words have a number, and how often each occurs.

``</s>``, the sentence end, is 0 and ``<unk>``, every unknown word, is 1, always; the words
follow by falling count, ties by their bytes, so that the same text always gives the same
numbers. Words that are dropped, because they are rarer than ``min_count`` or do not fit into
``vocab_size``, count as ``<unk>``, and so does a literal ``<unk>`` in the text.

When nothing is dropped and the text has no literal ``<unk>``, then ``<unk>`` has its number all
the same, with count 0: a network must be able to meet an unknown word in other text. The full
vocabulary of a text with 3,719 distinct words has thus 3,721 entries. ``vocab_size=3720`` makes
the last of the rarest words the one ``<unk>`` of the training text.

>>> vocab = Vocab.from_counts({"</s>": 2, "the": 3, "cat": 1, "sat": 1}, vocab_size=4)
>>> vocab.words, vocab.counts.tolist()
(['</s>', '<unk>', 'the', 'cat'], [2, 1, 3, 1])
>>> vocab.ids(["the", "dog"])
[2, 1]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from blackout import _native
from blackout.errors import UserError
from blackout.files.atomic import replacing

if TYPE_CHECKING:
    from blackout.text.corpus import WordCounts

__all__ = ["EOS", "EOS_WORD", "UNK", "UNK_WORD", "Vocab"]

EOS, EOS_WORD = 0, "</s>"
UNK, UNK_WORD = 1, "<unk>"

_SEPARATORS = frozenset(" \t\n\v\f\r\0")


@dataclass(frozen=True, eq=False)
class Vocab:
    """Words by their number, with their counts in the training text."""

    words: list[str]
    counts: npt.NDArray[np.uint64]

    def __post_init__(self) -> None:
        if self.words[:2] != [EOS_WORD, UNK_WORD]:
            raise ValueError(f"a vocabulary begins with {EOS_WORD} and {UNK_WORD}")
        if self.counts.shape != (len(self.words),):
            raise ValueError(f"{len(self.words)} words but counts of shape {self.counts.shape}")

    @classmethod
    def from_counts(
        cls,
        counts: WordCounts | Mapping[str, int],
        vocab_size: int | None = None,
        min_count: int = 1,
    ) -> Vocab:
        """The vocabulary of a text, from its word counts.

        A plain mapping counts the sentences under ``</s>``. ``vocab_size`` includes ``</s>``
        and ``<unk>``; words that occur fewer than ``min_count`` times are dropped.
        """
        if vocab_size is not None and vocab_size < 3:
            raise UserError(f"vocab_size is {vocab_size}, must be at least 3")
        if min_count < 1:
            raise UserError(f"min_count is {min_count}, must be at least 1")
        sentences, unknown, falling, top = _sorted_counts(counts)
        kept = int(np.searchsorted(-falling.astype(np.int64), -min_count, side="right"))
        if vocab_size is not None:
            kept = min(kept, vocab_size - 2)
        unknown += int(falling[kept:].sum())
        special = np.array([sentences, unknown], np.uint64)
        return cls([EOS_WORD, UNK_WORD, *top(kept)], np.concatenate([special, falling[:kept]]))

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocab) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        return f"Vocab({len(self)} words, {self.hash[:12]})"

    def id(self, word: str) -> int:
        """The word's number; UNK when it has none."""
        return self._index.get(word, UNK)

    def ids(self, words: Iterable[str]) -> list[int]:
        return [self._index.get(word, UNK) for word in words]

    def word(self, i: int) -> str:
        return self.words[i]

    @cached_property
    def hash(self) -> str:
        """SHA-256 over words and counts, in hex: that of the file :meth:`save` writes."""
        return hashlib.sha256(self._to_bytes()).hexdigest()

    @cached_property
    def word_map(self) -> _native.WordMap:
        """The words for the native encoder."""
        encoded = [word.encode() for word in self.words]
        ends = np.cumsum([len(word) + 1 for word in encoded], dtype=np.uint64) - np.uint64(1)
        return _native.WordMap(b"\n".join(encoded), ends)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def _to_bytes(self) -> bytes:
        pairs = zip(self.words, self.counts.tolist(), strict=True)
        return "".join(f"{word}\t{count}\n" for word, count in pairs).encode()

    def save(self, path: str | Path) -> None:
        """Writes one line a word: the word, a tab, its count."""
        with replacing(path) as file:
            file.write(self._to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Vocab:
        """Reads what :meth:`save` wrote; anything else is refused with file and line."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UserError(f"{path}: cannot read the vocabulary: {error.strerror}") from None
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise UserError(f"{path}: line {line}: invalid UTF-8 in the vocabulary") from None
        # Only "\n" ends a line here: str.splitlines would also cut words at U+2028 and others.
        *lines, last = text.split("\n")
        if last:
            raise UserError(f"{path}: line {len(lines) + 1}: the file ends inside a line")
        return cls(*_parse(lines, path))


def _sorted_counts(counts: WordCounts | Mapping[str, int]):  # type: ignore[no-untyped-def]
    """Sentences, literal unknown words, the falling counts, and a function for the top words."""
    if not isinstance(counts, Mapping):
        return counts.sentences, counts.unknown, counts.counts, counts.top
    plain = {w: c for w, c in counts.items() if w not in (EOS_WORD, UNK_WORD) and c > 0}
    words = sorted(plain, key=lambda word: (-plain[word], word.encode()))
    falling = np.array([plain[word] for word in words], np.uint64)
    return counts.get(EOS_WORD, 0), counts.get(UNK_WORD, 0), falling, lambda n: words[:n]


def _parse(lines: list[str], path: str | Path) -> tuple[list[str], npt.NDArray[np.uint64]]:
    columns = "\t".join(lines).split("\t")
    words, digits = columns[::2], columns[1::2]
    whole = (
        len(columns) == 2 * len(lines)
        and words[:2] == [EOS_WORD, UNK_WORD]
        and len(set(words)) == len(words)
        and all(map(_is_word, words))
        and all(map(_is_count, digits))
    )
    if not whole:
        _explain(lines, path)
    return words, np.array(list(map(int, digits)), np.uint64)


def _is_word(word: str) -> bool:
    return bool(word) and _SEPARATORS.isdisjoint(word)


def _is_count(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) <= 18


def _explain(lines: list[str], path: str | Path) -> NoReturn:
    """Finds the first line that is wrong."""
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        word, tab, digits = line.partition("\t")
        fault = ""
        if not tab:
            fault = "no tab between word and count"
        elif not _is_word(word):
            fault = f"{word!r} is not a word"
        elif not _is_count(digits):
            fault = f"{digits!r} is not a count"
        elif number <= 2 and word != (EOS_WORD, UNK_WORD)[number - 1]:
            fault = f"{word!r} stands where {(EOS_WORD, UNK_WORD)[number - 1]} must be"
        elif word in seen:
            fault = f"{word!r} is also on line {seen[word]}"
        if fault:
            raise UserError(f"{path}: line {number}: {fault}")
        seen[word] = number
    raise UserError(f"{path}: line {len(lines) + 1}: {EOS_WORD} or {UNK_WORD} is missing")
