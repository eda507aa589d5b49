"""Exact log-probabilities: of all classes or some, with gradients, by product or by angle."""

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from blackout import NCE, BlackOut, Full, Sampled
from blackout.errors import UserError
from blackout.output import OutputLayer, exact

V, H = 53, 6
LAYERS = {
    "blackout": lambda **o: BlackOut(H, V, 7, **o),
    "sampled": lambda **o: Sampled(H, V, 7, **o),
    "nce": lambda **o: NCE(H, V, 7, **o),
    "full": lambda **o: Full(H, V, **o),
}
GEOMETRIES = {
    "product": {},
    "temperature": {"temperature": 0.7},
    "cosine": {"normalize": True},
    "cosine-temperature": {"normalize": True, "temperature": 0.3},
}


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    monkeypatch.setattr(exact, "TILE", 10)
    monkeypatch.setattr(exact, "LOGITS", 40)  # four states at a time


def make(kind="blackout", dtype=torch.float64, **options):
    torch.manual_seed(2)
    layer = LAYERS[kind](bias=True, init_range=2.0, **options).to(dtype)
    torch.nn.init.normal_(layer.bias)
    return layer


def states(*shape, dtype=torch.float64):
    return torch.randn(*shape, H, generator=torch.Generator().manual_seed(1), dtype=dtype)


def logits_by_hand(layer, hidden, normalize_=False, temperature=1.0):
    weight = layer.weight
    if normalize_:
        hidden, weight = normalize(hidden, dim=-1), normalize(weight, dim=-1)
    return hidden @ weight.T / temperature + layer.bias


def options_by_hand(geometry):
    options = GEOMETRIES[geometry]
    cosine = options.get("normalize", False)
    return {"normalize_": cosine, "temperature": options.get("temperature", 0.1 if cosine else 1)}


# ------------------------------------------------------------------ gradients in eval()


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_loss_of_evaluation_has_gradients(kind, geometry):
    """Those of cross entropy, by states, table and bias, whatever the training loss."""
    layer = make(kind, **GEOMETRIES[geometry]).eval()
    hidden, target = states(4, 3).requires_grad_(), torch.randint(V, (4, 3))
    layer(hidden, target).loss.backward()
    found = [hidden.grad, layer.weight.grad.to_dense(), layer.bias.grad.to_dense()]
    hidden.grad = None
    layer.zero_grad()
    logits = logits_by_hand(layer, hidden, **options_by_hand(geometry))
    expected = cross_entropy(logits.view(-1, V), target.view(-1))
    expected.backward()
    torch.testing.assert_close(layer(hidden, target).loss, expected)
    for a, b in zip(found, [hidden.grad, layer.weight.grad, layer.bias.grad], strict=True):
        torch.testing.assert_close(a, b)


def test_evaluation_without_gradients_keeps_nothing():
    layer = make().eval()
    with torch.no_grad():
        assert layer(states(3), torch.randint(V, (3,))).loss.grad_fn is None
    layer.requires_grad_(False)
    assert layer(states(3), torch.randint(V, (3,))).loss.grad_fn is None
    hidden = states(3).requires_grad_()
    layer(hidden, torch.randint(V, (3,))).loss.backward()
    assert hidden.grad.abs().sum() > 0
    assert layer.weight.grad is None


# ------------------------------------------------------------------ cosines


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_logits_by_product_or_angle(kind, geometry, dtype):
    layer = make(kind, dtype, **GEOMETRIES[geometry]).eval()
    hidden, target = states(9, dtype=dtype), torch.randint(V, (9,))
    expected = logits_by_hand(layer, hidden, **options_by_hand(geometry)).log_softmax(-1)
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    torch.testing.assert_close(layer.log_prob(hidden), expected, **near)
    torch.testing.assert_close(
        torch.cat([t for _, t in layer.log_prob_tiles(hidden)], 1), expected, **near
    )
    own = expected.gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(layer.target_log_prob(hidden, target), own, **near)
    best = layer.topk(hidden, 5)
    torch.testing.assert_close(best.values, expected.topk(5).values, **near)
    assert torch.equal(layer.predict(hidden), expected.argmax(1))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_training_with_cosines_is_training_on_normalised_rows(kind, geometry):
    """The sampled loss of a layer with plain products whose rows and states are made so before."""
    layer = make(kind, **GEOMETRIES[geometry], **({} if kind == "full" else {"sparse": False}))
    plain = make(kind, **({} if kind == "full" else {"sparse": False}))
    plain.load_state_dict(layer.state_dict())
    by_hand = options_by_hand(geometry)
    hidden, target = states(8), torch.randint(V, (8,))
    a, b = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    one = layer(a, target)
    one.loss.backward()
    weight = layer.weight.detach().clone().requires_grad_()
    rows, seen = weight, b
    if by_hand["normalize_"]:
        rows, seen = normalize(rows, dim=-1), normalize(seen, dim=-1)
    given = {name: p.detach() for name, p in plain.named_parameters()} | {"table.weight": rows}
    two = torch.func.functional_call(plain, given, (seen / by_hand["temperature"], target))
    two.loss.backward()
    torch.testing.assert_close(one.output, two.output)
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(layer.weight.grad, weight.grad)


