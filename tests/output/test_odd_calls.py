"""What else happens to a layer in a stranger's program: odd shapes, devices, transforms, tricks."""

import copy
import multiprocessing
from threading import Thread

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from blackout import NCE, BlackOut, Draw, Full, Proposal, Sampled
from blackout.errors import UserError
from blackout.output.sampling import SamplingLayer

V, H, K = 60, 6, 9
LAYERS = {
    "blackout": lambda **o: BlackOut(H, V, K, **o),
    "sampled": lambda **o: Sampled(H, V, K, **o),
    "nce": lambda **o: NCE(H, V, K, **o),
    "full": lambda **o: Full(H, V, **o),
}
every_layer = pytest.mark.parametrize("kind", LAYERS)


def batch(*shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, H, generator=generator), torch.randint(V, shape, generator=generator)


# ------------------------------------------------------------------ sizes and shapes


@every_layer
@pytest.mark.parametrize("training", [True, False])
def test_nothing_at_all_is_nothing(kind, training):
    """Empty batches of every shape, examples without labels, in training as in evaluation."""
    layer = LAYERS[kind]().train(training)
    shapes = [((0,), (0,)), ((0, 3), (0, 3)), ((3, 0), (3, 0))]
    labelled = [((0,), (0, 2)), ((5,), (5, 0)), ((0,), (0, 0))]
    for states, target in shapes + labelled:
        hidden = torch.randn(*states, H, requires_grad=True)
        output, loss = layer(hidden, torch.zeros(target, dtype=torch.int64))
        loss.backward()
        assert output.shape == states
        assert float(loss.detach()) == 0
        assert not hidden.grad.any()
    if training and isinstance(layer, SamplingLayer):
        for sharing in ("step", "block", "word"):
            output, _ = LAYERS[kind](sharing=sharing)(hidden, torch.zeros(0, 0, dtype=torch.int64))
            assert output.shape == (0,)
    none = torch.randn(0, H)
    assert layer.topk(none, 3).indices.shape == layer.log_prob(none)[:, :3].shape == (0, 3)
    own = torch.zeros(0, 4, dtype=torch.int64)
    assert layer.topk(none, 2, classes=own).values.shape == (0, 2)
    assert layer.log_prob(torch.randn(2, H), own[0:0, 0]).shape == (2, 0)


def test_sizes_that_are_none():
    for wrong in ({"in_features": 0}, {"n_classes": 1}, {"samples": 0}, {"samples": 5.5}):
        ((name, value),) = wrong.items()
        with pytest.raises(UserError, match=f"{name} is {value}, must be a"):
            BlackOut(**{"in_features": H, "n_classes": V, "samples": K, **wrong})
    assert BlackOut(1, 2, 1)(torch.ones(1, 1), torch.tensor([1])).output.shape == (1,)


@every_layer
def test_states_that_are_none(kind):
    layer, (hidden, target) = LAYERS[kind](), batch(4)
    for call in (layer.log_prob, layer.predict, lambda x: layer.topk(x, 2)):
        with pytest.raises(UserError, match=r"hidden \(4, 3\) must have a last dimension of 6"):
            call(hidden[:, :3])
        with pytest.raises(UserError, match=r"hidden is torch.int64, must be a floating-point"):
            call(hidden.long())
    with pytest.raises(UserError, match=r"hidden is torch.int64, must be a floating-point"):
        layer(hidden.long(), target)
    with pytest.raises(UserError, match="hidden is a ndarray, must be a tensor"):
        layer(hidden.numpy(), target)
    with pytest.raises(UserError, match="target is a list, must be a tensor"):
        layer(hidden, target.tolist())
    with pytest.raises(UserError, match="k is -1, less than none"):
        layer.topk(hidden, -1)


@every_layer
def test_a_weight_that_does_not_count_may_be_anything(kind):
    layer, (hidden, target) = LAYERS[kind]().eval(), batch(4)
    weights, mask = torch.tensor([torch.nan, 1.0, 2.0, 3.0]), torch.arange(4) > 0
    found = layer(hidden, target, mask, weights=weights).loss
    torch.testing.assert_close(found, layer(hidden[1:], target[1:], weights=weights[1:]).loss)


