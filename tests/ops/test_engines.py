"""The contract of engines: each gives what plain PyTorch gives, for every loss and cell.

float32 is compared with the reference in float64, with room for the rounding of float32; products
in bfloat16 are compared with the reference's own in bfloat16, whose error has the same bound.
"""

import math

import pytest
import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops import autograd, cpu, reference
from blackout.ops.dispatch import engine_for

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
    engine, objective, vocab, size, k, words, dtype, storage, target_weight, keep_copies, threads
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
    arguments = (target, samples, None, log_q_target, log_q[samples], objective, keep_copies)
    value, saved = engine.sampled_forward(hidden, weight, bias, 0.5, *arguments, dtype)
    got = engine.sampled_backward(saved, target, samples, factors, True, storage)
    wide = torch.float64 if dtype == torch.float32 else dtype
    as_wide = torch.float64 if dtype == torch.float32 else torch.float32
    true_value, true_saved = reference.sampled_forward(
        hidden.to(as_wide), weight.to(as_wide), bias.to(as_wide), 0.5, *arguments, wide
    )
    back = (target, samples, factors.to(as_wide), True, as_wide)
    want = reference.sampled_backward(true_saved, *back)

    assert got.row_values.dtype in (storage, torch.float32)
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
def test_extreme_logits_stay_finite_and_right(engine, objective, scale, keep_copies):
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
    arguments = (target, samples, None, log_q[target], log_q[samples], objective, keep_copies)
    value, saved = engine.sampled_forward(hidden, weight, None, 0.0, *arguments, torch.float32)
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


def test_a_nan_is_not_hidden(engine):
    hidden, weight = torch.full((1, 1, 4), math.nan), torch.ones(9, 4)
    words = torch.tensor([[3]]), torch.tensor([[1, 2]])
    log_q = torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    for objective in reference.OBJECTIVES:
        value, _ = engine.sampled_forward(
            hidden, weight, None, 0.0, *words, None, *log_q, objective, False, torch.float32
        )
        assert value.isnan().all()


@pytest.mark.parametrize("vocab", [1, 2, 1000])
def test_samples_are_the_same_bit_for_bit(engine, vocab, threads):
    generator = torch.Generator().manual_seed(vocab)
    threshold = torch.rand(vocab, generator=generator, dtype=torch.float64)
    alias = torch.randint(vocab, (vocab,), generator=generator)
    for seed, step in [(0, 0), (1, 7), (2**62, 2**40)]:
        arguments = (threshold, alias, seed, step, 5, 1003)
        assert torch.equal(engine.draw_samples(*arguments), reference.draw_samples(*arguments))
        as_tensor = (threshold, alias, seed, torch.tensor(step), 5, 1003)
        assert torch.equal(engine.draw_samples(*as_tensor), reference.draw_samples(*arguments))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("vocab", "size", "words"), [(2, 1, 1), (4999, 7, 1030), (2049, 40, 5)])
