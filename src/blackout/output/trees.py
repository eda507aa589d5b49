"""Trees over words: Huffman's by count, two levels of classes, any by the nodes above its words.

Whatever it is made from, a tree comes out in one form (:class:`blackout.ops.tree.Tree`): nodes
numbered level by level, the children of a node by falling count, so that the first, whose logit is
always 0, is the most frequent one; a node with one child is none.

>>> tree = huffman_tree(np.array([8, 4, 2, 1, 1]))
>>> path_lengths(tree)
array([1, 2, 3, 4, 4])
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.tree import Tree

NO_NODE = -1


def huffman_tree(counts: np.ndarray, arity: int = 2) -> Tree:
    """The tree with the shortest paths for words with these counts, ``arity`` children a node.

    The nodes of least count are joined until one is left; the first time fewer, where it would not
    come out even. Words and joined nodes wait in a queue each, both in rising order: O(V) after
    sorting.
    """
    if arity < 2:
        raise UserError(f"tree arity is {arity}, must be at least 2")
    n = len(counts)
    order = np.argsort(counts, kind="stable")
    waiting = counts[order].tolist()
    number = order.tolist()
    up_words, up_nodes, joined = [0] * n, list[int](), list[float]()
    word = node = 0
    take = min(n, 2 + (n - 2) % (arity - 1))
    while (n - word) + (len(joined) - node) > 1:
        total, new = 0.0, len(joined)
        for _ in range(take):
            if node >= new or (word < n and waiting[word] <= joined[node]):
                total += waiting[word]
                up_words[number[word]] = new
                word += 1
            else:
                total += joined[node]
                up_nodes[node] = new
                node += 1
        joined.append(total)
        up_nodes.append(NO_NODE)
        take = arity
    return tree_above(np.array(up_words), np.array(up_nodes), counts)


def class_tree(class_of: np.ndarray, counts: np.ndarray) -> Tree:
    """The root over classes, each over its words; ``class_of`` (V,): 0, 1, …"""
    n_classes = int(class_of.max()) + 1
    up_nodes = np.zeros(n_classes + 1, np.int64)
    up_nodes[0] = NO_NODE
    return tree_above(class_of + 1, up_nodes, counts)


def frequency_classes(counts: np.ndarray, n_classes: int) -> np.ndarray:
    """Classes of words by falling count, with about the same sum of the roots of their counts.

    (Mikolov's RNNLM.) Frequent words are in small classes and rare ones in large ones; classes
    that would be empty there are none.
    """
    order = np.argsort(-counts, kind="stable")
    roots = np.sqrt(counts[order].astype(np.float64).clip(min=0))
    total = roots.sum()
    shares = roots.cumsum() / total if total else np.arange(1, len(counts) + 1) / len(counts)
    found, now = np.empty(len(counts), np.int64), 0
    for place, share in enumerate(shares.tolist()):
        found[order[place]] = now
        if share > (now + 1) / n_classes and now < n_classes - 1:
            now += 1
    return np.unique(found, return_inverse=True)[1]


def tree_above(up_words: np.ndarray, up_nodes: np.ndarray, counts: np.ndarray) -> Tree:
    """The tree of the nodes above words (V,) and above nodes (I,), -1 above the root."""
    n = len(up_words)
    up_words, up_nodes = _without_single(up_words, up_nodes)
    levels = list(_levels(up_nodes))
    new = np.full(len(up_nodes), NO_NODE)
    new[np.concatenate(levels)] = np.arange(sum(map(len, levels)))
    mass = np.bincount(up_words, counts, len(up_nodes))
    for level in reversed(levels[1:]):
        np.add.at(mass, up_nodes[level], mass[level])
    kept = np.concatenate(levels)
    above = np.concatenate([new[up_words], new[up_nodes[kept[1:]]]])  # without the root's
    place = _places(above, np.concatenate([counts, mass[kept[1:]]]))
    up, places = np.full(2 * n - 1, NO_NODE), np.zeros(2 * n - 1, np.int64)
    inside = np.r_[0:n, n + 1 : n + len(kept)]
    up[inside], places[inside] = above, place
    vectors = np.zeros(n - 1, np.int64)
    vectors[: len(kept)] = np.bincount(above, minlength=len(kept)) - 1
    first = np.concatenate([[0], vectors.cumsum()])
    return Tree(*(torch.from_numpy(part.astype(np.int32)) for part in (up, places, first)))


def path_lengths(tree: Tree) -> np.ndarray:
    """How many nodes are above each word."""
    up, n = tree.up.cpu().numpy(), tree.words
    depth = np.zeros(n, np.int64)
    for node in range(1, int(up[:n].max()) + 1):  # none before the one above it
        depth[node] = depth[up[n + node]] + 1
    return depth[up[:n]] + 1


def vectors_on_paths(tree: Tree, counts: Tensor) -> float:
    """How many vectors the path of a word names, in the mean over words with these counts."""
    first = tree.first.to(counts.device, torch.float64)
    return float((first.diff() * node_masses(tree, counts)).sum() / counts.sum())


def node_masses(tree: Tree, counts: Tensor) -> Tensor:
    """The counts of the words below each node, (V - 1,), float64."""
    n, up = tree.words, tree.up.cpu().numpy()
    mass = np.zeros(n - 1)
    np.add.at(mass, up[:n], counts.cpu().double().numpy())
    nodes = int((up[n:] >= 0).sum()) + 1
    for node in range(nodes - 1, 0, -1):
        mass[up[n + node]] += mass[node]
    return torch.from_numpy(mass)


def check_tree(tree: Tree) -> None:
    """Refuses arrays that are no tree, such as those of a damaged file."""
    n, up = tree.words, tree.up.cpu().numpy()
    place, first = tree.place.cpu().numpy(), tree.first.cpu().numpy()
    nodes = int((up[n:] >= 0).sum()) + 1
    used = np.r_[0:n, n + 1 : n + nodes]
    above = up[used]
    fine = (
        bool((above >= 0).all() and (above < nodes).all())
        and up[n] == NO_NODE
        and bool((up[n + 1 : n + nodes] < np.arange(1, nodes)).all())
        and first[0] == 0
        and first[-1] == n - 1
        and bool((np.diff(first) >= 0).all())
    )
    if fine:  # every node has its children at places 0, 1, …, each once
        children = np.bincount(above, minlength=nodes)
        number = np.concatenate([[0], children.cumsum()])[above] + place[used]
        fine = (
            bool((children - 1 == np.diff(first)[:nodes]).all())
            and bool((place[used] >= 0).all() and (place[used] < children[above]).all())
            and bool((np.bincount(number) == 1).all())
        )
    if not fine:
        raise UserError("the tree of the output layer is none: its nodes do not fit together")


def _without_single(up_words: np.ndarray, up_nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is above, nodes with one child left out; they stay as nodes that lead nowhere."""
    children = np.bincount(up_words, minlength=len(up_nodes))
    children += np.bincount(up_nodes[up_nodes >= 0], minlength=len(up_nodes))
    single = np.append(children == 1, False)  # the one above the root, -1, is not
    while single[up_words].any() or single[up_nodes].any():
        up_words = np.where(single[up_words], up_nodes[up_words], up_words)
        up_nodes = np.where(single[up_nodes], up_nodes[up_nodes], up_nodes)
    return up_words, np.where(children < 2, len(up_nodes), up_nodes)  # above those: nothing real


def _levels(up_nodes: np.ndarray) -> Iterator[np.ndarray]:
    """The nodes below the root, level by level."""
    order = np.argsort(up_nodes, kind="stable")
    ups = up_nodes[order]
    level = np.flatnonzero(up_nodes == NO_NODE)
    while len(level):
        yield level
        begin, end = np.searchsorted(ups, level), np.searchsorted(ups, level, side="right")
        level = np.concatenate([order[a:b] for a, b in zip(begin, end, strict=True)])


def _places(above: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The place of each among the children of the node above it, by falling mass."""
    order = np.lexsort((np.arange(len(above)), -mass, above))
    start = np.searchsorted(above[order], above[order])
    place = np.empty(len(above), np.int64)
    place[order] = np.arange(len(above)) - start
    return place
