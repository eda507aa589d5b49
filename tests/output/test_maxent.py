"""Hashed n-gram features: a dense feature model where nobody shares a number."""

import pytest
import torch

from blackout.errors import UserError
from blackout.ops.dispatch import ENGINES
from blackout.ops.engine import Added, Windows
from blackout.output import (
    NCE,
    BlackOut,
    Classes,
    Full,
    Hierarchical,
    Sampled,
    SelfNormalised,
    SelfNormalisedFull,
)
from blackout.output.maxent import Features, count_shared

V, H, ORDER = 13, 5, 2
LAYERS = {
    "blackout": BlackOut,
    "nce": NCE,
    "sampled": Sampled,
    "self-normalised": SelfNormalised,
    "full": Full,
    "self-normalised-all": SelfNormalisedFull,
}
OVER_ALL = ("full", "self-normalised-all")
TREES = {
    "binary": lambda **o: Hierarchical(H, V, counts=torch.arange(1, V + 1), **o),
    "four": lambda **o: Hierarchical(H, V, counts=torch.arange(1, V + 1), tree_arity=4, **o),
    "classes": lambda **o: Classes(H, V, counts=torch.arange(1, V + 1), **o),
}
HISTORY = torch.tensor([[3, 7], [3, 9], [0, 0], [5, 7]])


def make(kind, bits=12, **options):
    torch.manual_seed(3)
    if kind not in OVER_ALL:
        options = {"samples": 6, "counts": torch.arange(1, V + 1), **options}
    layer = LAYERS[kind](H, V, maxent=ORDER, maxent_bits=bits, dtype=torch.float64, **options)
    with torch.no_grad():
        layer.features.numbers.normal_()
    return layer


def batch():
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(len(HISTORY), H, dtype=torch.float64, generator=generator)
    return hidden.requires_grad_(), torch.tensor([1, 12, 4, 1])


def all_logits(layer, hidden):
    """By the definition, one word and one order at a time."""
    start, numbers = layer.features.starts(HISTORY), layer.features.numbers
    rows = [
        torch.stack(
            [
                layer.weight[w] @ hidden[i]
                + sum(numbers[(int(start[i, n]) + w) % len(numbers)] for n in range(ORDER))
                for w in range(V)
            ]
        )
        for i in range(len(HISTORY))
    ]
    return torch.stack(rows)


@pytest.mark.parametrize("kind", LAYERS)
def test_exact_scores_are_those_of_the_definition(kind):
    layer = make(kind)
    hidden, target = batch()
    expected = all_logits(layer, hidden).log_softmax(1)
    logs = layer.log_prob(hidden, history=HISTORY).detach()
    expected = expected.detach()
    assert logs.exp().sum(1) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(logs, expected)
    by_target = expected.gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(layer.target_log_prob(hidden, target, HISTORY), by_target)
    torch.testing.assert_close(
        layer.topk(hidden, 3, history=HISTORY).values, expected.topk(3).values
    )
    some = torch.tensor([2, 11, 5])
    torch.testing.assert_close(layer.log_prob(hidden, some, HISTORY), expected[:, some])
    row = torch.tensor([2, 0, 2])
    pairs = layer.pair_log_prob(hidden, row, some, HISTORY)
    torch.testing.assert_close(pairs, expected[row, some])
    layer.eval()
    found = layer(hidden, target, history=HISTORY).output.detach()
    torch.testing.assert_close(found, by_target)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_autograds(kind, training):
    """Against finite differences, by states, vectors and features."""
    layer = make(kind, bits=5, **({} if kind in OVER_ALL else {"sparse": False}))
    layer.train(training)
    hidden, target = batch()

    def loss(hidden, weight, numbers):
        if hasattr(layer, "step"):
            layer.step.zero_()
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.features.numbers.copy_(numbers)
        return layer(hidden, target, history=HISTORY).loss

    given = [p.detach().clone() for p in (hidden, layer.weight, layer.features.numbers)]
    value = loss(hidden, *given[1:])
    parameters = (hidden, layer.weight, layer.features.numbers)
    found = [g.to_dense() for g in torch.autograd.grad(value, parameters)]
    for number, gradient in enumerate(found):
        for place in torch.randperm(gradient.numel())[:12].tolist():
            ends = []
            for sign in (1, -1):
                moved = [p.clone() for p in given]
                moved[number].view(-1)[place] += sign * 1e-6
                ends.append(float(loss(*moved).detach()))
            slope = (ends[0] - ends[1]) / 2e-6
            assert float(gradient.view(-1)[place]) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("kind", LAYERS)