# ------------------------------------------------------------------ devices


@every_layer
def test_what_lies_elsewhere_is_named(kind):
    layer, (hidden, target) = LAYERS[kind](), batch(4)
    there = {"device": "meta"}
    with pytest.raises(UserError, match="target is on meta, hidden on cpu"):
        layer(hidden, target.to(**there))
    with pytest.raises(UserError, match="mask is on meta, hidden on cpu"):
        layer(hidden, target, torch.ones(4, dtype=torch.bool, **there))
    with pytest.raises(UserError, match="weights is on meta, hidden on cpu"):
        layer(hidden, target, weights=torch.ones(4, **there))
    with pytest.raises(UserError, match="hidden is on the meta device"):
        layer(hidden.to(**there), target.to(**there))
    empty = LAYERS[kind](**there)
    for call in (lambda: empty(hidden, target), lambda: empty.topk(hidden, 2)):
        with pytest.raises(UserError, match="the layer is on the meta device and has no numbers"):
            call()


# ------------------------------------------------------------------ who learns


@pytest.mark.parametrize("kind", ["blackout", "sampled", "nce"])
@pytest.mark.parametrize("impl", ["native", "reference"])
def test_frozen_parts_have_no_gradient_and_the_others_the_same(kind, impl):
    hidden, target = batch(8)
    found = {}
    for frozen in ("", "table", "biases", "hidden", "all"):
        torch.manual_seed(0)
        layer = LAYERS[kind](bias=True, impl=impl)
        states = hidden.clone().requires_grad_(frozen not in ("hidden", "all"))
        for name in ("table", "biases"):
            getattr(layer, name).requires_grad_(frozen not in (name, "all"))
        loss = layer(states, target).loss
        if loss.requires_grad:
            loss.backward()
        found[frozen] = [p.grad for p in (layer.weight, layer.bias, states)]
    for frozen, place in {"table": 0, "biases": 1, "hidden": 2}.items():
        for other, gradient in enumerate(found[frozen]):
            if other == place:
                assert gradient is None
            else:
                assert torch.equal(gradient.to_dense(), found[""][other].to_dense())
    assert not any(g is not None for g in found["all"][:2])


@every_layer
def test_without_gradients_while_training(kind):
    """The training loss all the same, under ``no_grad`` as under ``inference_mode``."""
    hidden, target = batch(8)
    found = []
    for around in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        torch.manual_seed(0)
        layer = LAYERS[kind]()
        with around():
            found.append(layer(hidden, target).output.detach().clone())
        layer(hidden, target).loss.backward()  # and it can go on learning
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@every_layer
def test_backward_again_and_gradients_that_add_up(kind):
    hidden, target = batch(8)
    layer = LAYERS[kind]()
    loss = layer(hidden, target).loss
    loss.backward(retain_graph=True)
    once = layer.weight.grad.to_dense().clone()
    loss.backward()
    torch.testing.assert_close(layer.weight.grad.to_dense(), 2 * once)
    if kind != "full":
        layer.step.zero_()
    layer(hidden, target).loss.backward()
    torch.testing.assert_close(layer.weight.grad.to_dense(), 3 * once)
    copied = copy.deepcopy(layer)  # in the middle of it all
    assert torch.equal(copied.weight, layer.weight)


def test_two_heads_that_share_one_table():
    hidden, target = batch(8)
    first = BlackOut(H, V, K)
    second = Sampled(H, V, K, tied_to=first.table)
    apart = [BlackOut(H, V, K), Sampled(H, V, K)]
    for one in apart:
        one.load_state_dict(first.state_dict())
    (first(hidden, target).loss + second(hidden, target).loss).backward()
    for one in apart:
        one(hidden, target).loss.backward()
    heads = nn.ModuleList([first, second])
    assert len(list(heads.parameters())) == 1
    assert first.weight.grad.is_sparse
    expected = sum(one.weight.grad.to_dense() for one in apart)
    torch.testing.assert_close(first.weight.grad.to_dense(), expected)


