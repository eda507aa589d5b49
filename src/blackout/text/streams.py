"""The blocks of an epoch: sentences laid into B streams, cut every T time steps.

Each sentence, in the order of the text or in the epoch's shuffled order, goes to the currently
shortest stream, the first of several; the network reads each stream from left to right, so that
the input of a step is the stream's previous word and, before its first word, ``</s>``. Streams
end at different places: what is missing is padding, marked by ``mask``. Every word of the text is
a target exactly once.

>>> from types import SimpleNamespace
>>> text = SimpleNamespace(tokens=np.array([2, 3, 0, 4, 0, 5, 0], np.uint32),
...                        offsets=np.array([0, 3, 5, 7], np.uint64))
>>> streams = Streams(text, batch=2, bptt=3, shuffle=False, seed=1, epoch=0)
>>> [block.targets.T.tolist() for block in streams]
[[[2, 3, 0], [4, 0, 5]], [[0, 0, 0], [0, 0, 0]]]
>>> streams.blocks, streams.words
(2, 7)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from blackout import _native
from blackout.errors import UserError

__all__ = ["Block", "Streams", "columns_of"]


class TokenText(Protocol):
    """Word numbers and where the sentences begin; every sentence ends in ``</s>``."""

    @property
    def tokens(self) -> npt.NDArray[np.uint32]: ...
    @property
    def offsets(self) -> npt.NDArray[np.uint64]: ...


@dataclass(frozen=True, eq=False)
class Block:
    """T steps of B streams."""

    inputs: npt.NDArray[np.int64]  # (T, B)
    targets: npt.NDArray[np.int64]  # (T, B)
    mask: npt.NDArray[np.bool_]  # (T, B), False where the stream is over
    words: int
    """How many targets count."""

    def share(self, rank: int, ranks: int) -> Block:
        """The streams that one of several ranks trains; one of nothing where there are too few.

        >>> words = np.arange(10).reshape(2, 5)
        >>> block = Block(words, words, np.ones((2, 5), bool), 10)
        >>> block.share(1, 2).targets.tolist(), block.share(1, 2).words
        ([[3, 4], [8, 9]], 4)
        >>> block.share(7, 8).targets.tolist(), block.share(7, 8).words
        ([[0], [0]], 0)
        """
        first, last = columns_of(self.mask.shape[1], rank, ranks)
        if first == last:
            padding = np.zeros((len(self.mask), 1), np.int64)
            return Block(padding, padding, padding.astype(np.bool_), 0)
        own = np.s_[:, first:last]
        copy = np.ascontiguousarray
        mask = copy(self.mask[own])
        return Block(copy(self.inputs[own]), copy(self.targets[own]), mask, int(mask.sum()))


def columns_of(streams: int, rank: int, ranks: int) -> tuple[int, int]:
    """The first stream of a rank and the one after its last: neighbours, as even as can be.

    >>> [columns_of(5, rank, 4) for rank in range(4)]
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    each, more = divmod(streams, ranks)
    first = rank * each + min(rank, more)
    return first, first + each + (rank < more)


class Streams(Iterator[Block]):
    """The blocks of one epoch, one after another; can stop after any and continue there later.

    ``contiguous`` gives each stream one part of the text as it stands, cut between sentences:
    for networks that carry their state from sentence to sentence. It goes without ``shuffle``.

    Takes memory for a block and, when shuffled, 4 bytes a sentence.
    """

    def __init__(
        self,
        text: TokenText,
        batch: int,
        bptt: int,
        *,
        shuffle: bool,
        seed: int,
        epoch: int,
        contiguous: bool = False,
    ) -> None:
        if contiguous and shuffle:
            raise ValueError("contiguous streams keep the order of the text: no shuffle")
        self._shape = (bptt, batch)
        self._key = {
            "batch": batch,
            "bptt": bptt,
            "shuffle": shuffle,
            "seed": seed,
            "epoch": epoch,
            "contiguous": contiguous,
            "tokens": len(text.tokens),
            "sentences": len(text.offsets) - 1,
        }
        order = _native.shuffled(len(text.offsets) - 1, seed, epoch) if shuffle else None
        self._filler = _native.StreamFiller(text.tokens, text.offsets, order, batch, bptt)
        self._blocks: int | None = None
        if contiguous:
            parts = _parts(text.offsets, batch)
            self._filler.load_state(np.append(np.uint64(len(text.offsets) - 1), parts))
            self._blocks = -(-int((parts[:, 1] - parts[:, 0]).max()) // bptt)
        self._done = 0
        self.words = len(text.tokens)
        """Targets of the whole epoch, sentence ends included."""

    def __next__(self) -> Block:
        inputs = np.empty(self._shape, np.int64)
        targets = np.empty(self._shape, np.int64)
        mask = np.empty(self._shape, np.bool_)
        words = self._filler.fill(inputs, targets, mask)
        if words == 0:
            raise StopIteration
        self._done += 1
        return Block(inputs, targets, mask, words)

    @property
    def blocks(self) -> int:
        """Blocks of the whole epoch."""
        if self._blocks is None:
            self._blocks = -(-self._filler.longest() // self._shape[0])
        return self._blocks

    @property
    def done(self) -> int:
        """Blocks given so far, those before a resume included."""
        return self._done

    def state(self) -> dict[str, Any]:
        """Where the epoch stands, as JSON can write it: two numbers a stream and a few more."""
        return {**self._key, "done": self._done, "cursors": self._filler.state().tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continues where :meth:`state` was taken, in streams with the same settings and text."""
        for name, value in self._key.items():
            if state.get(name) != value:
                raise UserError(f"saved streams have {name} {state.get(name)}, these have {value}")
        try:
            self._filler.load_state(np.array(state["cursors"], np.uint64))
            self._done = int(state["done"])
        except (KeyError, ValueError, OverflowError, TypeError) as error:
            raise UserError(f"the saved position in the text is damaged: {error}") from None


def _parts(offsets: npt.NDArray[np.uint64], batch: int) -> npt.NDArray[np.uint64]:
    """Where each of ``batch`` parts of a text begins and ends (B, 2), near equal in length."""
    ideal = np.linspace(0, int(offsets[-1]), batch + 1)
    cuts = offsets[np.searchsorted(offsets, ideal)]
    return np.stack([cuts[:-1], cuts[1:]], 1)