def test_without_sharing_it_is_a_dense_feature_model(kind):
    """Training D is training one number for each (history, word), in 30 steps of SGD."""
    hidden, target = batch()
    hidden = hidden.detach()
    hashed, plain = (make(kind, sparse=kind not in OVER_ALL) for _ in range(2))
    start = hashed.features.starts(HISTORY)
    places = (start[..., None] + torch.arange(V)) % 2**12  # (N, order, V)
    contexts = [(n, tuple(HISTORY[i, : n + 1].tolist())) for i in range(4) for n in range(ORDER)]
    assert len(places.reshape(8, V).unique(dim=0).unique()) == len(set(contexts)) * V
    table = {
        c: hashed.features.numbers.detach()[p]
        for c, p in zip(contexts, places.view(8, V), strict=True)
    }
    with torch.no_grad():
        plain.features.numbers.zero_()
    plain.features.of_samples = lambda history, words: dense(table, words)
    plain.features.of_all = lambda history, words: torch.stack(
        [sum(table[n, tuple(h[: n + 1].tolist())] for n in range(ORDER)) for h in HISTORY]
    )
    plain.features.at = lambda history, words: (
        plain.features.of_all(HISTORY, V).gather(1, words.reshape(-1, 1)).view(words.shape)
    )
    table = {context: row.clone().requires_grad_() for context, row in table.items()}

    def dense(table, words):
        every = plain.features.of_all(HISTORY, V)
        return Added(
            every.gather(1, words.target.view(-1, 1)).view(words.target.shape),
            every[:, words.samples[0]][None],
        )

    sgd = torch.optim.SGD(hashed.parameters(), lr=0.3)
    other = torch.optim.SGD([*plain.parameters(), *table.values()], lr=0.3)
    for _ in range(30):
        for layer, optimizer in ((hashed, sgd), (plain, other)):
            optimizer.zero_grad()
            layer(hidden, target, history=HISTORY).loss.backward()
            optimizer.step()
    for context, place in zip(contexts, places.reshape(8, V), strict=True):
        torch.testing.assert_close(hashed.features.numbers.detach()[place], table[context].detach())
    torch.testing.assert_close(hashed.weight, plain.weight)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bits", [4, 7, 20])
def test_native_windows_are_the_references(threads, bits):
    """Also where the ring is shorter than the vocabulary, and whatever the threads."""
    native, reference = ENGINES["native"], ENGINES["reference"]
    generator = torch.Generator().manual_seed(bits)
    numbers = torch.randn(2**bits, generator=generator).clamp(min=0)  # half of them are 0
    start = torch.randint(2**bits, (2, 3, 4), generator=generator)
    target, samples = (torch.randint(50, s, generator=generator) for s in ((2, 3), (2, 9)))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for engine_values in zip(
            native.window_values(numbers, start, target, samples),
            reference.window_values(numbers, start, target, samples),
            strict=True,
        ):
            torch.testing.assert_close(*engine_values)
        d = Added(torch.randn(2, 3, generator=generator), torch.randn(2, 3, 9, generator=generator))
        found = native.window_gradient(numbers, start, target, samples, d)
        expected = reference.window_gradient(numbers, start, target, samples, d)
        assert found[0].tolist() == expected[0].tolist()
        torch.testing.assert_close(found[1], expected[1])
        windows = Windows(numbers, start.view(6, 4))
        logits = torch.zeros(6, 40), torch.zeros(6, 40)
        gradients = torch.zeros(2**bits), torch.zeros(2**bits)
        for engine, tile, gradient in zip((native, reference), logits, gradients, strict=True):
            engine.add_windows(tile, windows, 7)
            engine.add_window_gradient(logits[0], windows.start, 7, gradient)
        torch.testing.assert_close(*logits)
        torch.testing.assert_close(*gradients)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["native", "reference"])
