"""Word errors: the fewest substitutions, insertions and deletions between two sentences.

Written here and not taken from a library such as jiwer, which compares pairs: all hypotheses of a
list against one reference are one pass of NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["word_errors"]


def word_errors(reference: Sequence[str], hypotheses: Sequence[Sequence[str]]) -> np.ndarray:
    """The edit distance from the reference to each hypothesis.

    All hypotheses take part in one table of dynamic programming, a row for each reference word.

    >>> word_errors("the cat sat".split(), [["the", "cat"], "a cat sat down".split(), []]).tolist()
    [1, 2, 3]
    """
    number = {word: i for i, word in enumerate(dict.fromkeys(reference))}
    longest = max(map(len, hypotheses), default=0)
    words = np.full((len(hypotheses), longest), -1, np.int32)  # -1: not in the reference
    for row, hypothesis in zip(words, hypotheses, strict=True):
        row[: len(hypothesis)] = [number.get(word, -1) for word in hypothesis]
    inserted = np.arange(longest + 1, dtype=np.int32)
    before = np.broadcast_to(inserted, (len(hypotheses), longest + 1))
    for word in reference:
        after = before + np.int32(1)  # the reference word is deleted …
        kept = before[:, :-1] + (words != number[word])  # … or kept or substituted …
        np.minimum(after[:, 1:], kept, out=after[:, 1:])
        # … and any number of words is inserted after it: min over k ≤ j of after[k] + (j - k).
        before = np.minimum.accumulate(after - inserted, axis=1) + inserted
    lengths = np.array([len(hypothesis) for hypothesis in hypotheses], np.int64)
    return before[np.arange(len(hypotheses)), lengths].astype(np.int64)