@every_layer
def test_the_exact_loss_has_second_derivatives_by_the_states(kind):
    """A gradient penalty: the gradient's square, and how it changes with states and table."""
    torch.manual_seed(0)
    layer, (hidden, target) = LAYERS[kind](bias=True).double().eval(), batch(5)
    found = []
    for own in (True, False):
        states = hidden.double().requires_grad_()
        if own:
            loss = layer(states, target).loss
        else:
            loss = nn.functional.cross_entropy(states @ layer.weight.T + layer.bias, target)
        (gradient,) = torch.autograd.grad(loss, states, create_graph=True)
        penalty = gradient.square().sum()
        found.append(torch.autograd.grad(penalty, [states, layer.weight, layer.bias]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.to_dense(), b)


@pytest.mark.parametrize("kind", ["blackout", "sampled", "nce"])
@pytest.mark.parametrize("sparse", [True, False])
def test_a_table_made_of_other_parameters(kind, sparse):
    """Weight normalisation: the gradient is dense and arrives at what the table is made of."""
    torch.manual_seed(0)
    layer, (hidden, target) = LAYERS[kind](sparse=sparse), batch(8)
    plain = copy.deepcopy(layer)
    parametrizations.weight_norm(layer.table, "weight")
    plain(hidden, target).loss.backward()
    layer(hidden, target).loss.backward()
    size, direction = (p.grad for p in layer.table.parametrizations.weight.parameters())
    unit = nn.functional.normalize(plain.weight.detach(), dim=1)
    expected = (plain.weight.grad.to_dense() * unit).sum(1, keepdim=True)
    torch.testing.assert_close(size, expected, rtol=1e-4, atol=1e-6)
    assert direction.shape == (V, H)


# ------------------------------------------------------------------ transforms


@every_layer
def test_an_exported_network_scores_any_number_of_states(kind):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(H, H), LAYERS[kind](bias=True)

        def forward(self, x):
            hidden = self.body(x)
            return self.head.log_prob(hidden), *self.head.topk(hidden, 3), self.head.predict(hidden)

    network = Network().eval()
    sizes = {"x": {0: torch.export.Dim("states")}}
    exported = torch.export.export(network, (batch(4)[0],), dynamic_shapes=sizes).module()
    for found, expected in zip(exported(batch(7)[0]), network(batch(7)[0]), strict=True):
        torch.testing.assert_close(found, expected)
    with pytest.raises(UserError, match="log_prob, topk and predict, not its loss"):
        torch.export.export(network.head, batch(4))


@every_layer
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_sees_no_numbers_is_refused_in_one_line(kind):
    layer, (hidden, target) = LAYERS[kind](), batch(4)
    with pytest.raises(UserError, match="cannot be traced"):
        torch.jit.trace(layer, (hidden, target))
    for transform in (torch.func.grad, torch.func.vmap, torch.func.jacrev):
        with pytest.raises(UserError, match=r"grad, vmap and the like of torch\.func"):
            transform(lambda x: layer(x, target).loss)(hidden)


@every_layer
def test_what_is_no_tensor_is_named(kind):
    layer, (hidden, target) = LAYERS[kind](), batch(4)
    for name in ("mask", "history", "weights"):
        with pytest.raises(UserError, match=f"{name} is a list, must be a tensor"):
            layer(hidden, target, **{name: [1, 1, 1, 1]})
    for ask in (layer.log_prob, layer.predict, lambda x, c: layer.topk(x, 1, classes=c)):
        with pytest.raises(UserError, match="classes is a list, must be a tensor"):
            ask(hidden, [1, 2])
    with pytest.raises(UserError, match="target is a list, must be a tensor"):
        layer.target_log_prob(hidden, [1, 2, 3, 4])
    for wrong in (2.5, None, "two"):
        with pytest.raises(UserError, match=f"k is {wrong!r}, must be a whole number"):
            layer.topk(hidden, wrong)
    if isinstance(layer, Sampled):
        with pytest.raises(UserError, match="samples is a list, must be a tensor"):
            layer(hidden, target, samples=[1, 2])
        drawn = layer.draw(target)
        with pytest.raises(UserError, match="log_q_samples of the Draw is a NoneType, must be a"):
            layer(hidden, target, samples=drawn._replace(log_q_samples=None))


# ------------------------------------------------------------------ samples and proposals


@pytest.mark.parametrize("kind", ["blackout", "sampled", "nce"])
@pytest.mark.parametrize("impl", ["native", "reference"])
def test_samples_and_draws_that_do_not_fit(kind, impl):
    layer, (hidden, target) = LAYERS[kind](impl=impl), batch(4)
    with pytest.raises(UserError, match="samples is empty"):
        layer(hidden, target, samples=torch.zeros(0, dtype=torch.int64))
    drawn = layer.draw(target[:3])
    with pytest.raises(UserError, match="a Draw is for the targets it was drawn for"):
        layer(hidden, target, samples=drawn)
    short = Draw(drawn.samples, drawn.log_q_samples[:, :2], drawn.log_q_target)
    with pytest.raises(UserError, match="a Draw is for the targets it was drawn for"):
        layer(hidden[:3], target[:3], samples=short)


def test_a_proposal_that_gives_something_else_is_named():
    class Wrong(Proposal):
        def sample(self, seed, step, groups, samples, impl):
            return self.given

        def log_density(self, words, groups):
            return torch.zeros(self.lengths)

        def marginal(self):
            return torch.full((V,), 1 / V, dtype=torch.float64)

    proposal = Wrong(V)
    layer, (hidden, target) = BlackOut(H, V, K, proposal=proposal), batch(4)
    for given in (torch.zeros(K), torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1, K)):
        proposal.given = given
        with pytest.raises(
            UserError, match=r"Wrong.sample gave .* must be \(1, 9\) of torch.int64"
        ):
            layer(hidden, target)
    proposal.given = None
    with pytest.raises(UserError, match=r"Wrong.sample gave None, must be"):
        layer(hidden, target)
    for word in (-1, V):
        proposal.given = torch.full((1, K), word)
        with pytest.raises(UserError, match=f"Wrong.sample gave word {word}, which is not in 0"):
            layer(hidden, target)
    proposal.given, proposal.lengths = torch.zeros(1, K, dtype=torch.int64), (K,)
    with pytest.raises(UserError, match=r"Wrong.log_density gave \(9,\) for words \(1, 9\)"):
        layer(hidden, target)


