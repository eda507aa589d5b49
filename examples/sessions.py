"""What users did, one after another: real interactions from a file, or made-up ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

LONGEST = 50  # items of a history that the network looks at


@dataclass
class Sessions:
    """Histories of users: ``items`` numbered from 1, 0 is no item."""

    histories: list[np.ndarray]
    n_items: int

    @classmethod
    def read(cls, path: Path) -> Sessions:
        """Lines "user item", in the order of time for each user."""
        pairs = np.loadtxt(path, dtype=np.int64)
        users, items = pairs[np.argsort(pairs[:, 0], kind="stable")].T
        histories = np.split(items, np.flatnonzero(np.diff(users)) + 1)
        return cls([h for h in histories if len(h) >= 3], int(items.max()))

    @classmethod
    def made_up(cls, n_items: int, users: int, seed: int = 0) -> Sessions:
        """After an item comes mostly one of four that go with it, else one that many want."""
        random = np.random.default_rng(seed)
        follows = random.integers(n_items, size=(n_items, 4))
        wanted = np.cumsum(1 / np.arange(1, n_items + 1))
        items = np.empty((users, 20), np.int64)
        for place in range(20):
            popular = np.searchsorted(wanted, random.random(users) * wanted[-1])
            if place:
                next_one = follows[items[:, place - 1], random.integers(4, size=users)]
                popular = np.where(random.random(users) < 0.8, next_one, popular)
            items[:, place] = popular
        return cls(list(items + 1), n_items)

    def counts(self) -> Tensor:
        """How often each item occurs in training, at least once."""
        seen = np.concatenate([history[:-2] for history in self.histories])
        return torch.from_numpy(np.bincount(seen, minlength=self.n_items + 1)).clamp(min=1)

    def batches(self, size: int, random: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """All users once, those with histories of about one length together, in random order."""
        order = random.permutation(len(self.histories))
        lengths = np.array([len(self.histories[user]) for user in order])
        by_length = order[np.argsort(lengths, kind="stable")]
        groups = [by_length[i : i + size] for i in range(0, len(order), size)]
        for number in random.permutation(len(groups)):
            yield self.batch(groups[number])

    def batch(self, users: np.ndarray) -> tuple[Tensor, Tensor]:
        """Items (B, T) of these users and the items that followed; 0 after the last.

        A user's last item is for the test and the one before it for validation.
        """
        return self._padded([self.histories[user][:-2] for user in users])

    def held_out(self, users: np.ndarray, part: str) -> tuple[Tensor, Tensor]:
        """Histories (B, T) of these users before the item held out, and that item (B,)."""
        end = {"valid": -2, "test": -1}[part]
        known, _ = self._padded([np.append(self.histories[user][:end], 0) for user in users])
        return known, torch.tensor([int(self.histories[user][end]) for user in users])

    @staticmethod
    def _padded(histories: list[np.ndarray]) -> tuple[Tensor, Tensor]:
        histories = [history[-LONGEST - 1 :] for history in histories]
        longest = max(max(map(len, histories)) - 1, 1)
        both = np.zeros((2, len(histories), longest), np.int64)
        for row, history in enumerate(histories):
            both[:, row, : len(history) - 1] = history[:-1], history[1:]
        return torch.from_numpy(both[0]), torch.from_numpy(both[1])
