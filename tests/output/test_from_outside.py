"""What users bring: samples, proposals, losses, embeddings, activation checkpointing."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import embedding, log_softmax
from torch.utils.checkpoint import checkpoint

from blackout import NCE, BlackOut, Draw, Full, Objective, Proposal, Sampled
from blackout.errors import UserError
from blackout.output import recompute
from blackout.proposals import (
    InBatchProposal,
    MixtureProposal,
    UnigramProposal,
    random_below,
    random_bits,
)

V, H, K = 60, 6, 9
LAYERS = {
    "blackout": lambda **o: BlackOut(H, V, K, **o),
    "sampled": lambda **o: Sampled(H, V, K, **o),
    "nce": lambda **o: NCE(H, V, K, **o),
}


def make(kind, **options):
    torch.manual_seed(3)
    return LAYERS[kind](init_range=0.8, **{"counts": torch.arange(1, V + 1), **options})


def batch(*shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, H, generator=generator), torch.randint(V, shape, generator=generator)


# ------------------------------------------------------------------ samples


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("sharing", ["block", "step", "word"])
def test_samples_that_were_drawn_before(kind, sharing):
    """What ``draw`` gave is what the layer would have drawn."""
    hidden, target = batch(4, 3)
    one, two = make(kind, sharing=sharing), make(kind, sharing=sharing)
    drawn = two.draw(target)
    assert drawn.samples.shape == ({"block": 1, "step": 4, "word": 12}[sharing], K)
    torch.testing.assert_close(
        one(hidden, target).output, two(hidden, target, samples=drawn).output
    )
    assert int(two.step) == 1
    torch.testing.assert_close(
        two(hidden, target, samples=drawn.samples).output,
        two(hidden, target, samples=drawn).output,
    )


@pytest.mark.parametrize("kind", LAYERS)
def test_samples_of_ones_own(kind):
    """Only these and the targets have gradients; with densities of one's own, those count."""
    layer, (hidden, target) = make(kind), batch(5)
    mined = torch.tensor([50, 51, 52], dtype=torch.int32)
    output, loss = layer(hidden, target, samples=mined)
    loss.backward()
    assert set(layer.weight.grad._indices()[0].tolist()) == {50, 51, 52, *target.tolist()}
    log_q = (torch.arange(1, V + 1) / torch.arange(1, V + 1).sum()).log()
    same = Draw(mined, log_q[mined.long()], log_q[target])
    torch.testing.assert_close(layer(hidden, target, samples=same).output, output)
    other = Draw(mined, log_q[mined.long()] + 1, log_q[target])
    assert not torch.allclose(layer(hidden, target, samples=other).output, output)
    layer.eval()(hidden, target, samples=mined)


def test_samples_that_are_none():
    layer, (hidden, target) = make("blackout", sharing="step"), batch(4, 3)
    with pytest.raises(UserError, match="samples has 60, which is not a class"):
        layer(hidden, target, samples=torch.tensor([1, 60]))
    with pytest.raises(UserError, match=r"samples \(3, 7\) must be \(K,\), or \(4, K\)"):
        layer(hidden, target, samples=torch.zeros(3, 7, dtype=torch.int64))
    with pytest.raises(UserError, match="Full draws no samples"):
        Full(H, V)(hidden, target, samples=torch.tensor([1]))


# ------------------------------------------------------------------ proposals


