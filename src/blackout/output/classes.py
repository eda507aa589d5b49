"""Class-based softmax: first the class of a word, then the word among its class.

>>> layer = Classes(16, 1000, counts=torch.arange(1000, 0, -1))
>>> output, loss = layer(torch.randn(8, 16), torch.randint(1000, (8,)))
>>> loss.backward()
>>> int(layer.log_prob(torch.zeros(16)).exp().sum().round())
1
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.output.contract import LayerSpec
from blackout.output.hierarchical import class_counts
from blackout.output.options import takes_options_of
from blackout.output.tree_softmax import TreeSoftmax
from blackout.output.trees import class_tree, frequency_classes
from blackout.output.word_files import read_classes


class Classes(TreeSoftmax):
    """p(w | s) = p(c | s) p(w | c, s), c the class of w: O((C + size of c) h) a word."""

    @takes_options_of(TreeSoftmax)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        counts: Tensor | None = None,
        class_count: int | None = None,
        class_of: Tensor | None = None,
        **options: Any,
    ) -> None:
        """``counts`` (n_classes,): how often each word occurs; without them all are alike.
        ``class_count``: how many classes, by default the root of ``n_classes``; each has about the
        same sum of the roots of its words' counts. ``class_of`` (n_classes,): the class of each
        word instead, numbers from 0 on.
        """
        known = class_counts(counts, n_classes)
        if class_of is None:
            wanted = default_class_count(n_classes) if class_count is None else class_count
            if not 1 <= wanted <= n_classes:
                raise UserError(f"class_count is {wanted}, must be 1 … {n_classes}, the words")
            classes = frequency_classes(known, wanted)
        else:
            classes = _checked(class_of, n_classes)
        super().__init__(in_features, n_classes, class_tree(classes, known), **options)

    @classmethod
    def from_spec(cls, spec: LayerSpec) -> Self:
        settings = dict(spec.settings)
        path = settings.pop("class_file")
        if path is not None and spec.words is not None:
            settings["class_of"] = torch.from_numpy(read_classes(path, spec.words))
        counts = spec.counts
        return cls(spec.in_features, spec.n_classes, counts=counts, **settings, **spec.common)


def default_class_count(n_words: int) -> int:
    """About the root: with as many classes as words in one, the two choices cost the same."""
    return max(1, round(math.sqrt(n_words)))


def _checked(class_of: Tensor, n_words: int) -> np.ndarray:
    found = torch.as_tensor(class_of)
    if found.shape != (n_words,) or found.is_floating_point():
        raise UserError(f"class_of must have {n_words} whole numbers, one for each word")
    if bool((found < 0).any()):
        raise UserError(f"class_of has {int(found.min())}: classes are numbered from 0 on")
    return np.unique(found.cpu().numpy(), return_inverse=True)[1]
