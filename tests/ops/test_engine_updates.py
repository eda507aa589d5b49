"""The updates on every engine: every decay and option, rows, bfloat16 rounding."""

import pytest
import torch
from torch import Tensor, nn

from blackout.ops import reference
from blackout.ops.engine import RmsProp, Rounding
from blackout.optim import Adagrad, Adam, RMSProp


def row_gradient(vocab: int, size: int, n: int, generator: torch.Generator) -> Tensor:
    rows = (torch.rand(n, generator=generator) ** 4 * vocab).long()
    values = torch.randn(n, size, generator=generator)
    return torch.sparse_coo_tensor(rows[None], values, (vocab, size), check_invariants=True)


@pytest.mark.parametrize("decay", ["exact", "paper", "none"])
@pytest.mark.parametrize("second_moment", ["full", "row"])
@pytest.mark.parametrize(("size", "clip"), [(1, 0.0), (252, 1.0)])
def test_rmsprop_equals_the_reference(
    engine, decay, second_moment, size, clip, threads, fewer, home
):
    vocab, n, steps = fewer(200, 20), fewer(150, 40), fewer(12, 4)
    rate = torch.linspace(0.9, 0.01, vocab, dtype=torch.float64)

    def run(impl: str, dtype: torch.dtype, device: torch.device | str = "cpu") -> list[Tensor]:
        generator = torch.Generator().manual_seed(5)
        table = nn.Parameter(torch.ones(vocab, size, dtype=dtype, device=device))
        matrix = nn.Parameter(torch.ones(3, size, dtype=dtype, device=device))
        optimizer = RMSProp(
            [{"params": [table, matrix], "update_rate": rate.to(device)}],
            lr=0.01,
            beta=0.97,
            damping=1e-4,
            decay=decay,
            second_moment=second_moment,
            clip=clip,
            impl=impl,
        )
        for _ in range(steps):
            table.grad = row_gradient(vocab, size, n, generator).to(device, dtype)
            matrix.grad = torch.randn(3, size, generator=generator).to(device, dtype)
            optimizer.step()
        state = optimizer.state[table]
        norm = torch.as_tensor(optimizer.last_norm)
        return [table.detach(), matrix.detach(), state["moment"], state["touched"].double(), norm]

    truth = run("reference", torch.float64)
    for got, want in zip(run(engine.name, torch.float32, home), truth, strict=True):
        torch.testing.assert_close(got.double().cpu(), want.double(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("optimizer_class", [Adagrad, Adam])
@pytest.mark.parametrize("second_moment", ["full", "row"])
@pytest.mark.parametrize(("size", "clip"), [(1, 0.0), (252, 1.0)])
def test_adagrad_and_adam_equal_the_reference(
    engine, optimizer_class, second_moment, size, clip, threads, fewer, home
):
    vocab, n, steps = fewer(200, 20), fewer(150, 40), fewer(12, 4)

    def run(impl: str, dtype: torch.dtype, device: torch.device | str = "cpu") -> list[Tensor]:
        generator = torch.Generator().manual_seed(5)
        parameters = [
            nn.Parameter(torch.ones(rows, size, dtype=dtype, device=device)) for rows in (vocab, 3)
        ]
        optimizer = optimizer_class(
            parameters,
            lr=0.01,
            damping=1e-4,
            second_moment=second_moment,
            weight_decay=0.3,
            clip=clip,
            impl=impl,
        )
        for _ in range(steps):
            parameters[0].grad = row_gradient(vocab, size, n, generator).to(device, dtype)
            parameters[1].grad = torch.randn(3, size, generator=generator).to(device, dtype)
            optimizer.step()
        states = [value for p in parameters for value in optimizer.state[p].values()]
        return [p.detach() for p in parameters] + states

    truth = run("reference", torch.float64)
    for got, want in zip(run(engine.name, torch.float32, home), truth, strict=True):
        torch.testing.assert_close(got.double().cpu(), want.double(), rtol=2e-4, atol=2e-5)


def test_adam_in_bfloat16_is_the_references(engine, threads, fewer):
    generator = torch.Generator().manual_seed(0)
    vocab = fewer(300, 30)
    gradient = row_gradient(vocab, 6, 3 * vocab, generator)
    rows, values = gradient._indices()[0], gradient._values()
    update = RmsProp(0.5, 0.9, 0.9, 1e-6, Rounding(1, 2, torch.tensor(345)), 0.01)
    tables = []
    for module in (engine, reference):
        table = torch.full((vocab, 6), 1.0).bfloat16()
        collected = module.collect_rows(rows, values, vocab)
        momenta = torch.ones(len(collected.rows), 1)  # with room for more than there are
        distinct = int(collected.distinct)
        momenta[:distinct, 0] = torch.linspace(0, 0.9, distinct)
        mean, moment = torch.full((vocab, 6), 0.1), torch.zeros(vocab, 6)
        module.adam_rows(table, mean, moment, collected, momenta, 1e-3, update)
        tables.append(table)
    # a float32 sum that differs in its last bit may fall on the other side of a draw
    assert float((tables[0] != tables[1]).double().mean()) < 1e-3
    assert float((tables[0] != 1).double().mean()) > 0.5


def test_a_row_moment_is_the_mean_over_the_row():
    table = nn.Parameter(torch.zeros(4, 2))
    table.grad = torch.sparse_coo_tensor([[2]], [[3.0, 1.0]], (4, 2), check_invariants=True)
    optimizer = RMSProp(
        [table],
        lr=1.0,
        beta=0.5,
        damping=0.0,
        second_moment="row",
        correct_bias=False,
        by_width=False,
    )
    optimizer.step()
    moment = optimizer.state[table]["moment"]
    assert moment.shape == (4, 1)
    assert float(moment[2]) == pytest.approx(0.5 * (9 + 1) / 2)
    torch.testing.assert_close(table.detach()[2], -torch.tensor([3.0, 1.0]) / 2.5**0.5)


def test_bfloat16_rounding_is_the_references_and_right_in_the_mean(engine, threads, fewer):
    generator = torch.Generator().manual_seed(0)
    vocab = fewer(300, 30)
    for size in (1, 6, 64):
        weight = torch.full((vocab, size), 1.0).bfloat16()
        ours, theirs = weight.clone(), weight.clone()
        gradient = row_gradient(vocab, size, 3 * vocab, generator)
        rows, values = gradient._indices()[0], gradient._values()
        update = RmsProp(0.5, 0.9, 0.9, 1e-6, Rounding(1, 2, torch.tensor(345)))
        for module, table in ((engine, ours), (reference, theirs)):
            moment = torch.zeros(vocab, size)
            collected = module.collect_rows(rows, values, vocab)
            module.rmsprop_rows(table, moment, collected, 1e-3, update)
        assert not torch.equal(ours, weight)
        # a float32 sum that differs in its last bit may fall on the other side of a draw
        assert float((ours != theirs).double().mean()) < 1e-3
    exact = torch.full((1, 1), 1.0 + 2.0**-10)  # an eighth of the way from 1 to the next bfloat16
    draws = [
        float(reference.rounded(exact, torch.tensor([0]), torch.tensor(key))) for key in range(4000)
    ]
    assert set(draws) == {1.0, 1.0 + 2.0**-7}
    assert sum(draws) / len(draws) == pytest.approx(float(exact), abs=4 * 2**-7 * 0.33 / 4000**0.5)


def test_sum_duplicates(engine, threads, fewer):
    generator = torch.Generator().manual_seed(0)
    for n in (0, 1, fewer(500, 130)):
        gradient = row_gradient(70, 9, n, generator)
        got = engine.sum_duplicates(gradient._indices()[0], gradient._values())
        want = reference.sum_duplicates(gradient._indices()[0], gradient._values().double())
        assert torch.equal(got[0], want[0])
        torch.testing.assert_close(got[1].double(), want[1], rtol=1e-5, atol=1e-5)


def test_norms_factors_and_steps_may_be_tensors(engine):
    """Nothing in an update asks for a number on the host."""
    generator = torch.Generator().manual_seed(0)
    gradient = row_gradient(50, 4, 30, generator)
    collected = engine.collect_rows(gradient._indices()[0], gradient._values(), 50)
    weights = []
    for wrap in (float, torch.tensor):
        weight, moment = torch.ones(50, 4), torch.zeros(50, 4)
        touched = torch.zeros(50, dtype=torch.int32)
        step = torch.tensor(3) if wrap is torch.tensor else 3
        aging = engine.exact_aging(touched, collected.rows, step, 0.9).float()[:, None]
        update = RmsProp(wrap(0.5), wrap(0.01), 0.9, 1e-6, Rounding(1, 0, step))
        engine.rmsprop_rows(weight, moment, collected, aging.contiguous(), update)
        assert set(touched.tolist()) == {0, 3}
        weights.append(weight)
    assert torch.equal(*weights)
    dense = gradient.to_dense()
    assert float(engine.squared_norm(collected)) == pytest.approx(float(engine.squared_norm(dense)))