def test_exact_log_probabilities(engine, vocab, size, words, bias, threads, fewer):
    generator = torch.Generator().manual_seed(1)
    words = min(words, fewer(words, 7))
    hidden = torch.randn(words, size, generator=generator) * 3
    weight = torch.randn(vocab, size, generator=generator)
    biases = torch.randn(vocab, generator=generator) if bias else None
    target = torch.randint(vocab, (words,), generator=generator)
    logits = hidden.double() @ weight.double().mT + (0 if biases is None else biases.double())
    truth = logits.log_softmax(1).gather(1, target[:, None])[:, 0]

    def log_prob(table, product_dtype):
        logit = engine.target_logit(hidden, table, biases, target)
        return (logit - engine.log_partition(hidden, table, biases, product_dtype)).double()

    torch.testing.assert_close(log_prob(weight, torch.float32), truth, rtol=1e-5, atol=2e-5)
    half = log_prob(weight.bfloat16(), torch.bfloat16)
    torch.testing.assert_close(half, truth, rtol=3e-2, atol=0.15)
    for table, close in ((weight, 1e-5), (weight.bfloat16(), 2e-2)):
        found = engine.logits(hidden, table, biases)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), logits, rtol=close, atol=10 * close)
    partition = engine.log_partition(hidden, weight, biases, torch.float32)
    found = engine.root_mean_square_prob(hidden, weight, biases, partition)
    torch.testing.assert_close(
        found.double(), logits.softmax(1).square().mean(0).sqrt(), rtol=1e-4, atol=1e-7
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("storage", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_exact_softmax_and_its_gradients(engine, bias, storage, dtype):
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(11, 7, generator=generator)
    weight = torch.randn(40, 7, generator=generator).to(storage)
    biases = torch.randn(40, generator=generator) if bias else None
    target = torch.randint(40, (11,), generator=generator)
    factors = torch.rand(11, generator=generator)
    value, saved = engine.softmax_forward(hidden, weight, biases, target, dtype)
    got = engine.softmax_backward(saved, target, factors)
    leaves = [x.double().requires_grad_() for x in (hidden, weight, biases) if x is not None]
    logits = leaves[0] @ leaves[1].mT + (leaves[2] if bias else 0)
    wanted = logits.log_softmax(1).gather(1, target[:, None])[:, 0]
    (wanted * factors).sum().backward()
    rtol, atol = TOLERANCE[torch.bfloat16 if torch.bfloat16 in (storage, dtype) else dtype]
    assert got.weight.dtype == storage
    found = [value, got.hidden, got.weight, *([got.bias] if bias else [])]
    for ours, theirs in zip(found, [wanted.detach(), *(x.grad for x in leaves)], strict=True):
        scale = float(theirs.abs().max()) + 1
        torch.testing.assert_close(ours.double(), theirs, rtol=rtol, atol=atol * scale)


def test_the_exact_softmax_of_more_logits_than_are_made_at_a_time(engine):
    """In float64 by autograd; one state is sure of its word, by 10,000."""
    generator = torch.Generator().manual_seed(6)
    hidden = torch.randn(4200, 3, generator=generator)
    weight = torch.randn(600, 3, generator=generator)
    hidden[0], weight[599] = 100.0, 100 / 3
    biases = torch.randn(600, generator=generator)
    target = torch.randint(600, (4200,), generator=generator)
    factors = torch.rand(4200, generator=generator)
    value, saved = engine.softmax_forward(hidden, weight, biases, target, torch.float32)
    got = engine.softmax_backward(saved, target, factors)
    leaves = [x.double().requires_grad_() for x in (hidden, weight, biases)]
    log_prob = (leaves[0] @ leaves[1].mT + leaves[2]).log_softmax(1)
    wanted = log_prob.gather(1, target[:, None])[:, 0]
    (wanted * factors).sum().backward()
    found = [value, got.hidden, got.weight, got.bias]
    for ours, theirs in zip(found, [wanted.detach(), *(x.grad for x in leaves)], strict=True):
        scale = float(theirs.abs().max()) + 1
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-6 * scale)


GATES = {"sigmoid": 1, "tanh": 1, "relu": 1, "gru": 3, "lstm": 4}


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("steps", "streams", "size"), [(5, 3, 7), (1, 1, 1), (6, 2, 40)])
def test_recurrence_and_its_gradients(engine, cell, bias, keep, steps, streams, size, threads):
    """Against autograd of the formulas, step by step, in float64."""
    generator = torch.Generator().manual_seed(4)
    gates, parts = GATES[cell], 2 if cell == "lstm" else 1
    inputs = torch.randn(steps, streams, gates * size, generator=generator)
    state = torch.randn(parts, streams, size, generator=generator)
    weight = torch.randn(gates * size, size, generator=generator) / size
    biases = torch.randn(gates * size, generator=generator) if bias else None
    kept = (torch.rand(steps, streams, 1, generator=generator) > 0.4).float() if keep else None
    back = torch.randn(steps, streams, size, generator=generator)
    given = [inputs, state, weight] + ([biases] if bias else [])

    def run(dtype, function):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in given]
        mask = None if kept is None else kept.to(dtype)
        outputs, last = function(*leaves[:3], leaves[3] if bias else None, mask)
        (outputs * back.to(dtype)).sum().backward()
        return [outputs.detach(), last.detach(), *(leaf.grad for leaf in leaves)]

    def products_in(product):
        return lambda *given: autograd.recurrence(cell, *given, product, engine)

    truth = run(torch.float64, lambda *given: formulas(cell, *given))
    for got, want in zip(run(torch.float32, products_in(torch.float32)), truth, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=4e-6)
    for got, want in zip(run(torch.float32, products_in(torch.bfloat16)), truth, strict=True):
        scale = float(want.abs().max()) + 1
        torch.testing.assert_close(got.double(), want, rtol=4e-2, atol=2e-2 * scale)


