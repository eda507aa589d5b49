"""The native operations against plain PyTorch: every loss, cell, decay and option, odd shapes.

float32 is compared with the reference in float64, with room for the rounding of float32; products
in bfloat16 are compared with the reference's own in bfloat16, whose error has the same bound.
"""

import math

import pytest
import torch
from torch import Tensor

from blackout.config import Config
from blackout.errors import UserError
from blackout.models import build_model
from blackout.models.cells import SimpleLayer
from blackout.ops import cpu, reference
from blackout.ops.dispatch import operations
from blackout.optim import RMSProp
from blackout.output import NCE, BlackOut, Full, Sampled

# (V, h, K, M): one sample, more samples than words, one word in a group, one unit, odd sizes
SHAPES = [
    (50, 8, 7, 4),
    (6, 1, 1, 3),
    (5, 7, 40, 1),
    (300, 252, 33, 5),
    (2, 3, 1, 1),
    (90, 64, 123, 16),
]
TOLERANCE = {torch.float32: (2e-5, 2e-6), torch.bfloat16: (3e-2, 3e-2)}


def rows_summed(gradients, vocab: int) -> Tensor:
    values = gradients.row_values.double()
    return torch.zeros(vocab, values.shape[1], dtype=torch.float64).index_add_(
        0, gradients.rows, values
    )