class Evens(Proposal):
    """Half of the words only, and all alike."""

    def sample(self, seed, step, groups, samples, impl):
        bits = random_bits(seed, step, len(groups.target), samples, groups.target.device)
        return 2 * random_below(bits, self.n_words // 2)

    def log_density(self, words, groups):
        return torch.full(words.shape, 2 / self.n_words, dtype=torch.float64).log()

    def marginal(self):
        share = torch.zeros(self.n_words, dtype=torch.float64)
        share[::2] = 2 / self.n_words
        return share


@pytest.mark.parametrize("kind", LAYERS)
def test_a_proposal_from_outside(kind):
    layer = LAYERS[kind](proposal=Evens(V))
    hidden, target = batch(8)
    layer(hidden, target).loss.backward()
    drawn = set(layer.weight.grad._indices()[0].tolist()) - set(target.tolist())
    assert drawn
    assert all(word % 2 == 0 for word in drawn)
    assert "Evens" in repr(layer)


def test_a_proposal_that_does_not_fit():
    with pytest.raises(UserError, match="proposal is over 59 words, there are 60 classes"):
        BlackOut(H, V, K, proposal=Evens(59))
    with pytest.raises(UserError, match="counts belong into the proposal"):
        BlackOut(H, V, K, proposal=Evens(V), counts=torch.ones(V))


@pytest.mark.parametrize("kind", LAYERS)
def test_a_mixture_and_in_batch_negatives_in_a_layer(kind):
    counts = torch.arange(1, V + 1)
    parts = [UnigramProposal(counts, 1.0), UnigramProposal(counts, 0.0)]
    for proposal in (MixtureProposal(parts, [0.7, 0.3]), InBatchProposal(V)):
        layer = LAYERS[kind](proposal=proposal)
        hidden, target = batch(8)
        for _ in range(3):
            layer(hidden, target).loss.backward()
        other = LAYERS[kind](proposal=copy.deepcopy(proposal))
        other.load_state_dict(layer.state_dict())
        for a, b in zip(layer.draw(target), other.draw(target), strict=True):
            assert torch.equal(a, b)
    assert isinstance(LAYERS[kind](proposal="batch").proposal, InBatchProposal)
    assert set(layer.draw(target).samples.flatten().tolist()) <= set(target.tolist())


# ------------------------------------------------------------------ losses


class SampledAgain(Objective):
    """The sampled softmax, written down once more."""

    def value(self, z_target, z_samples):
        return log_softmax(torch.cat([z_target[..., None], z_samples], -1), -1)[..., 0]


@pytest.mark.parametrize("impl", ["native", "reference"])
@pytest.mark.parametrize("sharing", ["block", "step", "word"])
@pytest.mark.parametrize("collisions", ["keep", "remove"])
def test_a_loss_from_outside(impl, sharing, collisions):
    """It has the values and row-sparse gradients of the built-in one, on every engine."""
    options = {"sharing": sharing, "collisions": collisions, "impl": impl, "bias": True}
    results = []
    for own in ({}, {"objective": SampledAgain()}):
        layer, (hidden, target) = make("sampled", **options, **own), batch(4, 3)
        hidden.requires_grad_()
        output, loss = layer(hidden, target)
        loss.backward()
        assert layer.weight.grad.is_sparse
        results.append(
            [output, hidden.grad, layer.weight.grad.to_dense(), layer.bias.grad.to_dense()]
        )
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_loss_from_outside_in_float64_with_labels_and_cosines():
    layer = make("sampled", objective=SampledAgain(), normalize=True, sparse=False).double()
    plain = make("sampled", normalize=True, sparse=False).double()
    hidden, _ = batch(4)
    labels = torch.tensor([[1, 2], [3, -100], [55, 58], [-100, -100]])
    torch.testing.assert_close(
        layer(hidden.double(), labels).output, plain(hidden.double(), labels).output
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda z_target, z_samples: None, r"gave None, must be J of each target, \(1, 4\)"),
        (lambda z_target, z_samples: z_target.sum(), r"gave \(\), must be J of each target"),
        (lambda z_target, z_samples: z_samples, r"gave \(1, 4, 9\), must be J of each target"),
        (lambda z_target, z_samples: z_target.detach(), "there is no derivative"),
    ],
)
def test_a_loss_from_outside_that_is_none_is_named(value, said):
    class Wrong(Objective):
        def value(self, z_target, z_samples):
            return value(z_target, z_samples)

    with pytest.raises(UserError, match=f"Wrong.value {said}|Wrong.value gave .* {said}"):
        make("sampled", objective=Wrong())(*batch(4))


