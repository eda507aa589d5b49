"""The paths of trees on every engine: values and gradients are the reference's in float64."""

import numpy as np
import pytest
import torch

from blackout.ops import reference
from blackout.output.trees import class_tree, frequency_classes, huffman_tree

COUNTS = 1 / (np.arange(70) + 1.5)
TREES = {
    "binary": huffman_tree(COUNTS),
    "even": huffman_tree(np.ones(70)),
    "five": huffman_tree(COUNTS, 5),
    "flat": huffman_tree(COUNTS, 70),
    "classes": class_tree(frequency_classes(COUNTS, 6), COUNTS),
    "two words": huffman_tree(np.ones(2)),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("size", [1, 24, 37, 256])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_values_and_gradients(engine, name, size, bias, half):
    tree = TREES[name]
    generator = torch.Generator().manual_seed(size)
    hidden = torch.randn(150, size, generator=generator)
    weight = torch.randn(tree.words - 1, size, generator=generator) * 3 / size**0.5
    weight = weight.bfloat16() if half else weight
    biases = torch.randn(tree.words - 1, generator=generator) if bias else None
    target = torch.randint(tree.words, (150,), generator=generator)
    grad = torch.randn(150, generator=generator)
    value, saved = engine.path_forward(hidden, weight, biases, tree, target)
    found = engine.path_backward(saved, grad)
    wide = (hidden.double(), weight.double(), None if biases is None else biases.double())
    expected, kept = reference.path_forward(*wide, tree, target)
    truth = reference.path_backward(kept, grad.double())
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=2e-5)
    again = engine.path_log_prob(hidden, weight, biases, tree, target)
    torch.testing.assert_close(again, value, rtol=1e-6, atol=1e-6)
    assert torch.equal(found.rows.sort().values, truth.rows)
    order = found.rows.argsort()
    torch.testing.assert_close(found.hidden.double(), truth.hidden, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        found.row_values[order].double(), truth.row_values, rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(
        found.bias_values[order].double(), truth.bias_values, rtol=1e-4, atol=1e-4
    )


def test_no_words(engine):
    tree = TREES["five"]
    hidden, weight = torch.zeros(0, 8), torch.zeros(tree.words - 1, 8)
    target = torch.zeros(0, dtype=torch.int64)
    value, saved = engine.path_forward(hidden, weight, None, tree, target)
    found = engine.path_backward(saved, value)
    assert (value.shape, found.rows.shape, found.hidden.shape) == ((0,), (0,), (0, 8))


def test_threads_do_not_change_a_number():
    tree, generator = TREES["classes"], torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 64, generator=generator) for n in (3000, tree.words - 1))
    target = torch.randint(tree.words, (3000,), generator=generator)
    from blackout.ops import cpu

    results = []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        value, saved = cpu.path_forward(hidden, weight, None, tree, target)
        results.append([value, *cpu.path_backward(saved, torch.ones(3000))])
    torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_a_word_that_is_none_is_refused():
    from blackout.ops import cpu

    tree = TREES["binary"]
    with pytest.raises(IndexError, match="target 70 is not in 0 … 69"):
        cpu.path_log_prob(torch.zeros(1, 4), torch.zeros(69, 4), None, tree, torch.tensor([70]))