@pytest.mark.parametrize("objective", list(reference.OBJECTIVES))
@pytest.mark.parametrize(("vocab", "size", "k", "words"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("storage", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("target_weight", "keep_copies"), [("proposal", True), ("proposal", False), ("one", False)]
)
def test_the_output_layer_equals_the_reference(
    objective, vocab, size, k, words, dtype, storage, target_weight, keep_copies, threads
):
    generator = torch.Generator().manual_seed(vocab + size)
    hidden = torch.randn(3, words, size, generator=generator)
    weight = (torch.randn(vocab, size, generator=generator) / math.sqrt(size)).to(storage)
    bias = torch.randn(vocab, generator=generator)
    target = torch.randint(vocab, (3, words), generator=generator)
    samples = torch.randint(vocab, (3, k), generator=generator)
    log_q = torch.rand(vocab, generator=generator, dtype=torch.float64).softmax(0).log()
    factors = torch.rand(3, words, generator=generator)

    log_q_target = log_q[target] if target_weight == "proposal" else log_q.new_zeros(target.shape)
    arguments = (target, samples, log_q_target, log_q[samples], objective, keep_copies)
    value, saved = cpu.sampled_forward(hidden, weight, bias, 0.5, *arguments, dtype)
    got = cpu.sampled_backward(saved, target, samples, factors, logit_sums=True)
    wide = torch.float64 if dtype == torch.float32 else dtype
    as_wide = torch.float64 if dtype == torch.float32 else torch.float32
    true_value, true_saved = reference.sampled_forward(
        hidden.to(as_wide), weight.to(as_wide), bias.to(as_wide), 0.5, *arguments, wide
    )
    want = reference.sampled_backward(true_saved, target, samples, factors.to(as_wide))

    assert got.row_values.dtype == storage
    assert torch.equal(got.rows, want.rows)
    pairs = [
        (value, true_value),
        (got.hidden, want.hidden),
        (got.bias_values, want.bias_values),
        (got.log_z, want.log_z),
    ]
    rtol, atol = TOLERANCE[dtype]
    for ours, theirs in pairs:
        scale = float(theirs.abs().max()) + 1
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=rtol, atol=atol * scale)
    rtol, atol = TOLERANCE[torch.bfloat16 if torch.bfloat16 in (storage, dtype) else dtype]
    rows = rows_summed(want, vocab)
    torch.testing.assert_close(
        rows_summed(got, vocab), rows, rtol=rtol, atol=atol * (float(rows.abs().max()) + 1)
    )


@pytest.mark.parametrize("objective", list(reference.OBJECTIVES))
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("keep_copies", [False, True])
def test_extreme_logits_stay_finite_and_right(objective, scale, keep_copies):
    """Logits up to ±1e4, a sample that takes all the mass, none left, equal winners."""
    generator = torch.Generator().manual_seed(2)
    u = (torch.rand(5, 6, generator=generator) * 2 - 1) * scale
    weight = torch.eye(40)[:, :12].clone()  # word w < 12 has the logit hidden[w]
    hidden = torch.zeros(5, 1, 12)
    hidden[:, 0, :6] = u
    hidden[0, 0, 3] = 1e4  # a sample wins
    hidden[1, 0, 0] = 1e4  # the target wins
    hidden[2, 0, 2] = hidden[2, 0, 4] = 60.0 + scale  # two samples win together
    target = torch.zeros(5, 1, dtype=torch.long)
    samples = torch.tensor([[1, 2, 3, 4, 5, 2]]).repeat(5, 1)
    samples[3] = 0  # only copies of the target
    samples[4, 1:] = 0  # one sample left
    log_q = torch.full((40,), -30.0, dtype=torch.float64)
    arguments = (target, samples, log_q[target], log_q[samples], objective, keep_copies)
    value, saved = cpu.sampled_forward(hidden, weight, None, 0.0, *arguments, torch.float32)
    wanted, truth = reference.sampled_forward(
        hidden.double(), weight.double(), None, 0.0, *arguments, torch.float64
    )
    for ours, theirs in [
        (value, wanted),
        (saved.d_target, truth.d_target),
        (saved.d_samples, truth.d_samples),
    ]:
        assert ours.isfinite().all()
        torch.testing.assert_close(ours.double(), theirs, rtol=4e-6, atol=4e-6)


def test_a_nan_is_not_hidden():
    hidden, weight = torch.full((1, 1, 4), math.nan), torch.ones(9, 4)
    words = torch.tensor([[3]]), torch.tensor([[1, 2]])
    log_q = torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    for objective in reference.OBJECTIVES:
        value, _ = cpu.sampled_forward(
            hidden, weight, None, 0.0, *words, *log_q, objective, False, torch.float32
        )
        assert value.isnan().all()


@pytest.mark.parametrize("vocab", [1, 2, 1000])
def test_samples_are_the_references_bit_for_bit(vocab, threads):
    generator = torch.Generator().manual_seed(vocab)
    threshold = torch.rand(vocab, generator=generator, dtype=torch.float64)
    alias = torch.randint(vocab, (vocab,), generator=generator)
    for seed, step in [(0, 0), (1, 7), (2**62, 2**40)]:
        arguments = (threshold, alias, seed, step, 5, 1003)
        assert torch.equal(cpu.draw_samples(*arguments), reference.draw_samples(*arguments))


def layers(**options):
    common = {"counts": torch.arange(1, 61), "seed": 3, **options}
    return [
        BlackOut(12, 60, 9, **common),
        BlackOut(12, 60, 9, negatives="nce", **common),
        BlackOut(12, 60, 9, discriminative=False, **common),
        Sampled(12, 60, 9, **common),
        NCE(12, 60, 9, log_z="learned", **common),
        Full(12, 60, bias=options.get("bias", False), impl=options["impl"]),
    ]


@pytest.mark.parametrize("sharing", ["step", "block", "word"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_whole_layers_give_the_same_samples_losses_and_gradients(sharing, bias, sparse):
    options = {"sharing": sharing, "bias": bias, "always_sample": (1, 5), "sparse": sparse}
    generator = torch.Generator().manual_seed(0)
    hidden, target = (
        torch.randn(4, 5, 12, generator=generator),
        torch.randint(60, (4, 5), generator=generator),
    )
    for ours, theirs in zip(
        layers(impl="native", **options), layers(impl="reference", **options), strict=True
    ):
        theirs.load_state_dict(ours.state_dict())
        losses, gradients = [], []
        for layer in (ours, theirs):
            leaf = hidden.clone().requires_grad_()
            loss = layer(leaf, target).loss
            loss.backward()
            losses.append(loss.detach())
            gradients.append([leaf.grad, *(p.grad.to_dense() for p in layer.parameters())])
            assert layer.weight.grad.is_sparse == (sparse and not isinstance(layer, Full))
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
        for got, want in zip(*gradients, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-7)
        ours.eval()
        theirs.eval()
        torch.testing.assert_close(
            ours(hidden, target).output, theirs(hidden, target).output, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("vocab", "size", "words"), [(2, 1, 1), (4999, 7, 1030), (2049, 40, 5)])
def test_exact_log_probabilities(vocab, size, words, bias, threads):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(words, size, generator=generator) * 3
    weight = torch.randn(vocab, size, generator=generator)
    biases = torch.randn(vocab, generator=generator) if bias else None
    target = torch.randint(vocab, (words,), generator=generator)
    logits = hidden.double() @ weight.double().mT + (0 if biases is None else biases.double())
    truth = logits.log_softmax(1).gather(1, target[:, None])[:, 0]
    got = cpu.target_log_prob(hidden, weight, biases, target, torch.float32)
    torch.testing.assert_close(got.double(), truth, rtol=1e-5, atol=2e-5)
    half = cpu.target_log_prob(hidden, weight.bfloat16(), biases, target, torch.bfloat16)
    torch.testing.assert_close(half.double(), truth, rtol=3e-2, atol=0.15)


@pytest.mark.parametrize("cell", ["sigmoid", "tanh", "relu"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("steps", "streams", "size"), [(5, 3, 7), (1, 1, 1), (6, 2, 40)])
def test_recurrence_and_its_gradients(cell, keep, steps, streams, size, threads):
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(steps, streams, size, generator=generator)
    state = torch.randn(streams, size, generator=generator)
    weight = torch.randn(size, size, generator=generator) / size
    kept = (torch.rand(steps, streams, 1, generator=generator) > 0.4).float() if keep else None
    back = torch.randn(steps, streams, size, generator=generator)

    def run(module, dtype, product):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in (inputs, state, weight)]
        mask = None if kept is None else kept.to(dtype)
        outputs = module.recurrence(*leaves, mask, cell, product)
        (outputs * back.to(dtype)).sum().backward()
        return [outputs.detach(), *(leaf.grad for leaf in leaves)]

    truth = run(reference, torch.float64, torch.float64)
    for got, want in zip(run(cpu, torch.float32, torch.float32), truth, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=2e-6)
    for got, want in zip(run(cpu, torch.float32, torch.bfloat16), truth, strict=True):
        scale = float(want.abs().max()) + 1
        torch.testing.assert_close(got.double(), want, rtol=4e-2, atol=2e-2 * scale)


def test_a_row_outside_the_table_is_refused():
    weight = torch.ones(4, 2)
    for rows in ([4], [-1]):
        with pytest.raises(IndexError, match=str(rows[0])):
            cpu.lookup(weight, torch.tensor(rows), torch.float32)
        with pytest.raises(IndexError):
            cpu.collect_rows(torch.tensor(rows), torch.ones(1, 2), 4)


def test_log_q_of_other_words_than_the_block_s_is_refused():
    words = torch.tensor([[3]]), torch.tensor([[1, 2]])
    log_q = torch.zeros(1, 1, dtype=torch.float64), torch.zeros(9, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"log Q \(9,\) for words \(1, 2\)"):
        cpu.sampled_forward(
            torch.ones(1, 1, 4),
            torch.ones(9, 4),
            None,
            0.0,
            *words,
            *log_q,
            "nce",
            True,
            torch.float32,
        )


def test_native_refuses_what_it_cannot_compute():
    with pytest.raises(UserError, match="float64"):
        operations("native", torch.device("cpu"), torch.float64)
    with pytest.raises(UserError, match="impl is 'fast'"):
        operations("fast", torch.device("cpu"))


def train(config: Config, impl: str, blocks: int = 6) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(9)
    model = build_model(config, torch.arange(1, 81), impl=impl)
    # enough damping that a gradient of rounding errors does not make a full step
    optimizer = RMSProp(model.parameters(), lr=0.01, damping=1e-2, clip=1.0, impl=impl)
    state = model.initial_state(4)
    for _ in range(blocks):
        words = torch.randint(80, (7, 4), generator=generator)
        hidden, state = model(words[:-1], state)
        optimizer.zero_grad()
        model.output(hidden, words[1:]).loss.backward()
        optimizer.step()
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("cell", ["sigmoid", "tanh", "relu", "lstm", "gru"])
@pytest.mark.parametrize("loss", ["blackout", "nce", "sampled", "full"])
def test_training_gives_the_same_weights(cell, loss):
    config = Config.from_dict(
        {"model": {"cell": cell, "hidden": 10, "layers": 2}, "loss": {"loss": loss, "samples": 6}}
    )
    native, plain = train(config, "native"), train(config, "reference")
    for name, value in native.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-4, atol=1e-5)


def test_training_is_deterministic_for_each_number_of_threads(threads):
    config = Config.from_dict(
        {
            "model": {"hidden": 64, "storage": "bf16"},
            "loss": {"samples": 300},
            "run": {"precision": "bf16"},
        }
    )
    first, second = train(config, "native"), train(config, "native")
    for name, value in first.items():
        assert torch.equal(value, second[name])
        assert value.dtype == (torch.bfloat16 if "layers" not in name else torch.float32)


def test_row_gradients_may_stay_in_bf16_where_torch_allows_it():
    layer = BlackOut(4, 30, 5, precision="bf16")
    layer.keep_bf16_row_gradients()
    if not hasattr(layer.weight, "grad_dtype"):
        pytest.skip("this PyTorch has gradients of the parameter's type only")
    layer(torch.randn(6, 4), torch.randint(30, (6,))).loss.backward()
    assert layer.weight.grad.dtype == torch.bfloat16
    before = layer.weight.detach().clone()
    RMSProp(layer.parameters(), lr=0.01, clip=1.0).step()
    assert layer.weight.dtype == torch.float32
    assert not torch.equal(layer.weight, before)


def test_gradients_of_two_blocks_add_up():
    """Buffers are used again, but never while a gradient still lives in one."""
    layer = BlackOut(300, 500, 100, seed=1)
    generator = torch.Generator().manual_seed(3)
    blocks = [
        (
            torch.randn(3, 64, 300, generator=generator),
            torch.randint(500, (3, 64), generator=generator),
        )
        for _ in range(2)
    ]
    total = torch.zeros(500, 300)
    for hidden, target in blocks:
        layer.weight.grad = None
        layer(hidden, target).loss.backward()
        total += layer.weight.grad.to_dense()
    layer.weight.grad = None
    layer.step.zero_()
    for hidden, target in blocks:
        layer(hidden, target).loss.backward()
    torch.testing.assert_close(layer.weight.grad.to_dense(), total)


def test_a_table_changed_between_forward_and_backward_is_noticed():
    layer = BlackOut(4, 30, 5)
    loss = layer(torch.randn(6, 4), torch.randint(30, (6,))).loss
    with torch.no_grad():
        layer.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_simple_layer_takes_its_precision():
    layer = SimpleLayer("tanh", 0, 16, False, "bf16", "native")
    layer.reset_parameters(0.5)
    inputs, state = torch.randn(5, 3, 16), torch.zeros(1, 3, 16)
    half, _ = layer(inputs, state, None)
    layer.precision = "fp32"
    full, _ = layer(inputs, state, None)
    assert not torch.equal(half, full)
    torch.testing.assert_close(half, full, rtol=2e-2, atol=2e-2)
