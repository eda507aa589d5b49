"""The layer in other people's networks: what they may do with it without reading its source."""

import copy
import inspect
import io
import math
import pydoc

import pytest
import torch
import torch.distributed as dist
from torch import nn

import blackout
from blackout import NCE, Adaptive, BlackOut, Classes, Full, Hierarchical, RMSProp, Sampled
from blackout.errors import UserError
from blackout.output.ranks import seed_of_rank

V, H = 500, 16
LAYERS = {
    "blackout": lambda **o: BlackOut(H, V, samples=50, **o),
    "sampled": lambda **o: Sampled(H, V, samples=50, **o),
    "nce": lambda **o: NCE(H, V, samples=50, **o),
    "full": lambda **o: Full(H, V, **o),
    "hierarchical": lambda **o: Hierarchical(H, V, **o),
    "classes": lambda **o: Classes(H, V, **o),
    "adaptive": lambda **o: Adaptive(H, V, cutoffs=(50, 200), **o),
}
SAMPLED = ("blackout", "sampled", "nce")
IMPLS = ["native", "reference"]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, H, generator=generator), torch.randint(V, (8,), generator=generator)


# ------------------------------------------------------------------ line 1: DistributedDataParallel


class Net(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.body, self.head = nn.Linear(H, H), BlackOut(H, V, samples=20, **options)

    def forward(self, x, y):
        return self.head(self.body(x), y)


def _rank(group, folder, options):
    rank = dist.get_rank(group)
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(Net(**options), process_group=group)
    optimizer = RMSProp(net.parameters(), lr=0.01, clip=1.0)
    for step in range(2):
        generator = torch.Generator().manual_seed(10 * rank + step)
        x, y = torch.randn(8, H, generator=generator), torch.randint(V, (8,), generator=generator)
        optimizer.zero_grad()
        net(x, y).loss.backward()
        optimizer.step()
    head = net.module.head
    found = {
        "state": net.module.state_dict(),
        "sparse": head.weight.grad.is_sparse,
        "drawn": head.draw(torch.zeros(1, 4, dtype=torch.int64)).samples,
    }
    torch.save(found, f"{folder}/{rank}.pt")


def test_the_head_inside_distributed_data_parallel(tmp_path, crew):
    """Sparse gradients add up over ranks, and each rank draws samples of its own."""
    crew.run(_rank, 2, tmp_path, {"bias": True})
    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert one["sparse"]
    assert one["state"].keys() == two["state"].keys()
    for name, value in one["state"].items():
        assert torch.equal(value, two["state"][name]), name
    assert not torch.equal(one["drawn"], two["drawn"])


def test_a_rank_of_one_draws_as_without(tmp_path):
    assert seed_of_rank(7) == 7
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        assert seed_of_rank(7) == 7
        net = nn.parallel.DistributedDataParallel(Net())
        net(torch.randn(4, H), torch.randint(V, (4,)))

        class NoSparse:
            def _get_backend(self, device):
                return self

            def name(self):
                return "nccl"

        net.process_group = NoSparse()
        net.require_forward_param_sync = False
        with pytest.raises(UserError, match=r"nccl cannot .* sparse=False, .*gloo.*, or leave"):
            net(torch.randn(4, H), torch.randint(V, (4,)))
    finally:
        dist.destroy_process_group()


# ------------------------------------------------------------------ line 2: the meta device


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("inside", [True, False])
def test_made_on_the_meta_device_and_filled_from_a_state(kind, inside, batch):
    """As ``from_pretrained`` does it."""
    options = {} if kind == "full" else {"counts": torch.arange(1, V + 1)}
    real = LAYERS[kind](bias=True, **options)
    if inside:
        with torch.device("meta"):
            empty = LAYERS[kind](bias=True)
    else:
        empty = LAYERS[kind](bias=True, device="meta")
    assert all(p.is_meta for p in empty.parameters())
    empty.load_state_dict(copy.deepcopy(real.state_dict()), assign=True)
    assert torch.equal(empty(*batch).output, real(*batch).output)


def test_counts_without_numbers_are_refused():
    with torch.device("meta"), pytest.raises(UserError, match="counts are on the meta device"):
        BlackOut(H, V, samples=5, counts=torch.ones(V))


def test_emptied_and_begun_again():
    with torch.device("meta"):
        layer = NCE(H, V, samples=5, bias=True)
    layer.to_empty(device="cpu").reset_parameters()
    assert 0 < float(layer.weight.detach().abs().max()) <= H**-0.5
    assert float(layer.log_z) == pytest.approx(math.log(V))
    assert int(layer.step) == 0
    assert not layer.bias.any()


# ------------------------------------------------------------------ line 3: 16 bits


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(kind, dtype):
    """Log-probabilities, losses and best classes are those of the same numbers in float64."""
    torch.manual_seed(0)
    layer = LAYERS[kind](bias=True, init_range=2.0).to(dtype)
    nn.init.normal_(layer.bias)
    exact = copy.deepcopy(layer).double()
    hidden = 4 * torch.randn(9, H).to(dtype)  # logits of several hundreds
    target = torch.randint(V, (9,))
    for mode in (True, False):
        found, expected = (
            part.train(mode)(states, target)
            for part, states in ((layer, hidden), (exact, hidden.double()))
        )
        assert found.loss.dtype == torch.float32
        torch.testing.assert_close(found.output.double(), expected.output, rtol=1e-4, atol=1e-3)
    logs = exact.log_prob(hidden.double())
    torch.testing.assert_close(layer.log_prob(hidden).double(), logs, rtol=1e-4, atol=1e-3)
    best = layer.topk(hidden, 3)
    torch.testing.assert_close(best.values.double(), logs.topk(3).values, rtol=1e-4, atol=1e-3)
    assert torch.equal(layer.predict(hidden), logs.argmax(-1))
    hidden.requires_grad_()
    layer.train()(hidden, target).loss.backward()
    assert hidden.grad.dtype == layer.weight.grad.dtype == dtype


@pytest.mark.parametrize("impl", IMPLS)
def test_sixteen_bit_states_over_a_float32_table(impl, batch):
    """What autocast hands to a layer."""
    layer = BlackOut(H, V, samples=50, impl=impl)
    hidden, target = batch
    with torch.autocast("cpu", torch.bfloat16):
        states = hidden.to(torch.bfloat16).requires_grad_()
        found = layer(states, target)
    found.loss.backward()
    layer.step.zero_()
    expected = layer(hidden.to(torch.bfloat16).float(), target)
    torch.testing.assert_close(found.output, expected.output, rtol=1e-5, atol=1e-5)
    assert states.grad.dtype == torch.bfloat16
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_the_default_type_is_for_new_tensors_only(kind, default, batch):
    """A float32 layer computes as it did; one made under it has that type, as all modules."""
    results = []
    for there in (torch.float32, default):
        torch.manual_seed(0)
        layer = LAYERS[kind](bias=True)
        optimizer = RMSProp(layer.parameters(), lr=0.01, clip=1.0)
        torch.set_default_dtype(there)
        try:
            layer(*batch).loss.backward()
            optimizer.step()
            scored = layer.eval()(*batch).output, *layer.topk(batch[0], 3)
            assert LAYERS[kind]().weight.dtype == there
        finally:
            torch.set_default_dtype(torch.float32)
        results.append([*scored, layer.weight.detach()])
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


# ------------------------------------------------------------------ line 4: targets and masks


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("wrong", [-1, -99, V, V + 7])
def test_a_target_that_is_no_class_is_refused(kind, impl, training, wrong, batch):
    hidden, target = batch
    target[3] = wrong
    layer = LAYERS[kind](impl=impl).train(training)
    with pytest.raises(UserError, match=f"target {wrong} is not a class: 0 … {V - 1}, or ignore_i"):
        layer(hidden, target)
    with pytest.raises(UserError, match=f"target {wrong} is not a class: 0 … {V - 1}$"):
        layer.target_log_prob(hidden, target)
    mask = torch.arange(8) != 3
    layer(hidden, target, mask)  # it does not count


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("ignore_index", [-100, 0, 3, V])
def test_what_is_ignored_counts_for_nothing(kind, impl, training, ignore_index, batch):
    """Not for the loss, not for a gradient, whatever the states there hold."""
    hidden, target = batch
    ignored = torch.tensor([0, 0, 1, 0, 0, 1, 0, 0], dtype=torch.bool)
    target[target == ignore_index] += 1
    given = target.masked_fill(ignored, ignore_index)
    options = {"alpha": 0.0} if kind in SAMPLED else {}
    layer = LAYERS[kind](impl=impl, ignore_index=ignore_index, **options).train(training)
    spoiled = hidden.masked_fill(ignored[:, None], math.nan).requires_grad_()
    output, loss = layer(spoiled, given)
    assert not output[ignored].any()
    if kind in SAMPLED:
        layer.step.zero_()
    expected = layer(hidden[~ignored], target[~ignored])
    torch.testing.assert_close(output[~ignored], expected.output)
    torch.testing.assert_close(loss, expected.loss)
    if training:
        loss.backward()
        assert not spoiled.grad[ignored].any()
        assert layer.weight.grad.to_dense().isfinite().all()
    if training and kind in SAMPLED:
        drawn = layer.weight.grad._indices()[0].unique()
        layer.step.zero_()
        samples = layer.draw(target[None]).samples
        assert set(drawn.tolist()) == {*samples.flatten().tolist(), *target[~ignored].tolist()}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_batch_without_examples_teaches_nothing(kind, batch):
    hidden, target = batch
    layer = LAYERS[kind]()
    for arguments in (
        (hidden, torch.full_like(target, -100)),
        (hidden, target, torch.zeros(8, dtype=torch.bool)),
        (hidden[:0], target[:0]),
    ):
        layer.zero_grad()
        output, loss = layer(*arguments)
        loss.backward()
        assert float(loss.detach()) == 0
        assert output.shape == arguments[1].shape
        assert not layer.weight.grad.to_dense().any()


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("shape", [(3,), (4, 1), (1, 3), (3, 4), ()])
def test_a_mask_of_another_shape_is_refused(kind, shape):
    layer, mask = LAYERS[kind](), torch.ones(shape, dtype=torch.bool)
    hidden, target = torch.randn(4, 3, H), torch.randint(V, (4, 3))
    with pytest.raises(UserError, match=r"mask \(.*\) must be target \(4, 3\)"):
        layer(hidden, target, mask)
    with pytest.raises(UserError, match="numbers are weights="):
        layer(hidden, target, torch.ones(4, 3))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_targets_of_any_whole_type(impl, dtype, batch):
    hidden, target = batch
    layer = BlackOut(H, V, samples=50, impl=impl)
    small = target % 200
    first = layer(hidden, small.to(dtype)).output
    layer.step.zero_()
    assert torch.equal(first, layer(hidden, small).output)
    with pytest.raises(UserError, match=r"target is torch.float32, must be the numbers of classes"):
        layer(hidden, target.float())


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_one_example_alone(kind, training, batch):
    hidden, target = batch
    layer = LAYERS[kind]().train(training)
    output, loss = layer(hidden[0], target[0])
    assert output.shape == loss.shape == ()
    if kind in SAMPLED:
        layer.step.zero_()
    torch.testing.assert_close(output, layer(hidden[:1], target[:1]).output[0])
    assert layer.log_prob(hidden[0]).shape == (V,)
    assert layer.topk(hidden[0], 4).indices.shape == (4,)
    assert layer.predict(hidden[0]).shape == ()
    assert layer.target_log_prob(hidden[0], target[0]).shape == ()


# ------------------------------------------------------------------ line 7: batch first


def test_the_default_cannot_hurt_whatever_comes_first():
    """(B, T) and (T, B) draw one sample set for the call; groups are asked for by name."""
    hidden, target = torch.randn(32, 5, H), torch.randint(V, (32, 5))
    for states, words in ((hidden, target), (hidden.transpose(0, 1), target.T)):
        layer = BlackOut(H, V, samples=50)
        layer(states, words).loss.backward()
        assert len(layer.weight.grad._indices()[0]) <= 50 + 32 * 5
    by_step = BlackOut(H, V, samples=50, sharing="step")
    assert by_step.draw(target).samples.shape == (32, 50)


# ------------------------------------------------------------------ line 8: state and words


@pytest.mark.parametrize("kind", ["unigram", "batch", "bigram", "model"])
def test_a_loaded_layer_draws_what_the_saved_one_would(kind, batch):
    """The counts are part of the state, and no cast of layer or state rounds them."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(V, (2000,), generator=generator)
    layer = BlackOut(H, V, samples=50, counts=torch.rand(V) + 0.01, alpha=0.7, proposal=kind)
    layer.read_text(text[:-1], text[1:])
    if kind == "model":
        layer.follow_states(torch.randn(20, H))
    state = layer.half().state_dict()
    file = io.BytesIO()
    torch.save({k: v.bfloat16() if v.is_floating_point() else v for k, v in state.items()}, file)
    file.seek(0)
    other = BlackOut(H, V, samples=50, counts=torch.ones(V), proposal=kind)
    other.load_state_dict(torch.load(file))
    target = batch[1][None]
    a, b = (part.draw(target, target[..., None]) for part in (layer, other))
    for one, two in zip(a, b, strict=True):
        assert torch.equal(one, two)
    assert not any("proposal" in name for name, _ in layer.named_buffers()), "DDP would send them"
    with pytest.raises(RuntimeError, match=r"Missing key.*proposal\.log_q"):
        other.load_state_dict({k: v for k, v in state.items() if "proposal" not in k})


@pytest.mark.parametrize("kind", LAYERS)
def test_help_shows_every_option(kind):
    layer = type(LAYERS[kind]())
    shown = list(inspect.signature(layer).parameters)
    common = ["bias", "sparse", "init_range", "device", "dtype", "ignore_index", "reduction"]
    sampling = ["counts", "alpha", "proposal", "sharing", "seed", "always_sample"]
    text = pydoc.plain(pydoc.render_doc(layer))
    for name in common + (sampling if kind in SAMPLED else []):
        assert name in shown
        assert f"``{name}``" in text, name
    assert "options" not in shown


def test_the_package_lists_its_names():
    assert {"BlackOut", "NCE", "Sampled", "Full", "RMSProp", "Proposal"} <= set(dir(blackout))
    assert all(getattr(blackout, name) is not None for name in dir(blackout))
    assert blackout.proposals.Proposal is blackout.Proposal, "parts need no import of their own"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = blackout.nonsense


def test_a_users_error_is_a_value_error():
    with pytest.raises(ValueError, match="samples is 0"):
        BlackOut(4, 9, samples=0)


# ------------------------------------------------------------------ line 9: torch.compile


@pytest.mark.parametrize("kind", LAYERS)
def test_a_compiled_network_has_one_break(kind, batch):
    layer, body = LAYERS[kind](), nn.Linear(H, H)

    def network(x, y):
        return 2 * layer(body(x).relu(), y).loss

    hidden, target = batch
    explained = torch._dynamo.explain(network)(hidden, target)
    assert explained.graph_break_count <= 2
    torch._dynamo.reset()
    compiled = torch.compile(network, backend="eager")
    results = []
    for run in (network, compiled):
        if kind in SAMPLED:
            layer.step.zero_()
        layer.zero_grad()
        loss = run(hidden, target)
        loss.backward()
        results.append((loss.detach(), layer.weight.grad.to_dense()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("kind", ["blackout", "full", "hierarchical"])
def test_a_compiled_training_step_leaves_the_backward_pass_and_the_optimiser_alone(kind, batch):
    """Its graphs hold what the network holds: no piece of the layer's."""
    torch._dynamo.reset()
    graphs, results = [], []

    def backend(graph, _):
        graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    for compiled in (False, True):
        torch.manual_seed(0)
        layer, body = LAYERS[kind](), nn.Linear(H, H)
        optimizer = RMSProp([*layer.parameters(), *body.parameters()], lr=0.01, clip=1.0)

        def train(x, y, layer=layer, body=body, optimizer=optimizer):
            optimizer.zero_grad()
            loss = layer(body(x), y).loss
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(train, backend=backend) if compiled else train
        losses = torch.stack([run(*batch).detach() for _ in range(3)])
        results.append([losses, *(p.detach() for p in (*layer.parameters(), *body.parameters()))])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    assert {operation for graph in graphs for operation in graph} == {torch._C._nn.linear}


# ------------------------------------------------------------------ reduction, weights


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_reductions_and_weights(kind, training, batch):
    hidden, target = batch
    mask, weights = torch.arange(8) < 6, torch.rand(8) + 0.5
    losses = {}
    for reduction in ("mean", "sum", "none"):
        torch.manual_seed(0)
        layer = LAYERS[kind](reduction=reduction).train(training)
        losses[reduction] = layer(hidden, target, mask, weights=weights)
    output, each = losses["none"]
    torch.testing.assert_close(each, -output * weights)
    assert not each[6:].any()
    torch.testing.assert_close(losses["sum"].loss, each.sum())
    torch.testing.assert_close(losses["mean"].loss, each.sum() / weights[:6].sum())
    with pytest.raises(UserError, match=r"weights \(7,\) must be target \(8,\)"):
        layer(hidden, target, weights=weights[:7])
    with pytest.raises(UserError, match="reduction is 'median'"):
        LAYERS[kind](reduction="median")


def test_weights_are_examples_repeated(batch):
    """Two of weight 1 are one of weight 2, in loss and gradients."""
    hidden, target = batch
    results = []
    for states, words, weights in (
        (hidden, target, torch.tensor([2.0] * 3 + [1.0] * 5)),
        (torch.cat([hidden, hidden[:3]]), torch.cat([target, target[:3]]), None),
    ):
        torch.manual_seed(0)
        layer = BlackOut(H, V, samples=50)
        loss = layer(states, words, weights=weights).loss
        loss.backward()
        results.append((loss.detach(), layer.weight.grad.to_dense()))
    torch.testing.assert_close(*(loss for loss, _ in results))
    torch.testing.assert_close(*(gradient for _, gradient in results))


def test_where_and_of_which_type():
    layer = BlackOut(H, V, samples=5, bias=True, device="cpu", dtype=torch.float64)
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    mixed = BlackOut(H, V, samples=5, bias=True, storage="bf16", dtype=torch.float32)
    assert (mixed.weight.dtype, mixed.bias.dtype) == (torch.bfloat16, torch.float32)
    assert NCE(H, V, samples=5, dtype=torch.float64).log_z.dtype == torch.float64
    with pytest.raises(UserError, match=r"dtype is torch.int64"):
        BlackOut(H, V, samples=5, dtype=torch.int64)


def test_it_can_be_copied_and_pickled(batch):
    layer = BlackOut(H, V, samples=5, counts=torch.arange(1, V + 1))
    layer(*batch)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        other.step.copy_(layer.step)
        assert torch.equal(other.draw(batch[1][None]).samples, _again(layer, batch[1]))


def _again(layer, target):
    drawn = layer.draw(target[None]).samples
    layer.step -= 1
    return drawn