# ------------------------------------------------------------------ activation checkpointing


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("proposal", ["unigram", "batch"])
def test_a_checkpointed_layer_has_the_same_samples_both_times(kind, reentrant, proposal):
    """Several calls before one backward pass, targets made inside, as people do."""
    hidden, target = batch(12)
    results = []
    for watched in (False, True):
        counts = {"counts": None} if proposal == "batch" else {}
        layer = make(kind, proposal=proposal, **counts)
        body = nn.Linear(H, H)
        nn.init.eye_(body.weight)
        states = hidden.clone().requires_grad_()

        def piece(x, y, layer=layer, body=body):
            return layer(body(x), y.clone()).loss

        loss = sum(
            checkpoint(piece, x, y, use_reentrant=reentrant) if watched else piece(x, y)
            for x, y in zip(states.split(4), target.split(4), strict=True)
        )
        loss.backward()
        assert int(layer.step) == 3
        results.append([loss, states.grad, body.weight.grad, layer.weight.grad.to_dense()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("views", ["others", "the same"])
def test_two_views_of_one_batch_have_each_its_samples(kind, reentrant, views):
    """The same targets in two calls, whose backward passes come in either order, and twice."""
    hidden, target = batch(12)
    results = []
    for watched in (False, True):
        layer = make(kind)
        pair = [hidden, hidden if views == "the same" else hidden + 0.1]
        states = [x.clone().requires_grad_() for x in pair]

        def piece(x, y, layer=layer):
            return layer(x.tanh(), y).loss

        losses = [
            checkpoint(piece, x, target, use_reentrant=reentrant) if watched else piece(x, target)
            for x in states
        ]
        if views == "others" and not reentrant:
            for loss in losses:
                loss.backward(retain_graph=True)
        sum(losses).backward()
        results.append([*losses, *(x.grad for x in states), layer.weight.grad.to_dense()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_what_cannot_be_drawn_again_is_refused():
    layer, (hidden, target) = make("blackout"), batch(4)
    calls = iter((target, target + 1))
    states = hidden.requires_grad_()
    loss = checkpoint(lambda x: layer(x, next(calls) % V).loss, states, use_reentrant=False)
    with pytest.raises(UserError, match=r"samples=layer.draw\(target\)"):
        loss.backward()


def test_the_memory_of_draws_is_bounded_and_not_part_of_a_layer(monkeypatch):
    monkeypatch.setattr(recompute, "_MOST", 100)
    layer, (hidden, target) = make("blackout"), batch(4)
    for _ in range(20):
        layer(hidden, target)
    assert len(recompute._LATEST[layer].draws) == 100 // (4 + K)
    monkeypatch.setattr(recompute, "_MOST", 0)
    layer(hidden, target)
    assert len(recompute._LATEST[layer].draws) == 1
    assert len(pickle.dumps(layer)) < len(pickle.dumps(make("blackout"))) + 200
    assert copy.deepcopy(layer) not in recompute._LATEST


# ------------------------------------------------------------------ tied tables


@pytest.mark.parametrize("kind", [*LAYERS, "full"])
@pytest.mark.parametrize("sparse", [True, False])
def test_one_table_for_input_and_output(kind, sparse):
    """One parameter, its gradient the sum of both uses; in the state under both names."""
    torch.manual_seed(0)
    words = nn.Embedding(V, H, sparse=sparse and kind != "full")
    layer = Full(H, V, tied_to=words) if kind == "full" else make(kind, tied_to=words)
    network = nn.ModuleDict({"words": words, "head": layer})
    assert layer.weight is words.weight
    assert len([p for p in network.parameters() if p.shape == (V, H)]) == 1
    inputs, target = torch.randint(V, (8,)), torch.randint(V, (8,))
    layer(words(inputs).tanh(), target).loss.backward()
    found = words.weight.grad
    assert found.is_sparse == words.sparse

    weight = words.weight.detach().clone().requires_grad_()
    if kind != "full":
        layer.step.zero_()
    apart = copy.deepcopy(layer)
    apart.table.sparse = False
    output = weight.detach().clone().requires_grad_()
    given = dict(apart.named_parameters()) | {"table.weight": output}
    arguments = (embedding(inputs, weight).tanh(), target)
    torch.func.functional_call(apart, given, arguments).loss.backward()
    torch.testing.assert_close(found.to_dense(), weight.grad + output.grad)

    state = network.state_dict()
    assert {"words.weight", "head.table.weight"} <= state.keys()
    before = words.weight.detach().clone()
    layer.reset_parameters()
    assert torch.equal(words.weight, before), "its owner fills it"
    with pytest.raises(UserError, match=r"tied_to has a table \(60, 6\), the layer's is \(60, 7\)"):
        BlackOut(7, V, K, tied_to=words)


@pytest.mark.parametrize("wrong", [nn.Linear(H, V), nn.Parameter(torch.ones(V, H))])
def test_what_is_no_embedding_cannot_be_tied(wrong):
    with pytest.raises(UserError, match=r"tied_to is a (Linear|Parameter), must be an nn\.Emb"):
        BlackOut(H, V, K, tied_to=wrong)