def test_what_is_touched_follows_from_words_whatever_the_derivatives(name):
    """Of 0 or next to it: lazy moments know a touch, and rounding is not to decide it."""
    generator = torch.Generator().manual_seed(2)
    numbers = torch.randn(2**10, generator=generator).clamp(min=0)
    start = torch.randint(2**10, (2, 3, 4), generator=generator)
    target, samples = (torch.randint(50, s, generator=generator) for s in ((2, 3), (2, 9)))
    of_targets = (start + target[..., None]) % 2**10
    of_samples = (start[..., None] + samples[:, None, None]) % 2**10
    had = of_samples[numbers[of_samples] != 0]
    expected = torch.cat([of_targets.view(-1), had]).unique()
    some = Added(torch.randn(2, 3, generator=generator), torch.randn(2, 3, 9, generator=generator))
    engine = ENGINES[name]
    for size in (1.0, 1e-30, 0.0):
        d = Added(*(size * part for part in some))
        places, values = engine.window_gradient(numbers, start, target, samples, d)
        assert places.tolist() == expected.tolist()
        assert bool(values.any()) == (size > 0)


def test_samples_leave_alone_what_no_target_has_had():
    """In a new table only the targets' features learn; later their samples' too."""
    layer = make("sampled", samples=40)
    with torch.no_grad():
        layer.features.numbers.zero_()
    hidden, target = batch()
    places = (layer.features.starts(HISTORY) + target[:, None]) % 2**12
    sgd = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(2):
        sgd.zero_grad()
        layer(hidden, target, history=HISTORY).loss.backward()
        assert set(layer.features.numbers.detach().nonzero()[:, 0].tolist()) <= set(
            places.view(-1).tolist()
        )
        sgd.step()
    assert sorted(layer.features.numbers.detach().nonzero()[:, 0].tolist()) == sorted(
        set(places.view(-1).tolist())
    )
    before = layer.features.numbers.detach().clone()
    sgd.zero_grad()
    layer(hidden, torch.full_like(target, 9), history=HISTORY).loss.backward()
    sgd.step()
    learnt = layer.features.numbers.detach()
    assert (learnt[before != 0] < before[before != 0]).any()  # samples now


def test_shared_numbers_are_counted():
    history = torch.tensor([[1, 2], [1, 3], [1, 2], [4, 2]])
    target = torch.tensor([5, 5, 5, 6])
    alone = count_shared([(history, target)], 8, bits=30)
    assert alone == (5, 0, 1.0)  # 1→5, 12→5, 13→5, 4→6, 42→6
    assert count_shared([(history, target)], 8, bits=1).shared >= 4
    long = torch.randint(50, (20_000, 1), generator=torch.Generator().manual_seed(1))
    words = torch.randint(900, (20_000,), generator=torch.Generator().manual_seed(2))
    exact = count_shared([(long, words)], 20_000, bits=16)
    assert exact.features == len((long[:, 0] * 900 + words).unique())
    rough = count_shared([(long, words)], 20_000, bits=16, most=5_000)
    assert rough.counted == 0.25
    assert rough.features == pytest.approx(exact.features, rel=0.1)
    assert rough.shared == pytest.approx(exact.shared, rel=0.1)


def test_bad_input():
    hidden, target = batch()
    layer = make("blackout")
    with pytest.raises(UserError, match="maxent 2 looks at the 2 words before each target"):
        layer(hidden, target)
    with pytest.raises(UserError, match=r"history= has 1"):
        layer.log_prob(hidden, history=HISTORY[:, :1])
    with pytest.raises(UserError, match="maxent_bits is 41, must be 1 to 40"):
        Features(2, 41)
    with pytest.raises(UserError, match="maxent is -1"):
        Features(-1, 10)
    with pytest.raises(UserError, match=r"maxent_bits 40 needs about 4,398.0 GB of memory"):
        Features(2, 40)


