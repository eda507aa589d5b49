"""Where the adaptive softmax divides a vocabulary: the cut-offs of the least computing time.

Words by falling count; those before the first cut-off are in the head, each interval after it is a
cluster. A product of B states with k vectors takes a time proportional to k max(B, B0): below B0
states it does not get cheaper (Grave et al. 2017). With J clusters of k_i words, in which the words
of a text are with probability p_i, a block of B words costs

    (k_head + J) B + sum_i k_i max(p_i B, B0)

That the vectors of rare words are shorter is left out of it, as in the paper: else all but a few
words would get short ones. There are no more clusters than have vectors of 16 numbers, and one.
Free of PyTorch, for estimates.

>>> best_cutoffs(1 / np.arange(1, 10001), 256)
[401, 3593]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

_BLOCK = 2560  # B
_FLOOR = 128  # B0
_MOST_CLUSTERS = 4
_LEAST_WIDTH = 16  # of the last cluster's vectors
_CANDIDATES = 64


def cluster_width(width: int, cluster: int, divisor: float) -> int:
    """Numbers of a vector of the i-th cluster, 0 being the first after the head."""
    return max(1, int(width / divisor ** (cluster + 1)))


def best_cutoffs(counts: np.ndarray, width: int, divisor: float = 4.0) -> list[int]:
    """The first word of each cluster, for words by falling count."""
    n = len(counts)
    share = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])
    share /= max(share[-1], 1e-300)
    places = np.unique(np.geomspace(1, n - 1, _CANDIDATES).round().astype(int)).tolist()

    def cluster(begin: int, end: int) -> float:
        return (end - begin) * max(float(share[end] - share[begin]) * _BLOCK, _FLOOR)

    @cache
    def rest(begin: int, clusters: int) -> tuple[float, tuple[int, ...]]:
        """The cheapest way to divide the words from ``begin`` on."""
        if clusters == 1:
            return cluster(begin, n), ()
        found: list[tuple[float, tuple[int, ...]]] = [(math.inf, ())]
        for end in places:
            if end > begin:
                cost, more = rest(end, clusters - 1)
                found.append((cluster(begin, end) + cost, (end, *more)))
        return min(found)

    wide = [i for i in range(_MOST_CLUSTERS) if cluster_width(width, i, divisor) >= _LEAST_WIDTH]
    options = []
    for clusters in range(1, min(max(1, len(wide)), n - 1) + 1):
        for head in places:
            cost, more = rest(head, clusters)
            options.append((cost + (head + clusters) * _BLOCK, [head, *more]))
    return min(options)[1]


def rows_of_a_word(
    cutoffs: Sequence[int], vocab_size: int, width: int = 256, divisor: float = 4.0
) -> float:
    """Vectors of ``width`` numbers that a word takes, in the mean, its probability 1 / rank."""
    share = np.concatenate([[0.0], np.cumsum(1 / (np.arange(vocab_size) + 2.7))])
    share /= share[-1]
    total = float(cutoffs[0] + len(cutoffs))
    for i, (begin, end) in enumerate(zip(cutoffs, [*cutoffs[1:], vocab_size], strict=True)):
        d = cluster_width(width, i, divisor)
        total += float(share[end] - share[begin]) * d * (width + end - begin) / width
    return total


@cache
def estimated_rows(vocab_size: int) -> float:
    """The same with the best cut-offs."""
    counts = 1 / (np.arange(vocab_size) + 2.7)
    return rows_of_a_word(best_cutoffs(counts, 256), vocab_size)
