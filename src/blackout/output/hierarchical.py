"""The hierarchical softmax: a binary or wider tree over the classes, Huffman's by default.

>>> layer = Hierarchical(16, 1000, counts=torch.arange(1000, 0, -1))
>>> output, loss = layer(torch.randn(8, 16), torch.randint(1000, (8,)))
>>> loss.backward()
>>> layer.weight.shape, layer.weight.grad.is_sparse
(torch.Size([999, 16]), True)
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.tree import Tree
from blackout.output.contract import LayerSpec
from blackout.output.options import takes_options_of
from blackout.output.tree_softmax import TreeSoftmax
from blackout.output.trees import huffman_tree
from blackout.output.word_files import read_tree


class Hierarchical(TreeSoftmax):
    """log p(w | s) = sum of log sigma(± <v, s>) along the path to w: O(h log V) a word."""

    @takes_options_of(TreeSoftmax)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        counts: Tensor | None = None,
        tree_arity: int = 2,
        tree: Tree | None = None,
        **options: Any,
    ) -> None:
        """``counts`` (n_classes,): how often each class occurs; frequent ones have short paths.
        Without them all are alike. ``tree_arity``: children of a node, 2 or more; a node of more
        than two has a softmax over them. ``tree``: one of your own instead
        (:func:`blackout.output.trees.tree_above` makes it, :func:`blackout.output.word_files
        .read_tree` reads it).
        """
        if tree is None:
            tree = huffman_tree(class_counts(counts, n_classes), tree_arity)
        super().__init__(in_features, n_classes, tree, **options)

    @classmethod
    def from_spec(cls, spec: LayerSpec) -> Self:
        settings, counts = dict(spec.settings), spec.counts
        path = settings.pop("tree_file")
        if path is not None and spec.words is not None:
            settings["tree"] = read_tree(path, spec.words, counts.numpy())
        return cls(spec.in_features, spec.n_classes, counts=counts, **settings, **spec.common)


def class_counts(counts: Tensor | None, n_classes: int) -> np.ndarray:
    """How often each class occurs, (n_classes,)."""
    if n_classes < 2:
        raise UserError(f"n_classes is {n_classes}, must be at least 2")
    if counts is None:
        return np.ones(n_classes)
    counts = torch.as_tensor(counts)
    if counts.shape != (n_classes,):
        raise UserError(f"counts has {len(counts)} entries for {n_classes} classes")
    if not bool(counts.isfinite().all()) or bool((counts < 0).any()):
        raise UserError("counts has a number below 0, infinite or NaN")
    return counts.cpu().double().numpy()
