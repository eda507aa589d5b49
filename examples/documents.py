"""Documents with several labels each: from a file, or made-up ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

NONE = -100  # fills up the labels of a document; the layers' ignore_index
_SIGNATURE = 6  # words that speak for a made-up label


@dataclass
class Batch:
    """Some documents: all their words one after another, and the labels of each."""

    words: Tensor  # (M,)
    offsets: Tensor  # (B,), where each document begins
    labels: Tensor  # (B, L), filled up with NONE


@dataclass
class Documents:
    """The words and the labels of each document, both as numbers from 0."""

    words: list[np.ndarray]
    labels: list[np.ndarray]
    n_words: int
    n_labels: int

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def read(cls, path: Path) -> Documents:
        """The format of the Extreme Classification Repository; the weights of words are left out.

        First "documents words labels", then lines "label,label,... word:weight word:weight ...".
        """
        with path.open() as file:
            count, n_words, n_labels = map(int, file.readline().split())
            parted = [line.rstrip("\n").partition(" ") for line in file]
        words = [[int(pair.partition(":")[0]) for pair in rest.split()] for _, _, rest in parted]
        labels = [[int(label) for label in first.split(",") if label] for first, _, _ in parted]
        assert len(parted) == count, f"{path}: {len(parted)} documents, not {count}"
        return cls(_arrays(words), _arrays(labels), n_words, n_labels)

    @classmethod
    def made_up(cls, n_labels: int, documents: int, seed: int = 0) -> Documents:
        """Popular and rare labels, one to five a document, of each half of the words it goes by.

        Words go with several labels, so that no word alone gives one away.
        """
        n_words = max(n_labels // 2, _SIGNATURE)
        task, random = np.random.default_rng(0), np.random.default_rng(seed + 1)
        signatures = task.integers(n_words, size=(n_labels, _SIGNATURE))
        wanted = np.cumsum(1 / np.arange(1, n_labels + 1) ** 0.7)
        sizes = random.integers(1, 6, size=documents)
        drawn = np.searchsorted(wanted, random.random(int(sizes.sum())) * wanted[-1])
        labels = [np.unique(some) for some in np.split(drawn, np.cumsum(sizes)[:-1])]
        words = []
        for some in labels:
            own = signatures[some].reshape(-1)
            kept = own[random.random(len(own)) < 0.5]
            words.append(np.append(kept, random.integers(n_words, size=3)))
        return cls(words, labels, n_words, n_labels)

    def parted(self, held_out: int) -> tuple[Documents, Documents]:
        """All but the last documents, and those."""
        place = len(self) - held_out
        first, last = (
            Documents(self.words[part], self.labels[part], self.n_words, self.n_labels)
            for part in (slice(place), slice(place, None))
        )
        return first, last

    def counts(self) -> Tensor:
        """How often each label occurs, at least once."""
        seen = np.bincount(np.concatenate(self.labels), minlength=self.n_labels)
        return torch.from_numpy(seen).clamp(min=1)

    def batch(self, chosen: np.ndarray) -> Batch:
        words = [self.words[number] for number in chosen]
        offsets = np.cumsum([0, *map(len, words[:-1])])
        labels = np.full((len(chosen), max(len(self.labels[n]) for n in chosen)), NONE, np.int64)
        for row, number in enumerate(chosen):
            labels[row, : len(self.labels[number])] = self.labels[number]
        flat = torch.from_numpy(np.concatenate(words))
        return Batch(flat, torch.from_numpy(offsets), torch.from_numpy(labels))

    def batches(self, size: int, random: np.random.Generator) -> Iterator[Batch]:
        """All documents once, in random order."""
        order = random.permutation(len(self))
        for start in range(0, len(order), size):
            yield self.batch(order[start : start + size])


def _arrays(lists: list[list[int]]) -> list[np.ndarray]:
    return [np.array(one, np.int64) for one in lists]