def formulas(cell, inputs, state, weight, bias, keep):
    """The recurrences as they are written in books."""
    outputs = []
    for t, x in enumerate(inputs):
        s, *cells = state if keep is None else state * keep[t]
        product = s @ weight.mT + (0 if bias is None else bias)
        if cell == "lstm":
            i, f, g, o = (x + product).chunk(4, 1)
            c = f.sigmoid() * cells[0] + i.sigmoid() * g.tanh()
            state = torch.stack([o.sigmoid() * c.tanh(), c])
        elif cell == "gru":
            (xr, xz, xn), (pr, pz, pn) = x.chunk(3, 1), product.chunk(3, 1)
            z = (xz + pz).sigmoid()
            n = (xn + (xr + pr).sigmoid() * pn).tanh()
            state = ((1 - z) * n + z * s)[None]
        else:
            state = reference.ACTIVATIONS[cell](x + product)[None]
        outputs.append(state[0])
    return torch.stack(outputs), state


@pytest.mark.parametrize("storage", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (40,), (33, 1), (70, 7), (5, 64)])
def test_initial_values_are_the_same_for_every_engine_and_division(engine, storage, shape, threads):
    whole = torch.empty(shape, dtype=storage)
    engine.fill_uniform(whole, 0.3, 2**62 + 5, None)
    truth = torch.empty(shape)
    reference.fill_uniform(truth, 0.3, 2**62 + 5, None)
    assert torch.equal(whole, truth.to(storage))
    for owner in range(3):
        rows = torch.arange(len(whole))[owner::3].contiguous()
        part = torch.empty(len(rows), *shape[1:], dtype=storage)
        engine.fill_uniform(part, 0.3, 2**62 + 5, rows)
        assert torch.equal(part, whole[rows])


def test_initial_values_are_uniform(engine):
    table = torch.empty(400, 250)
    engine.fill_uniform(table, 0.5, 3, None)
    assert -0.5 < float(table.min()) < -0.4999
    assert 0.4999 < float(table.max()) < 0.5
    counts = torch.histc(table, 100, -0.5, 0.5)
    statistic = float(((counts - 1000) ** 2 / 1000).sum())
    assert abs(statistic - 99) < 5 * math.sqrt(2 * 99)
    flat = table.flatten()
    for lag in (1, 2, 125, 250):  # neighbours, halves of a draw, rows
        correlation = float((flat[:-lag] * flat[lag:]).mean()) * 12
        assert abs(correlation) < 5 / math.sqrt(len(flat))
    other = torch.empty(400, 250)
    engine.fill_uniform(other, 0.5, 4, None)
    assert abs(float((other * table).mean()) * 12) < 5 / math.sqrt(len(flat))


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
            None,
            *log_q,
            "nce",
            True,
            torch.float32,
        )


def test_native_refuses_what_it_cannot_compute():
    with pytest.raises(UserError, match="float64"):
        engine_for("native", torch.device("cpu"), torch.float64)
    with pytest.raises(UserError, match="impl is 'fast'"):
        engine_for("fast", torch.device("cpu"))
