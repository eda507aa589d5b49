"""What every output layer does beside its objective: tiles, best classes, the loss's divisor."""

import pytest
import torch

from blackout import NCE, Adaptive, BlackOut, Classes, Full, Hierarchical, Sampled
from blackout.errors import UserError
from blackout.output import OutputLayer, exact

V, H = 53, 6
LAYERS = {
    "blackout": lambda **o: BlackOut(H, V, 7, **o),
    "sampled": lambda **o: Sampled(H, V, 7, **o),
    "nce": lambda **o: NCE(H, V, 7, **o),
    "full": lambda **o: Full(H, V, **o),
    "hierarchical": lambda **o: Hierarchical(H, V, counts=torch.arange(V), **o),
    "wide tree": lambda **o: Hierarchical(H, V, counts=torch.arange(V), tree_arity=5, **o),
    "classes": lambda **o: Classes(H, V, counts=torch.arange(V), **o),
    "adaptive": lambda **o: Adaptive(H, V, counts=torch.arange(V), **o),
}


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    monkeypatch.setattr(exact, "TILE", 10)
    monkeypatch.setattr(exact, "LOGITS", 40)  # four states at a time


@pytest.fixture(params=LAYERS)
def layer(request):
    torch.manual_seed(2)
    made = LAYERS[request.param](bias=True, init_range=2.0)
    for _name, p in made.named_parameters():
        if p.ndim == 1:
            torch.nn.init.normal_(p)
    return made.eval()


def states(*shape):
    return torch.randn(*shape, H, generator=torch.Generator().manual_seed(1))


def test_tiles_are_the_whole(layer):
    hidden = states(9)
    tiles = list(layer.log_prob_tiles(hidden))
    assert [first for first, _ in tiles] == list(range(0, V, 10))
    joined = torch.cat([tile for _, tile in tiles], 1)
    torch.testing.assert_close(joined, layer.log_prob(hidden), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(joined.exp().sum(1), torch.ones(9), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(OutputLayer.log_prob(layer, hidden), joined)


@pytest.mark.parametrize("k", [1, 3, 10, 25, V])
@pytest.mark.parametrize("shape", [(9,), (2, 3), (1,)])
def test_the_best_classes_are_torch_topk_s(layer, k, shape):
    hidden = states(*shape)
    expected = layer.log_prob(hidden).topk(k)
    for found in (layer.topk(hidden, k), OutputLayer.topk(layer, hidden, k)):
        torch.testing.assert_close(found.values, expected.values.detach(), rtol=1e-5, atol=1e-5)
        assert torch.equal(found.indices, expected.indices)
        assert not found.values.requires_grad
    assert torch.equal(layer.predict(hidden), expected.indices[..., 0])


def test_more_than_all_is_refused(layer):
    with pytest.raises(UserError, match=f"k is {V + 1}, more than there are classes"):
        layer.topk(states(2), V + 1)


def test_pairs_are_those_of_the_targets(layer):
    hidden, row = states(4), torch.tensor([3, 0, 3, 1])
    target = torch.tensor([5, 52, 0, 5])
    expected = layer.target_log_prob(hidden[row], target)
    for found in (
        layer.pair_log_prob(hidden, row, target),
        OutputLayer.pair_log_prob(layer, hidden, row, target),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_log_prob_has_gradients(layer):
    hidden = states(3).requires_grad_()
    layer.log_prob(hidden)[:, 5].sum().backward()
    assert hidden.grad.abs().sum() > 0
    assert layer.weight.grad.abs().sum() > 0


def test_a_bf16_table_is_read_tile_by_tile(monkeypatch):
    """No float32 copy of it is made, whatever it is asked."""
    layer = BlackOut(H, 20_000, 7, storage="bf16", init_range=1.0).eval()
    largest = 0
    to = torch.Tensor.to

    def watched(self, *arguments, **keywords):
        nonlocal largest
        largest = max(largest, len(self) if self.dtype == torch.bfloat16 and self.ndim == 2 else 0)
        return to(self, *arguments, **keywords)

    hidden = states(2)
    expected = (hidden @ layer.weight.float().mT).log_softmax(-1)
    monkeypatch.setattr(torch.Tensor, "to", watched)
    with torch.no_grad():
        found = layer.log_prob(hidden)
        assert torch.equal(layer.predict(hidden), expected.argmax(-1))
    assert 0 < largest <= 8192
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_the_divisor_of_the_loss(layer, masked):
    hidden, target = states(4, 3), torch.randint(V, (4, 3))
    mask = torch.tensor([True, False, True]).expand(4, 3) if masked else None
    output, mean = layer(hidden, target, mask)
    _, loss = layer(hidden, target, mask, divisor=100)
    torch.testing.assert_close(loss, -output.sum() / 100)
    torch.testing.assert_close(mean, -output.sum() / (8 if masked else 12))


def test_a_second_derivative_is_refused(layer):
    hidden = states(4, 3).requires_grad_()
    loss = layer.train()(hidden, torch.randint(V, (4, 3))).loss
    with pytest.raises(UserError, match="first derivatives only"):
        torch.autograd.grad(loss, hidden, create_graph=True)


@pytest.mark.parametrize("own", [False, True])
def test_no_classes_at_all_are_none(layer, own):
    """Candidates that a filter took away, the same for all states or their own."""
    none = torch.zeros((4, 0) if own else (0,), dtype=torch.int64)
    assert layer.log_prob(states(4), none).shape == (4, 0)
    assert layer.topk(states(4), 0, classes=none).indices.shape == (4, 0)
    with pytest.raises(UserError, match="k is 1, more than there are classes"):
        layer.topk(states(4), 1, classes=none)
