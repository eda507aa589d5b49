"""Made-up words: a vocabulary with the counts of a natural language, and texts drawn from it."""

from __future__ import annotations

import numpy as np


def zipf_counts(vocab_size: int) -> np.ndarray:
    """Word counts falling like 1 / (rank + 2.7), the rarest three times.

    >>> counts = zipf_counts(1000)
    >>> int(counts[0]), int(counts[-1])
    (743, 3)
    """
    rank = np.arange(vocab_size, dtype=np.float64)
    return np.ceil(2 * (vocab_size + 2.7) / (rank + 2.7)).astype(np.int64)


def draw_words(counts: np.ndarray, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Words drawn independently with these frequencies."""
    edges = np.cumsum(counts)
    places = np.random.default_rng(seed).integers(edges[-1], size=shape)
    return np.searchsorted(edges, places, side="right").astype(np.int64)
