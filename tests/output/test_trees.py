"""Layers whose probabilities are products of choices: trees, classes, head and clusters."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from blackout import Adaptive, Classes, Hierarchical
from blackout.cutoffs import best_cutoffs
from blackout.errors import UserError
from blackout.output.trees import (
    check_tree,
    frequency_classes,
    huffman_tree,
    node_masses,
    path_lengths,
    vectors_on_paths,
)
from blackout.output.word_files import read_classes, read_tree

V, H = 23, 6
COUNTS = torch.tensor([3, 90, 41, 1, 0, 7, 7, 12, 300, 5, 5, 5, 2, 1, 1, 1, 60, 33, 2, 2, 8, 9, 4])
KINDS = {
    "binary": lambda **o: Hierarchical(H, V, counts=COUNTS, **o),
    "three": lambda **o: Hierarchical(H, V, counts=COUNTS, tree_arity=3, **o),
    "four": lambda **o: Hierarchical(H, V, counts=COUNTS, tree_arity=4, **o),
    "flat": lambda **o: Hierarchical(H, V, counts=COUNTS, tree_arity=99, **o),
    "classes": lambda **o: Classes(H, V, counts=COUNTS, **o),
    "one class": lambda **o: Classes(H, V, class_count=1, **o),
    "all classes": lambda **o: Classes(H, V, counts=COUNTS, class_of=torch.arange(V), **o),
    "adaptive": lambda **o: Adaptive(H, V, counts=COUNTS, **o),
    "clusters": lambda **o: Adaptive(H, V, counts=COUNTS, cutoffs=(4, 9), div_value=2, **o),
}
TREES = [name for name in KINDS if not name.startswith(("adaptive", "clusters"))]


def make(kind, dtype=torch.float64, **options):
    torch.manual_seed(3)
    layer = KINDS[kind](init_range=0.8, **options).to(dtype)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.7)
    return layer


def examples(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(*shape, H, generator=generator, dtype=dtype).requires_grad_()
    return hidden, torch.randint(V, shape, generator=generator)


def by_definition(layer, hidden, word):
    """log p of a word, choice by choice from the leaf up, with autograd watching."""
    up, place, first = (part.tolist() for part in layer.tree)
    total, at = 0.0, word
    while up[at] >= 0:
        node = up[at]
        u = layer.weight[first[node] : first[node + 1]] @ hidden
        if layer.bias is not None:
            u = u + layer.bias[first[node] : first[node + 1]]
        total = total + torch.cat([u.new_zeros(1), u]).log_softmax(0)[place[at]]
        at = V + node
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-5)]
)
def test_probabilities_sum_to_one(kind, dtype, close):
    """Added up word by word, each scored on its own, and all at once."""
    storage = {"storage": "bf16"} if dtype == torch.bfloat16 else {}
    layer = KINDS[kind](bias=True, init_range=2.0, **storage)
    layer = layer.double() if dtype == torch.float64 else layer
    hidden = examples(5)[0].detach().to(torch.float64 if dtype == torch.float64 else torch.float32)
    words = torch.arange(V).expand(5, V)
    alone = layer.target_log_prob(hidden[:, None].expand(5, V, H), words)
    torch.testing.assert_close(alone.exp().sum(1), hidden.new_ones(5), rtol=0, atol=close)
    torch.testing.assert_close(layer.log_prob(hidden).detach(), alone, rtol=close, atol=close)
    pairs = layer.pair_log_prob(hidden, torch.arange(5).repeat_interleave(V), words.reshape(-1))
    torch.testing.assert_close(pairs.view(5, V), alone, rtol=close, atol=close)


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_value_and_gradients_are_those_of_the_definition(kind, bias, sparse):
    layer = make(kind, bias=bias, sparse=sparse)
    hidden, target = examples(8)
    output, loss = layer(hidden, target)
    parts = zip(hidden, target.tolist(), strict=True)
    expected = torch.stack([by_definition(layer, s, w) for s, w in parts])
    torch.testing.assert_close(output, expected)
    leaves = [hidden, *layer.parameters()]
    found = torch.autograd.grad(loss, leaves)
    assert found[1].is_sparse == sparse
    for a, b in zip(found, torch.autograd.grad(-expected.mean(), leaves), strict=True):
        torch.testing.assert_close(a.to_dense(), b)


def test_a_binary_tree_is_sigmoids():
    layer = make("binary")
    hidden, _ = examples(1)
    up, place, first = layer.tree
    for word in range(V):
        at, total = word, 0.0
        while up[at] >= 0:
            u = layer.weight[first[up[at]]] @ hidden[0]
            total, at = total + logsigmoid(u if place[at] else -u), V + int(up[at])
        torch.testing.assert_close(layer.log_prob(hidden)[0, word], total)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_differences(kind):
    layer = make(kind, bias=True)
    hidden, target = examples(40)
    loss = layer(hidden, target).loss
    leaves = [hidden, *layer.parameters()]
    gradients = torch.autograd.grad(loss, leaves)
    generator = torch.Generator().manual_seed(5)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        way = torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
        values = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                leaf += step * way
                values.append(layer(hidden, target).loss)
        with torch.no_grad():
            leaf += 1e-5 * way
        difference = (values[0] - values[1]) / 2e-5
        torch.testing.assert_close(
            (gradient.to_dense() * way).sum(), difference, rtol=1e-6, atol=1e-9
        )


def test_the_adaptive_layer_is_pytorchs():
    """The same numbers in ``AdaptiveLogSoftmaxWithLoss`` give the same log-probabilities."""
    layer = make("clusters", bias=True)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(
        H, V, layer.cutoffs, div_value=2, head_bias=True, dtype=torch.float64
    )
    state = {"head.weight": layer.head.table.weight, "head.bias": layer.head.bias}
    for i, tail in enumerate(layer.tails):
        torch.nn.init.zeros_(tail.bias)  # theirs has none
        state |= {f"tail.{i}.0.weight": tail.projection, f"tail.{i}.1.weight": tail.table.weight}
    theirs.load_state_dict(state)
    hidden, target = examples(9)
    torch.testing.assert_close(layer.log_prob(hidden), theirs.log_prob(hidden)[:, layer.rank])
    ours, reference = layer(hidden, target), theirs(hidden, layer.rank[target])
    torch.testing.assert_close(ours.output, reference.output)
    torch.testing.assert_close(
        *(torch.autograd.grad(x.loss, hidden, retain_graph=True)[0] for x in (ours, reference))
    )
    ranked = COUNTS[layer.rank.argsort()]
    assert (ranked.diff() <= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns(kind):
    layer = make(kind, torch.float32)
    hidden, target = examples(4, 5, dtype=torch.float32)
    optimizer = torch.optim.SGD(layer.parameters(), lr=2.0)
    first = layer(hidden, target).loss.item()
    for _ in range(60):
        optimizer.zero_grad()
        loss = layer(hidden.detach(), target).loss
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5 * first


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_and_a_saved_layer_have_the_tree(kind):
    layer, other = make(kind), KINDS[kind]().double()
    hidden, target = examples(7)
    expected = layer(hidden, target).output
    if kind in TREES:  # another tree in the same room
        other = Hierarchical(H, V, counts=torch.arange(V)).double()
        other.log_prob(hidden)
    other.load_state_dict(layer.state_dict())
    for same in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), other):
        assert torch.equal(same(hidden, target).output, expected)
        torch.testing.assert_close(same.log_prob(hidden), layer.log_prob(hidden))


def test_a_layer_on_the_meta_device_keeps_its_tree():
    layer = Hierarchical(H, V, counts=COUNTS, device="meta")
    assert path_lengths(layer.tree)[8] == 1
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert layer(*examples(3, dtype=torch.float32)).loss.isfinite()


def test_huffmans_tree_is_the_shortest():
    """Against the lengths that follow from joining the two least, step by step."""
    counts = np.array([5, 9, 12, 13, 16, 45])
    assert path_lengths(huffman_tree(counts)).tolist() == [4, 4, 3, 3, 3, 1]
    rng = np.random.default_rng(0)
    for arity in (2, 3, 5):
        for n in (2, 3, 4, 11, 40):
            counts = rng.integers(0, 50, n)
            tree = huffman_tree(counts, arity)
            check_tree(tree)
            waiting, cost = sorted(counts.tolist()), 0
            take = min(n, 2 + (n - 2) % (arity - 1))
            while len(waiting) > 1:
                joined = sum(waiting[:take])
                waiting, cost, take = sorted([*waiting[take:], joined]), cost + joined, arity
            assert (path_lengths(tree) * counts).sum() == cost
            assert tree.first[-1] == n - 1
            assert node_masses(tree, torch.from_numpy(counts))[0] == counts.sum()


def test_vectors_of_a_word_are_log_v_and_root_v():
    """Sixteen times the words: four more choices, four times the vectors."""
    few, many = (1 / (np.arange(n) + 2.7) for n in (1000, 16000))
    trees = [vectors_on_paths(huffman_tree(c), torch.from_numpy(c)) for c in (few, many)]
    assert 2 < trees[1] - trees[0] < 4
    classes = [
        vectors_on_paths(Classes(2, len(c), counts=torch.from_numpy(c)).tree, torch.from_numpy(c))
        for c in (few, many)
    ]
    assert 3 < classes[1] / classes[0] < 5


def test_classes_by_the_roots_of_counts():
    counts = np.array([100, 25, 25, 16, 16, 16, 4, 4, 4, 4, 4, 4])  # roots 10, 5, 5, 4, 4, 4, 2 …
    found = frequency_classes(counts, 4)
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3]
    distinct = np.arange(40, 0, -1)
    found = frequency_classes(distinct, 5)
    assert np.array_equal(frequency_classes(np.flip(distinct), 5), np.flip(found))


def test_cutoffs_cost_least():
    counts = 1 / (np.arange(300) + 2.7)
    share = np.concatenate([[0], counts.cumsum() / counts.sum()])

    def cost(cuts):
        edges = [*cuts, 300]
        inside = itertools.pairwise(edges)
        tails = sum((b - a) * max((share[b] - share[a]) * 2560, 128) for a, b in inside)
        return (cuts[0] + len(cuts)) * 2560 + tails

    best = best_cutoffs(counts, 256)
    others = [[a] for a in range(1, 299)]
    others += [[a, b] for a in range(1, 298, 7) for b in range(a + 1, 299, 7)]
    assert cost(best) <= 1.02 * min(map(cost, others))  # cut-offs are tried on a grid


# ------------------------------------------------------------------ files

WORDS = ["</s>", "<unk>", "the", "cat", "dog", "sees"]
TREE = "the 0\ncat 1.0.0\ndog\t1.0.1\nzebra 1.9\n\n</s> 1.1.5.0\n<unk> 1.1.5.1\nsees 1.1.5.2\n"


def test_a_tree_from_a_file(tmp_path):
    path = tmp_path / "tree.txt"
    path.write_text(TREE)
    tree = read_tree(path, WORDS, np.ones(len(WORDS)))
    check_tree(tree)
    assert path_lengths(tree).tolist() == [3, 3, 1, 3, 3, 3]  # 1.1 has one child: no choice
    assert (tree.up[[3, 4]].unique().numel(), tree.up[[0, 1, 5]].unique().numel()) == (1, 1)
    layer = Hierarchical(H, len(WORDS), tree=tree)
    assert layer.log_prob(torch.randn(3, H)).exp().sum(1).tolist() == pytest.approx([1, 1, 1])


def test_classes_from_a_file(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("the DET\n</s> end\n<unk> N\ncat N\nzebra N\nsees V\ndog N\n")
    assert read_classes(path, WORDS).tolist() == [1, 2, 0, 2, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TREE.replace("dog", "cow"), r"tree: has no path for 'dog': words of the vocabulary"),
        ("the 0\n", r"tree: has no path for '</s>' and 4 more"),
        (TREE + "the 2\n", r"tree:9: 'the' is there twice, first in line 1"),
        (TREE.replace("1.0.1", "1.0.0"), r"tree:3: the path of 'dog' is that of 'cat'"),
        (TREE.replace("1.0.1", "0.1"), r"tree:3: the path of 'dog' goes on from that of 'the'"),
        (TREE.replace("1.0.1", "1.1"), r"tree:3: the path of 'dog' is the beginning of another"),
        (TREE.replace("1.0.1", "1.x"), r"tree:3: '1.x' is no path: numbers joined by dots"),
        (TREE.replace("1.0.1", "1 0 1"), r"tree:3: must be a word and its path"),
        (TREE.replace("1.0.1", "1." * 20000 + "1"), r"tree:3: a path of 20,001 choices"),
    ],
)
def test_a_wrong_tree_is_one_clear_line(text, message, tmp_path):
    path = tmp_path / "tree"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_tree(path, WORDS, np.ones(len(WORDS)))
    assert "\n" not in str(error.value)


def test_wrong_options():
    for message, make_one in {
        "tree arity is 1, must be at least 2": lambda: Hierarchical(H, V, tree_arity=1),
        "the tree has 5 words for 23": lambda: Hierarchical(H, V, tree=huffman_tree(np.ones(5))),
        "counts has 3 entries for 23": lambda: Hierarchical(H, V, counts=torch.ones(3)),
        "counts has a number below 0": lambda: Classes(H, V, counts=-COUNTS),
        "class_count is 24, must be 1 … 23": lambda: Classes(H, V, class_count=24),
        "class_of must have 23 whole numbers": lambda: Classes(H, V, class_of=torch.zeros(3)),
        "class_of has -1": lambda: Classes(H, V, class_of=torch.full((V,), -1)),
        r"cutoffs is \[9, 4\], must rise": lambda: Adaptive(H, V, cutoffs=(9, 4)),
        r"cutoffs is \[23\], must rise": lambda: Adaptive(H, V, cutoffs=(23,)),
        "div_value is 0.5": lambda: Adaptive(H, V, div_value=0.5),
        "sparse: the gradients": lambda: Adaptive(H, V, sparse=True),
        "n_classes is 1, must": lambda: Hierarchical(H, 1),
    }.items():
        with pytest.raises(UserError, match=message):
            make_one()


@pytest.mark.parametrize("damage", ["loop", "outside", "missing", "twice", "vectors"])
def test_a_state_whose_tree_is_none_is_refused(damage):
    """A way up that never ends, or leads out of the arrays, is not walked."""
    layer = make("three")
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    if damage == "loop":
        state["tree.up"][V + 1] = 1
    elif damage == "outside":
        state["tree.up"][3] = 10**6
    elif damage == "missing":
        state["tree.up"][3] = -1
    elif damage == "twice":
        below = (state["tree.up"] == 0).nonzero()[:2, 0]
        state["tree.place"][below] = 1
    else:
        state["tree.first"][2] += 1
    with pytest.raises(UserError, match="the tree of the output layer is none"):
        layer.load_state_dict(state)


def test_extreme_states_stay_finite():
    for kind in ("binary", "four"):
        layer = make(kind, torch.float32)
        hidden = (examples(9, dtype=torch.float32)[0].detach() * 1e4).requires_grad_()
        output, loss = layer(hidden, examples(9)[1])
        loss.backward()
        assert output.isfinite().all()
        assert hidden.grad.isfinite().all()
        assert math.isfinite(float(layer.weight.grad.to_dense().abs().max()))