def test_a_state_of_another_vocabulary_changes_no_draw():
    layer, (hidden, target) = BlackOut(H, V, K), batch(4)
    before = layer.draw(target)
    with pytest.raises(RuntimeError, match=r"size mismatch for proposal\.log_q: \(61,\)"):
        layer.load_state_dict(BlackOut(H, V + 1, K, counts=torch.arange(1, V + 2)).state_dict())
    layer.step.zero_()
    for a, b in zip(before, layer.draw(target), strict=True):
        assert torch.equal(a, b)
    layer(hidden, target).loss.backward()


# ------------------------------------------------------------------ processes and threads


def test_a_layer_that_was_used_works_in_a_forked_process():
    """As in the workers of a DataLoader: no lock and no thread of the parent's is waited for."""
    layer, (hidden, target) = BlackOut(H, V, K), batch(256)
    layer(hidden, target).loss.backward()
    fork = multiprocessing.get_context("fork")
    found = fork.SimpleQueue()

    def work():
        layer.step.zero_()
        layer.zero_grad()
        layer(hidden, target).loss.backward()
        found.put(float(layer.weight.grad.to_dense().sum()))

    process = fork.Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert found.get() == float(layer.weight.grad.to_dense().sum())


def test_layers_in_several_threads():
    hidden, target = batch(64)
    torch.manual_seed(0)
    first = BlackOut(H, V, K, counts=torch.arange(1, V + 1))
    expected = first(hidden, target)
    expected.loss.backward()
    wrong = []

    def work(layer):
        for _ in range(20):
            layer.step.zero_()
            layer.zero_grad()
            output, loss = layer.train()(hidden, target)
            loss.backward()
            same = torch.equal(output, expected.output)
            if not same or not torch.equal(layer.weight.grad.to_dense(), gradient):
                wrong.append(layer)
            layer.eval()(hidden, target)

    gradient = first.weight.grad.to_dense()
    threads = [Thread(target=work, args=(copy.deepcopy(first),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
