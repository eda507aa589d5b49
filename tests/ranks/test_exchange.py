"""Who owns what, and what the collectives bring: against the whole, on 1 to 4 ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.crew import RankError

from blackout.errors import UserError
from blackout.ranks import Division, Ranks, divide, strata_for
from blackout.tables import ShardedTable, Table


@pytest.mark.parametrize(("n_rows", "strata"), [(10, 4), (200, 64), (67, 64), (5, 1)])
def test_every_row_has_one_owner_and_one_place(n_rows: int, strata: int) -> None:
    words = torch.arange(n_rows)
    for size in range(1, min(strata, 7) + 1):
        parts = [Division(n_rows, strata, rank, size) for rank in range(size)]
        for part in parts:
            rows = part.rows()
            assert len(rows) == part.length
            assert torch.equal(rows, words[parts[0].owner(words) == part.rank])  # ascending
            assert torch.equal(part.local(rows), torch.arange(part.length))
            assert all(part.before(w) == int((rows < w).sum()) for w in range(n_rows + 1))
            own = torch.tensor(list(part.own_strata))
            assert torch.equal(rows % strata, own[torch.arange(len(rows)) % len(own)])


def test_strata_are_a_power_of_two_that_rows_and_samples_fill() -> None:
    assert [strata_for(v) for v in (2, 63, 64, 10**8)] == [2, 32, 64, 64]
    assert strata_for(1000, 10) == 8


def _collectives(group: Any) -> dict[str, Any]:
    ranks = Ranks.of(group)
    r, size = ranks.rank, ranks.size
    part = torch.arange(3.0) + 10 * r
    lengths = [n % 3 for n in range(size)]
    uneven = ranks.gather_uneven(torch.full((lengths[r], 2), r, dtype=torch.bfloat16), lengths)
    sent = [torch.full((to + 1,), 10 * r + to) for to in range(size)]
    got = ranks.exchange(sent, [r + 1] * size)
    big = torch.tensor([1e8, 1.0, -1e8, 0.25])[:size] if size > 1 else torch.ones(1)
    ordered = ranks.sum_in_order(big[r].expand(5).clone())
    return {
        "gather": torch.stack(ranks.gather(part)),
        "uneven": [p.tolist() for p in uneven],
        "exchange": [p.tolist() for p in got],
        "sum": ordered.tolist(),
        "in order": float(sum(big.tolist(), 0.0) if size == 1 else _float_sum(big)),
        "sums": ranks.sums([0.1, float(r)]),
        "bytes": dict(ranks.traffic.bytes),
    }


def _float_sum(numbers: torch.Tensor) -> float:
    total = numbers[0].clone()
    for number in numbers[1:]:
        total += number
    return float(total)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_collectives(crew: Any, size: int) -> None:
    found = crew.run(_collectives, size)
    for r, one in enumerate(found):
        assert torch.equal(one["gather"], torch.arange(3.0) + 10 * torch.arange(size)[:, None])
        assert one["uneven"] == [[[n, n]] * (n % 3) for n in range(size)]
        assert one["exchange"] == [[10 * n + r] * (r + 1) for n in range(size)]
        assert one["sum"] == [one["in order"]] * 5
        assert one["sums"] == found[0]["sums"]
        if size > 1:
            others = [n for n in range(size) if n != r]
            assert one["bytes"]["gather"] == 12 * (size - 1) + 4 * sum(n % 3 for n in others)
            assert one["bytes"]["exchange"] == 8 * (r + 1) * (size - 1)
            assert one["bytes"]["sums"] == 16 * (size - 1)


def _looked_up(group: Any, words: torch.Tensor, storage: torch.dtype) -> dict[str, Any]:
    ranks = Ranks.of(group)
    torch.manual_seed(5)
    table = ShardedTable(70, 6, ranks, init_range=0.1, storage=storage)
    mine = words[ranks.rank :: ranks.size]
    rows = table(mine)
    (rows.double() * (1 + mine[:, None])).sum().backward()
    grad = table.weight.grad
    assert grad is not None
    return {
        "owned": table.owned,
        "weight": table.weight.detach(),
        "rows": rows.detach(),
        "gradient": grad.to_dense(),
        "sparse": grad.is_sparse,
    }


def _differentiated_twice(group: Any) -> None:
    table = ShardedTable(70, 6, Ranks.of(group), init_range=0.1)
    scale = torch.ones((), requires_grad=True)
    square = (scale * table(torch.tensor([3, 69]))).square().sum()
    torch.autograd.grad(square, table.weight, create_graph=True)


def test_rows_from_other_ranks_have_no_second_derivative(crew: Any) -> None:
    with pytest.raises(RankError, match="first derivatives only"):
        crew.run(_differentiated_twice, 2)


@pytest.mark.parametrize("storage", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_divided_table_is_the_whole_one(crew: Any, size: int, storage: torch.dtype) -> None:
    torch.manual_seed(5)
    whole = Table(70, 6, init_range=0.1, storage=storage)
    words = torch.tensor([3, 69, 0, 3, 3, 12, 41, 64, 64, 1, 3])
    found = crew.run(_looked_up, size, words, storage)
    rows = whole(words)
    (rows.double() * (1 + words[:, None])).sum().backward()
    assert whole.weight.grad is not None
    gradient = whole.weight.grad.to_dense()
    for r, part in enumerate(found):
        assert part["sparse"]
        assert torch.equal(part["weight"], whole.weight[part["owned"]])
        assert torch.equal(part["rows"], rows[r::size])
        added = (part["gradient"] * size).to(storage)
        torch.testing.assert_close(added, gradient[part["owned"]])


def _disagree(group: Any) -> None:
    ranks = Ranks.of(group)
    ranks.require_same({"n_classes": 10, "samples": 5})
    ranks.require_same({"n_classes": 10, "samples": 5 + (ranks.rank == 1)})


def test_what_ranks_disagree_on_is_named(crew: Any) -> None:
    with pytest.raises(AssertionError, match="samples is 5 on rank 0 and 6 on rank 1") as failure:
        crew.run(_disagree, 2)
    assert failure.value.kind == "UserError"  # type: ignore[attr-defined]


def test_more_ranks_than_strata_are_refused() -> None:
    ranks = Ranks.alone()
    ranks.size = 5
    with pytest.raises(UserError, match="5 ranks cannot share 4 strata of 7 rows"):
        divide(7, ranks)