@pytest.mark.parametrize("arity", [2, 4])
def test_at_the_nodes_of_a_path(arity):
    """Sums to one, one word as all words are, gradients by finite differences."""
    torch.manual_seed(6)
    options = {"maxent": ORDER, "maxent_bits": 6, "dtype": torch.float64, "sparse": False}
    counts = torch.arange(1, V + 1)
    layer = Hierarchical(H, V, counts=counts, tree_arity=arity, bias=True, **options)
    hidden, target = batch()
    plain = layer.log_prob(hidden, history=HISTORY).detach()
    with torch.no_grad():
        layer.features.numbers.normal_()
    logs = layer.log_prob(hidden, history=HISTORY)
    assert not torch.allclose(logs, plain)
    assert logs.detach().exp().sum(1) == pytest.approx(1, abs=1e-12)
    every = torch.arange(V).expand(len(HISTORY), -1)
    torch.testing.assert_close(layer.log_prob(hidden, every, HISTORY), logs)
    torch.testing.assert_close(layer.topk(hidden, 2, history=HISTORY).values, logs.topk(2).values)

    def objective(hidden, weight, numbers):
        given = {"table.weight": weight, "features.table.weight": numbers}
        return torch.func.functional_call(layer, given, (hidden, target, None, HISTORY)).output

    values = (layer.weight, layer.features.numbers)
    assert torch.autograd.gradcheck(
        objective, (hidden, *(p.detach().clone().requires_grad_() for p in values))
    )


@pytest.mark.parametrize("kind", TREES)
def test_on_a_path_it_is_a_dense_feature_model(kind):
    """One number for each (history, vector of a node), in 30 steps of SGD and in every score."""
    torch.manual_seed(3)
    layer = TREES[kind](maxent=ORDER, maxent_bits=12, bias=True, dtype=torch.float64)
    with torch.no_grad():
        layer.features.numbers.normal_()
    hidden, target = batch()
    hidden = hidden.detach()
    vectors = len(layer.weight)
    places = (layer.features.starts(HISTORY)[..., None] + torch.arange(vectors)) % 2**12
    contexts = [(n, tuple(HISTORY[i, : n + 1].tolist())) for i in range(4) for n in range(ORDER)]
    rows = dict(zip(contexts, places.view(-1, vectors), strict=True))
    assert len(torch.cat(list(rows.values())).unique()) == len(rows) * vectors  # nobody shares
    begun = layer.features.numbers.detach()
    table = {context: begun[row].clone().requires_grad_() for context, row in rows.items()}
    weight, bias = (p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias))
    up, place, first = (part.tolist() for part in layer.tree)

    def by_definition(i, word):
        u = weight @ hidden[i] + bias
        u = u + sum(table[n, tuple(HISTORY[i, : n + 1].tolist())] for n in range(ORDER))
        total, at = 0.0, word
        while up[at] >= 0:
            node = up[at]
            choices = torch.cat([u.new_zeros(1), u[first[node] : first[node + 1]]])
            total, at = total + choices.log_softmax(0)[place[at]], V + node
        return total

    ours = torch.optim.SGD(layer.parameters(), lr=0.3)
    dense = torch.optim.SGD([weight, bias, *table.values()], lr=0.3)
    for _ in range(30):
        loss = -sum(by_definition(i, int(word)) for i, word in enumerate(target)) / len(target)
        for optimizer, value in (
            (ours, layer(hidden, target, history=HISTORY).loss),
            (dense, loss),
        ):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    torch.testing.assert_close(layer.weight, weight)
    for context, row in rows.items():
        torch.testing.assert_close(layer.features.numbers.detach()[row], table[context].detach())
    expected = torch.stack([torch.stack([by_definition(i, w) for w in range(V)]) for i in range(4)])
    torch.testing.assert_close(layer.log_prob(hidden, history=HISTORY), expected)