@pytest.mark.parametrize("impl", ["native", "reference"])
@pytest.mark.parametrize("collisions", ["keep", "remove"])
def test_cosines_touch_few_rows_on_every_engine(impl, collisions):
    layer = make(
        dtype=torch.float32,
        normalize=True,
        impl=impl,
        collisions=collisions,
        counts=torch.arange(1, V + 1),
    )
    exact_layer = copy.deepcopy(layer).double()
    exact_layer.impl = exact_layer.table.impl = "auto"
    hidden, target = states(8, dtype=torch.float32), torch.randint(V, (8,))
    found, expected = layer(hidden, target), exact_layer(hidden.double(), target)
    torch.testing.assert_close(found.output.double(), expected.output, rtol=1e-4, atol=1e-4)
    found.loss.backward()
    assert layer.weight.grad.is_sparse
    assert layer.bias.grad.is_sparse
    assert len(layer.weight.grad._indices()[0]) <= 7 + 8
    expected.loss.backward()
    torch.testing.assert_close(
        layer.weight.grad.to_dense().double(),
        exact_layer.weight.grad.to_dense(),
        rtol=1e-3,
        atol=1e-5,
    )


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), float("inf")])
def test_a_temperature_that_is_none(temperature):
    with pytest.raises(UserError, match="temperature is"):
        BlackOut(H, V, 7, temperature=temperature)


# ------------------------------------------------------------------ some classes


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("geometry", ["product", "cosine"])
@pytest.mark.parametrize("shape", [(9,), (2, 3), ()])
def test_log_probabilities_of_some_classes(kind, geometry, shape):
    """Normalised over all of them, the same for all states or each its own."""
    layer = make(kind, **GEOMETRIES[geometry]).eval()
    hidden = states(*shape)
    everything = layer.log_prob(hidden)
    shared = torch.tensor([5, 52, 0, 5, 30, 31, 32, 33, 34, 35, 36, 37])
    own = torch.randint(V, (*shape, 14))
    for classes in (shared, own, shared.int()):
        expected = everything.gather(-1, classes.long().expand(*shape, classes.shape[-1]))
        for found in (
            layer.log_prob(hidden, classes),
            OutputLayer.log_prob(layer, hidden, classes),
        ):
            torch.testing.assert_close(found, expected)
        best = expected.topk(4)
        for found in (layer.topk(hidden, 4, classes), OutputLayer.topk(layer, hidden, 4, classes)):
            torch.testing.assert_close(found.values, best.values.detach())
            named = classes.long().expand_as(expected).gather(-1, found.indices * 0 + best.indices)
            torch.testing.assert_close(
                everything.gather(-1, found.indices), everything.gather(-1, named)
            )
        assert torch.equal(
            everything.gather(-1, layer.predict(hidden, classes)[..., None])[..., 0],
            expected.max(-1).values,
        )


def test_the_log_probability_of_some_has_gradients():
    layer = make(sparse=False)
    hidden, classes = states(3).requires_grad_(), torch.tensor([4, 9])
    found, expected = layer.log_prob(hidden, classes), layer.log_prob(hidden)[:, classes]
    gradients = [
        torch.autograd.grad(part.square().sum(), [hidden, layer.weight, layer.bias])
        for part in (found, expected)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a.to_dense(), b)


def test_classes_that_there_are_not():
    layer = make()
    with pytest.raises(UserError, match="classes has 53, which is not a class: 0 … 52"):
        layer.topk(states(3), 2, torch.tensor([1, 53]))
    with pytest.raises(UserError, match=r"classes \(2, 5\) must be \(n,\), or \(3, n\) for states"):
        layer.log_prob(states(3), torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(UserError, match="k is 3, more than there are classes"):
        layer.topk(states(3), 3, torch.tensor([1, 2]))


# ------------------------------------------------------------------ label smoothing


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing_is_pytorch_s(smoothing):
    layer = make("full", label_smoothing=smoothing)
    hidden, target = states(9).requires_grad_(), torch.randint(V, (9,))
    names = [hidden, layer.weight, layer.bias]
    loss = layer(hidden, target).loss
    logits = logits_by_hand(layer, hidden)
    expected = cross_entropy(logits, target, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    for a, b in zip(
        torch.autograd.grad(loss, names), torch.autograd.grad(expected, names), strict=True
    ):
        torch.testing.assert_close(a, b)
    plain = cross_entropy(logits, target)
    torch.testing.assert_close(layer.eval()(hidden, target).loss, plain)
    with pytest.raises(UserError, match="label_smoothing is 1"):
        Full(H, V, label_smoothing=1)
