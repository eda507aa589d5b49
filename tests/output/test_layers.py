"""The four output layers as modules in anybody's network: one signature, one meaning."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, log_softmax

from blackout import NCE, BlackOut, Full, Sampled
from blackout.errors import UserError
from blackout.proposals import Draw

V, H, K = 23, 6, 7
COUNTS = torch.arange(1, V + 1)
KINDS = {
    "blackout": lambda **o: BlackOut(H, V, K, counts=COUNTS, **o),
    "blackout-noise": lambda **o: BlackOut(H, V, K, counts=COUNTS, negatives="nce", **o),
    "sampled": lambda **o: Sampled(H, V, K, counts=COUNTS, **o),
    "blackout-one": lambda **o: BlackOut(H, V, K, counts=COUNTS, target_weight="one", **o),
    "blackout-remove": lambda **o: BlackOut(H, V, K, counts=COUNTS, collisions="remove", **o),
    "sampled-remove": lambda **o: Sampled(H, V, K, counts=COUNTS, collisions="remove", **o),
    "sampled-one": lambda **o: Sampled(H, V, K, counts=COUNTS, target_weight="one", **o),
    "nce": lambda **o: NCE(H, V, K, counts=COUNTS, **o),
    "nce-learned": lambda **o: NCE(H, V, K, counts=COUNTS, log_z="learned", **o),
    "full": lambda **o: Full(H, V, **o),
}
SAMPLED = [name for name in KINDS if name != "full"]
SHAPES = [(9,), (4, 3), (1, 1), (1,)]


def make(kind, dtype=torch.float64, **options):
    torch.manual_seed(3)
    layer = KINDS[kind](init_range=0.8, **options).to(dtype)
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    return layer


def examples(shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(*shape, H, generator=generator, dtype=dtype).requires_grad_()
    return hidden, torch.randint(V, shape, generator=generator)


def gradients(layer, hidden, target, mask=None):
    layer.zero_grad()
    hidden.grad = None
    layer(hidden, target, mask).loss.backward()
    found = {name: p.grad.to_dense() for name, p in layer.named_parameters()}
    return found | {"hidden": hidden.grad.clone()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_output_and_loss(kind, shape, bias):
    layer = make(kind, bias=bias)
    hidden, target = examples(shape)
    result = layer(hidden, target)
    output, loss = result
    assert result.output is output
    assert result.loss is loss
    assert output.shape == target.shape
    assert loss.shape == ()
    assert torch.equal(loss, -output.mean())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_after_eval_the_output_is_the_exact_log_probability(kind, shape):
    layer = make(kind, bias=True).eval()
    hidden, target = examples(shape)
    logits = hidden @ layer.weight.T + layer.bias
    exact = log_softmax(logits, -1).gather(-1, target[..., None])[..., 0]
    output, loss = layer(hidden, target)
    torch.testing.assert_close(output, exact.detach())
    torch.testing.assert_close(loss, -exact.mean().detach())
    torch.testing.assert_close(layer.target_log_prob(hidden, target), exact.detach())
    log_prob = layer.log_prob(hidden)
    torch.testing.assert_close(log_prob, log_softmax(logits, -1))
    assert torch.equal(layer.predict(hidden), log_prob.argmax(-1))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_several_words_after_one_state(bias, dtype, close):
    layer = make("blackout", dtype, bias=bias)
    hidden, _ = examples((5,), dtype)
    row, target = torch.tensor([4, 0, 4, 2, 0, 4]), torch.tensor([1, 2, 22, 0, 2, 1])
    expected = layer.log_prob(hidden).detach()[row, target]
    pairs = layer.pair_log_prob(hidden, row, target)
    torch.testing.assert_close(pairs, expected, rtol=close, atol=close)
    assert not pairs.requires_grad


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_takes_examples_out(kind):
    """The masked ones have output 0 and no gradient; the mean is over the others."""
    layer = make(kind)
    hidden, target = examples((4, 3))
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 1]], dtype=torch.bool)
    plain = layer(hidden, target).output.detach()
    if kind != "full":
        layer.step.zero_()  # the same samples again
    output, loss = layer(hidden, target, mask)
    assert torch.equal(output.detach(), plain * mask)
    torch.testing.assert_close(loss.detach(), -plain[mask].mean())
    loss.backward()
    assert torch.equal((hidden.grad != 0).any(-1), mask)


@pytest.mark.parametrize("kind", SAMPLED)
@pytest.mark.parametrize("bias", [False, True])
def test_sparse_and_dense_gradients_are_the_same(kind, bias):
    hidden, target = examples((5, 4))
    sparse, dense = (make(kind, bias=bias, sparse=flag) for flag in (True, False))
    a, b = gradients(sparse, hidden, target), gradients(dense, hidden, target)
    assert sparse.weight.grad.is_sparse
    assert not dense.weight.grad.is_sparse
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-12, atol=1e-12)
    # Only rows of targets and samples have a gradient.
    drawn = sparse.proposal.words(sparse.seed, 0, 1, K)
    touched = set(sparse.weight.grad._indices()[0].tolist())
    assert touched == set(drawn.flatten().tolist()) | set(target.flatten().tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sharing", ["step", "block", "word"])
def test_gradients_against_finite_differences(kind, sharing):
    """By hidden states, table, bias and log Z, through the whole layer."""
    options = {"bias": True}
    if kind != "full":
        options |= {"sharing": sharing, "sparse": False, "always_sample": (1,)}
    layer = make(kind, **options)
    hidden, target = examples((3, 2))
    names = [name for name, _ in layer.named_parameters()]

    def loss(states, *values):
        if kind != "full":
            layer.step.zero_()
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(layer, given, (states, target)).output

    parameters = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    # each number by itself once, then along one direction
    fast = sharing != "block"
    assert torch.autograd.gradcheck(loss, (hidden, *parameters), fast_mode=fast)


def test_the_learned_log_z_has_a_gradient():
    layer = make("nce-learned")
    hidden, target = examples((3, 2))
    assert layer.log_z.shape == ()
    assert "log_z" in dict(layer.named_parameters())
    gradient = float(gradients(layer, hidden, target)["log_z"])
    values, start = [], float(layer.log_z)
    assert start == pytest.approx(math.log(layer.n_classes), rel=1e-6)
    for shift in (1e-6, -1e-6):
        layer.step.zero_()
        with torch.no_grad():
            layer.log_z.fill_(start + shift)
        values.append(float(layer(hidden, target).loss.detach()))
    assert gradient != 0
    assert gradient == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6)


def test_a_constant_log_z_is_what_a_learned_one_at_that_value_is():
    constant = make("nce", log_z=1.7)
    learned = make("nce-learned")
    with torch.no_grad():
        learned.log_z.fill_(1.7)
    hidden, target = examples((3, 2))
    torch.testing.assert_close(constant(hidden, target).loss, learned(hidden, target).loss)
    assert "log_z" not in dict(constant.named_parameters())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_full_is_cross_entropy(shape, bias):
    layer = make("full", bias=bias)
    hidden, target = examples(shape)
    found = gradients(layer, hidden, target)
    loss = layer(hidden, target).loss.detach()
    layer.zero_grad()
    hidden.grad = None
    logits = torch.nn.functional.linear(hidden, layer.weight, layer.bias)
    expected = cross_entropy(logits.reshape(-1, V), target.reshape(-1))
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(found["table.weight"], layer.weight.grad)
    torch.testing.assert_close(found["hidden"], hidden.grad)
    if bias:
        torch.testing.assert_close(found["biases.weight"], layer.bias.grad)


@pytest.mark.parametrize("collisions", ["keep", "remove"])
def test_what_importance_sampling_estimates(collisions):
    """With K samples: log p - log(K Q), p the exact one; without copies log p / (1 - p) instead."""
    torch.manual_seed(0)
    samples, options = 200_000, {"counts": COUNTS, "alpha": 0.5, "init_range": 0.8}
    layer = Sampled(H, V, samples, collisions=collisions, **options).double()
    hidden, target = examples((20,))
    sampled = layer(hidden, target).output.detach()
    log_p = layer.eval()(hidden, target).output
    estimated = log_p if collisions == "keep" else log_p - torch.log1p(-log_p.exp())
    expected = estimated - math.log(samples) - layer.proposal.log_q[target]
    torch.testing.assert_close(sampled, expected, rtol=0, atol=0.02)


class Watched:
    """Records with which sample sets an objective is computed."""

    def __init__(self, layer, monkeypatch):
        self.drawn, draw = [], layer.draw
        monkeypatch.setattr(layer, "draw", lambda *w: self.drawn.append(draw(*w)) or self.drawn[-1])


@pytest.mark.parametrize(
    ("sharing", "shape", "sets"),
    [
        ("step", (4, 3), 4),
        ("step", (9,), 1),
        ("block", (4, 3), 1),
        ("block", (9,), 1),
        ("word", (4, 3), 12),
        ("word", (9,), 9),
    ],
)
@pytest.mark.parametrize("kind", SAMPLED)
def test_who_shares_samples(kind, sharing, shape, sets, monkeypatch):
    layer = make(kind, sharing=sharing, always_sample=(1, 5))
    watched = Watched(layer, monkeypatch)
    hidden, target = examples(shape)
    output = layer(hidden, target).output.detach()
    ((samples, log_q_samples, log_q_target),) = watched.drawn
    assert log_q_target.numel() == target.numel()
    assert torch.equal(log_q_samples, layer.proposal.log_q[samples])
    assert samples.shape == (sets, K + 2)
    assert torch.equal(samples[:, K:], torch.tensor([[1, 5]]).expand(sets, 2))
    assert len({tuple(row) for row in samples.tolist()}) == sets
    # Each example alone, with the samples of its set, has the output it has in the block.
    per_example = {"step": shape[-1] if len(shape) == 2 else 9, "block": output.numel(), "word": 1}
    for i in range(output.numel()):
        place = i // per_example[sharing]
        own = Draw(
            samples[place][None], log_q_samples[place][None], log_q_target.view(-1)[i].view(1, 1)
        )
        with monkeypatch.context() as patch:
            patch.setattr(layer, "draw", lambda *_, own=own: own)
            alone = layer(hidden.reshape(-1, H)[i : i + 1], target.reshape(-1)[i : i + 1]).output
        torch.testing.assert_close(alone[0].detach(), output.reshape(-1)[i])


@pytest.mark.parametrize("kind", SAMPLED)
def test_steps_count_training_calls_and_are_saved(kind):
    layer = make(kind)
    hidden, target = examples((4, 3))
    outputs = [layer(hidden, target).output.detach() for _ in range(3)]
    assert not torch.equal(outputs[0], outputs[1]), "each call draws anew"
    assert int(layer.step) == 3
    layer.eval()
    layer(hidden, target)
    layer.log_prob(hidden)
    layer.predict(hidden)
    assert int(layer.step) == 3
    assert int(layer.state_dict()["step"]) == 3
    # A copy that takes over the state draws what the original draws next.
    other = make(kind)
    other.load_state_dict(layer.state_dict())
    layer.train()
    assert torch.equal(other(hidden, target).output, layer(hidden, target).output)
    again, another = make(kind), make(kind, seed=9)
    assert torch.equal(again(hidden, target).output, outputs[0])
    assert not torch.equal(another(hidden, target).output, outputs[0])


def test_samples_do_not_use_up_the_program_s_random_numbers():
    layer = make("blackout")
    torch.manual_seed(8)
    expected = torch.rand(4)
    torch.manual_seed(8)
    layer(*examples((4, 3)))
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_products_are_close_to_float32(kind):
    """8 bits of mantissa: the loss within 1 %, gradients within 3 % of their size."""
    single, half = (make(kind, torch.float32, precision=p, bias=True) for p in ("fp32", "bf16"))
    hidden, target = examples((8, 5), torch.float32)
    a, b = gradients(single, hidden, target), gradients(half, hidden, target)
    for name in a:
        size = float(a[name].norm())
        assert float((a[name] - b[name]).norm()) <= 0.03 * size + 1e-4, name
        assert b[name].dtype == torch.float32
    losses = [float(layer(hidden, target).loss.detach()) for layer in (single, half)]
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert losses[1] != losses[0], "it was computed another way"


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_close_to_float64(kind):
    single, double = make(kind, torch.float32), make(kind)
    double.load_state_dict(single.state_dict())
    hidden, target = examples((8, 5), torch.float32)
    other = hidden.detach().double().requires_grad_()
    a, b = gradients(single, hidden, target), gradients(double, other, target)
    for name in a:
        torch.testing.assert_close(a[name].double(), b[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("hidden", "target"), [((4, H), (5,)), ((4, H + 1), (4,)), ((4, 3, H), (3, 4)), ((H,), (1,))]
)
def test_wrong_shapes_are_refused(kind, hidden, target):
    layer = make(kind)
    with pytest.raises(ValueError, match=r"hidden .* must be target"):
        layer(torch.zeros(hidden, dtype=torch.float64), torch.zeros(target, dtype=torch.int64))


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: BlackOut(4, 1, 5), "n_classes is 1"),
        (lambda: BlackOut(4, 9, 0), "samples is 0"),
        (lambda: BlackOut(4, 9, 5, alpha=1.1), "alpha is 1.1"),
        (lambda: BlackOut(4, 9, 5, alpha=math.nan), "alpha is nan"),
        (lambda: BlackOut(4, 9, 5, counts=torch.ones(8)), "counts has 8 entries for 9 classes"),
        (lambda: BlackOut(4, 9, 5, counts=torch.arange(9)), "the count of word 0 is 0"),
        (lambda: BlackOut(4, 9, 5, always_sample=(9,)), "always_sample has a class outside 0 … 8"),
        (lambda: BlackOut(4, 9, 5, always_sample=(-1,)), "always_sample has a class outside"),
        (lambda: BlackOut(4, 9, 5, sharing="row"), "sharing is 'row'"),
        (lambda: BlackOut(4, 9, 5, negatives="all"), "negatives is 'all'"),
        (lambda: BlackOut(4, 9, 5, target_weight=2), "target_weight is 2"),
        (lambda: Sampled(4, 9, 5, collisions="drop"), "collisions is 'drop'"),
        (lambda: Sampled(4, 9, 5, target_weight="two"), "target_weight is 'two'"),
        (lambda: Full(4, 9, precision="fp8"), "precision is 'fp8'"),
        (lambda: NCE(4, 9, 5, log_z="free"), "log_z is 'free'"),
        (lambda: NCE(4, 9, 5, log_z=math.inf), "log_z is inf"),
        (lambda: BlackOut(4, 9, 5, alpha="0.5"), "alpha is '0.5', must be between 0 and 1"),
        (lambda: BlackOut(4, 9, 5, temperature="0.1"), "temperature is '0.1', must be above 0"),
        (lambda: BlackOut(4, 9, 5, init_range=-1.0), "init_range is -1.0, must be 0 or more"),
        (lambda: BlackOut(4, 9, 5, init_range="small"), "init_range is 'small'"),
        (lambda: BlackOut(4, 9, 5, dtype="float32"), "dtype is float32, must be a floating-point"),
        (lambda: BlackOut(4, 9, 5, ignore_index="pad"), "ignore_index is 'pad', must be a whole"),
        (lambda: BlackOut(4, 9, 5, seed=1.5), "seed is 1.5, must be a whole number"),
        (lambda: BlackOut(4, 9, 5, always_sample=3), "always_sample is 3, must be classes"),
        (lambda: BlackOut(4, 9, 5, objective="bpr"), "objective is a str, must be an instance of"),
        (lambda: Full(4, 9, label_smoothing="0.1"), "label_smoothing is '0.1', must be 0 or more"),
    ],
)
def test_wrong_options_are_refused(build, named):
    with pytest.raises(UserError, match=named):
        build()


def test_an_unknown_version_of_the_arithmetic_is_refused():
    with pytest.raises(UserError, match="impl is 'abacus'"):
        BlackOut(H, V, K, impl="abacus")


@pytest.mark.parametrize("kind", ["blackout", "sampled", "nce-learned", "full", "adaptive"])
def test_in_place_of_pytorch_s_adaptive_softmax(kind):
    """The same training loop, the same calls; each learns to tell 23 classes."""
    torch.manual_seed(0)
    if kind == "adaptive":
        layer = torch.nn.AdaptiveLogSoftmaxWithLoss(H, V, cutoffs=[8], div_value=1.0)
    else:
        layer = KINDS[kind](**({} if kind == "full" else {"sparse": False, "alpha": 0.4}))
    body = torch.nn.Embedding(V, H)
    optimizer = torch.optim.Adam([*body.parameters(), *layer.parameters()], lr=0.05)
    classes = torch.arange(V).repeat(4)
    for _ in range(150):
        optimizer.zero_grad()
        output, loss = layer(body(classes), classes)
        loss.backward()
        optimizer.step()
    layer.eval()
    with torch.no_grad():
        hidden = body(classes)
        assert layer.log_prob(hidden).shape == (len(classes), V)
        assert float((layer.predict(hidden) == classes).float().mean()) == 1.0
        assert float(layer(hidden, classes).loss) < 0.5
    assert output.shape == classes.shape
