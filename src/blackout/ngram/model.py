"""A back-off n-gram model: from ARPA text (whoever wrote it) or from the binary form.

Probabilities are log10, as in ARPA files. A word the model does not know is its ``<unk>``.
"""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from blackout import _native
from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.text.source import Progress, scan

__all__ = ["NGram", "refusing"]

_MAGIC = b"BOngram\n"


class NGram:
    """Log-probabilities of words, sentences and texts.

    >>> import tempfile
    >>> from blackout.ngram import train
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "text").write_text("the cat sat\\nthe cat ran\\nthe end\\n")
    >>> _ = train(folder / "text", folder / "model.arpa", order=3)
    >>> model = NGram.load(folder / "model.arpa")
    >>> model.order, "cat" in model, "dog" in model
    (3, True, False)
    >>> model.score(["the", "cat"]).shape  # two words and the sentence end
    (3,)
    >>> round(float(model.prob_all(["the"]).sum()), 5)
    1.0
    """

    def __init__(self, native: _native.NGramModel, path: Path) -> None:
        self._native = native
        self.path = path
        """The file it came from."""

    @classmethod
    def load(
        cls, path: str | Path, *, verify: bool = True, progress: Progress | None = None
    ) -> NGram:
        """Opens a model: ``.arpa``, ``.arpa.gz`` (or ``.xz``) or the binary form.

        The binary form is mapped into memory. ``verify`` reads it once to check its checksum and
        that every number in it makes sense; without it a damaged file may give wrong answers, and
        one made to do harm may do it: leave it out for your own files only.
        """
        path = Path(path)
        if _is_binary(path):
            with refusing(path):
                return cls(_native.NGramModel.open(os.fsencode(path), verify), path)
        reader = _native.ArpaReader()
        scan(path, reader, progress=progress)
        with refusing(path):
            model = reader.take()
        if isinstance(model, tuple):
            order, words = model
            line = _second_line(path, order, words)
            raise UserError(f"{path}: line {line}: the {order}-gram {words!r} stands there twice")
        return cls(model, path)

    def save(self, path: str | Path) -> None:
        """Writes the binary form."""
        with replacing(path) as file:
            self._native.save(file.write)

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return self._native.order

    @property
    def ngrams(self) -> tuple[int, ...]:
        """How many n-grams of each order there are."""
        return tuple(self._native.counts)

    @cached_property
    def vocab(self) -> list[str]:
        """The words by their id; ``<unk>``, ``<s>`` and ``</s>`` among them."""
        return self._native.words()

    @property
    def unk(self) -> int:
        """The id of ``<unk>``."""
        return self._native.unk

    def __len__(self) -> int:
        return self._native.counts[0]

    def __contains__(self, word: str) -> bool:
        return self._native.find(word.encode()) is not None

    def ids(self, words: Iterable[str]) -> npt.NDArray[np.uint32]:
        """The ids of words, that of ``<unk>`` for those the model does not know."""
        found = (self._native.find(word.encode()) for word in words)
        return np.array([self.unk if i is None else i for i in found], np.uint32)

    def score(
        self, words: Sequence[str], *, bos: bool = True, eos: bool = True
    ) -> npt.NDArray[np.float32]:
        """log10 P of each word of a sentence given the words before it.

        With ``bos`` the sentence begins in the context ``<s>``; with ``eos`` the last number is
        that of ``</s>``.
        """
        ids = self.ids([*words, "</s>"] if eos else words)
        with refusing(self.path):
            return self._native.score(ids, bos=bos)

    def score_tokens(self, ids: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """log10 P of each word of a text, given as ids of this model.

        The text begins a sentence; each ``</s>`` ends one and begins the next.
        """
        with refusing(self.path):
            return self._native.score_text(np.ascontiguousarray(ids, np.uint32))

    def unigram_prob(self, word: str) -> float:
        """P(word) without any context."""
        return float(self.prob_all([])[self.ids([word])[0]])

    def prob_all(self, context: Sequence[str], *, bos: bool = False) -> npt.NDArray[np.float64]:
        """P of every word of :attr:`vocab` after the context; with ``bos`` ``<s>`` precedes it.

        ``<s>`` is never predicted: its entry is 0, and the others sum to one.
        """
        return np.power(10.0, self.score_next(self.ids(context), bos=bos))

    def score_next(self, context: npt.ArrayLike, *, bos: bool = False) -> npt.NDArray[np.float64]:
        """log10 P of every word of :attr:`vocab` after a context of ids; -∞ for ``<s>``."""
        ids = np.ascontiguousarray(context, np.uint32)
        with refusing(self.path):
            scores = self._native.score_all(ids, bos=bos).astype(np.float64)
        if self._native.bos is not None:
            scores[self._native.bos] = -np.inf
        return scores


@contextlib.contextmanager
def refusing(path: Path) -> Iterator[None]:
    """What native code finds wrong with a model, as a user sees it."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{path}: {error}") from None


def _is_binary(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False  # reading it as text will say what is wrong


def _second_line(path: Path, order: int, words: str) -> int:
    """The line of an ARPA file where an n-gram stands for the second time."""
    openers = {".gz": gzip.open, ".xz": lzma.open}
    wanted, seen, inside = words.encode().split(), False, False
    with openers.get(path.suffix, open)(path, "rb") as lines:  # type: ignore[operator]
        for number, line in enumerate(lines, 1):
            if line.startswith(b"\\"):
                inside = line.strip() == b"\\%d-grams:" % order
            elif inside and line.split()[1 : order + 1] == wanted:
                if seen:
                    return number
                seen = True
    raise AssertionError("no duplicate n-gram")
