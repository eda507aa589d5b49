"""Several true classes an example: the mean over them, and none is a negative of another."""

import math

import pytest
import torch
from torch.nn.functional import logsigmoid

from blackout import NCE, BlackOut, Full, Sampled
from blackout.errors import UserError

V, H, K = 23, 6, 40  # so many samples that many are true
COUNTS = torch.arange(1, V + 1)
LAYERS = {
    "blackout": lambda **o: BlackOut(H, V, K, counts=COUNTS, **o),
    "remove": lambda **o: BlackOut(H, V, K, counts=COUNTS, collisions="remove", **o),
    "noise": lambda **o: BlackOut(H, V, K, counts=COUNTS, negatives="nce", **o),
    "sampled": lambda **o: Sampled(H, V, K, counts=COUNTS, **o),
    "nce": lambda **o: NCE(H, V, K, counts=COUNTS, **o),
    "full": lambda **o: Full(H, V, **o),
}
LABELS = torch.tensor([[20, 21, 4], [22, -100, -100], [-100, 19, 22], [-100, -100, -100]])


def make(kind, dtype=torch.float64, **options):
    torch.manual_seed(3)
    return LAYERS[kind](init_range=0.8, bias=True, **options).to(dtype)


def states(dtype=torch.float64):
    return torch.randn(4, H, generator=torch.Generator().manual_seed(1), dtype=dtype)


def by_hand(kind, layer, hidden, own, others, samples):
    """J of one class of one example, from the formulas."""
    logits = hidden @ layer.weight.T + layer.bias
    if kind == "full":
        rest = [w for w in range(V) if w not in others]
        return logits[own] - logits[rest].logsumexp(0)
    log_q = (COUNTS / COUNTS.sum()).double().log()
    kept = [w for w in samples if w not in others and (kind != "remove" or w != own)]
    if kind == "nce":
        d = logits - layer.log_z - math.log(K) - log_q
        return logsigmoid(d[own]) + logsigmoid(-d[kept]).sum()
    z = logits - log_q
    p = torch.stack([z[own], *z[kept]]).softmax(0)
    if kind == "sampled":
        return p[0].log()
    if kind == "noise":
        share = z[kept].softmax(0)
        return p[0].log() - torch.log1p(share).sum()
    return p[0].log() + torch.log1p(-p[1:]).sum()


@pytest.mark.parametrize("kind", LAYERS)
def test_the_mean_over_the_classes_each_against_the_others_samples(kind):
    layer = make(kind)
    hidden = states().requires_grad_()
    output, loss = layer(hidden, LABELS)
    if kind != "full":
        layer.step.zero_()
    samples = [] if kind == "full" else layer.draw(LABELS[LABELS >= 0]).samples[0].tolist()
    expected = []
    for state, labels in zip(hidden, LABELS.tolist(), strict=True):
        true = [w for w in labels if w >= 0]
        values = [
            by_hand(kind, layer, state, own, [w for w in true if w != own], samples) for own in true
        ]
        expected.append(torch.stack(values).mean() if values else state.sum() * 0)
    expected = torch.stack(expected)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(loss, -expected[:3].mean())
    names = [hidden, layer.weight, layer.bias]
    for a, b in zip(
        torch.autograd.grad(loss, names),
        torch.autograd.grad(-expected[:3].mean(), names),
        strict=True,
    ):
        torch.testing.assert_close(a.to_dense(), b)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("sharing", ["block", "step", "word"])
def test_one_class_each_is_the_ordinary_loss(kind, sharing):
    hidden, target = states(), torch.tensor([3, 22, 0, 7])
    options = {} if kind == "full" else {"sharing": sharing}
    one, two = (make(kind, **options) for _ in range(2))
    found = one(hidden, target[:, None])
    expected = two(hidden, target)
    torch.testing.assert_close(found.output, expected.output)
    padded = torch.cat([target[:, None], torch.full((4, 2), -100)], 1)
    if kind != "full":
        one.step.zero_()
    torch.testing.assert_close(one(hidden, padded).output, expected.output)


@pytest.mark.parametrize("kind", LAYERS)
def test_evaluation_is_the_mean_of_exact_log_probabilities(kind):
    layer = make(kind).eval()
    hidden = states()
    logs = layer.log_prob(hidden)
    output, loss = layer(hidden, LABELS)
    expected = [logs[i][row[row >= 0]].mean() for i, row in enumerate(LABELS) if (row >= 0).any()]
    torch.testing.assert_close(output[:3], torch.stack(expected))
    torch.testing.assert_close(loss, -torch.stack(expected).mean())


@pytest.mark.parametrize("kind", LAYERS)
def test_weights_masks_shapes_and_float32(kind):
    layer, single = make(kind), make(kind, torch.float32)
    single.load_state_dict(layer.state_dict())
    hidden = states().view(2, 2, H)
    weights, mask = (
        torch.tensor([[2.0, 1.0], [3.0, 9.0]]),
        torch.tensor([[True, False], [True] * 2]),
    )
    labels = LABELS.view(2, 2, 3)
    output, loss = layer(hidden, labels, mask, weights=weights)
    other = single(hidden.float(), labels, mask, weights=weights)
    torch.testing.assert_close(other.output.double(), output, rtol=1e-4, atol=1e-4)
    assert output.shape == (2, 2)
    torch.testing.assert_close(loss, -(2 * output[0, 0] + 3 * output[1, 0]) / 5)
    with pytest.raises(UserError, match=r"target 23 is not a class: 0 … 22; targets \(N, L\) are"):
        layer(hidden, labels.masked_fill(labels == 22, 23))
    layer(states(), torch.full((4, 2), -100)).loss.backward()  # nothing is true: nothing is learned
    assert not layer.weight.grad.to_dense().any()


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_a_class_that_is_named_twice_counts_once(kind, training):
    once = torch.tensor([[4, 17, 9], [5, -100, -100]])
    twice = torch.tensor([[4, 17, 4, 9, 17, 4], [5, 5, -100, 5, -100, -100]])
    found = []
    for labels in (once, twice):
        layer, hidden = make(kind).train(training), states()[:2].requires_grad_()
        output, loss = layer(hidden, labels)
        loss.backward()
        found.append([output, loss, hidden.grad, layer.weight.grad.to_dense()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_states_without_a_class_may_be_anything(kind, training):
    found = []
    for nothing in (0.0, math.nan):
        layer, hidden = make(kind).train(training), states()
        hidden[3] = nothing
        hidden[1] = nothing
        hidden.requires_grad_()
        mask = torch.tensor([True, False, True, True])
        output, loss = layer(hidden, LABELS, mask)
        loss.backward()
        found.append([output, loss, hidden.grad, layer.weight.grad.to_dense()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
