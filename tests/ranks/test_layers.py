"""Layers with a process group: bytes, scoring, last batches, and mistakes that others have made."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from tests.crew import RankError
from tests.ranks.network import LOSSES
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import blackout
from blackout.ranks import Ranks, division_of

H, V = 8, 100


def _layer(group: Any, loss: str = "blackout", **options: Any) -> Any:
    torch.manual_seed(2)
    kind, more = LOSSES[loss]
    more = {} if kind is blackout.Full else {"samples": 16, **more}
    return kind(H, options.pop("classes", V), process_group=group, **{**more, **options})


def _examples(n: int, dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(n)
    hidden = torch.randn(n, H, generator=generator, dtype=dtype)
    return hidden, torch.randint(V, (n,), generator=generator)


# ---------------------------------------------------------------------- bytes


def _bytes(group: Any, n: int, **options: Any) -> dict[str, int]:
    ranks = Ranks.of(group)
    layer = _layer(ranks, **options)
    hidden, target = _examples(n * ranks.size, torch.float32)
    hidden, target = hidden.chunk(ranks.size)[ranks.rank], target.chunk(ranks.size)[ranks.rank]
    ranks.traffic.clear()
    layer(hidden.clone().requires_grad_(), target).loss.backward()
    return dict(ranks.traffic.bytes)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bytes_are_those_of_the_formula(crew: Any, ranks: int, precision: str) -> None:
    """(R-1) n (h (b + 4) + 16 R + 24), and three numbers a call: no K and no V in it."""
    n, b = 10, 4 if precision == "fp32" else 2
    expected = (ranks - 1) * n * (H * (b + 4) + 16 * ranks + 24) + (ranks - 1) * 24
    for more in ({}, {"samples": 48}, {"classes": 1000}, {"sampling": "strata"}):
        for found in crew.run(_bytes, ranks, n, precision=precision, **more):
            assert sum(found.values()) == expected, found


def test_other_losses_need_less(crew: Any) -> None:
    (blackout_bytes, *_), (sampled, *_), (nce, *_) = (
        crew.run(_bytes, 2, 10, loss=loss) for loss in ("blackout", "sampled", "nce")
    )
    assert "round two" not in sampled
    assert "round one" not in nce
    assert sum(nce.values()) < sum(sampled.values()) < sum(blackout_bytes.values())


# ---------------------------------------------------------------------- scoring


def _scored(group: Any, loss: str, sizes: list[int]) -> list[Any]:
    ranks = Ranks.of(group) if group is not None else Ranks.alone()
    layer = _layer(group, loss, bias=True, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.bias.copy_(layer.table.of_owned(torch.linspace(-1, 1, V)))
    hidden, target = _examples(sum(sizes))
    if group is not None:
        hidden, target = (x.split(sizes)[ranks.rank] for x in (hidden, target))
    row = torch.arange(len(hidden)).repeat_interleave(2)
    some = torch.tensor([3, 99, 0, 41])
    tiles = list(layer.log_prob_tiles(hidden))
    return [
        layer(hidden, target).output.detach(),
        layer.target_log_prob(hidden, target),
        layer.pair_log_prob(hidden, row, target.repeat_interleave(2)).view(-1, 2),
        layer.log_prob(hidden).detach(),
        layer.log_prob(hidden, some).detach(),
        torch.cat([tile for _, tile in tiles], 1).detach(),
        layer.topk(hidden, 7).values,
        layer.topk(hidden, 7).indices,
        layer.topk(hidden, 2, some).indices,
        layer.predict(hidden),
    ]


@pytest.mark.parametrize("loss", ["blackout", "full"])
@pytest.mark.parametrize("sizes", [[4, 4], [3, 0, 5], [1, 2, 3, 4]])
def test_scoring_over_ranks(crew: Any, loss: str, sizes: list[int]) -> None:
    expected = _scored(None, loss, sizes)
    parts = crew.run(_scored, len(sizes), loss, sizes)
    for number, whole in enumerate(expected):
        together = torch.cat([part[number] for part in parts])
        torch.testing.assert_close(together, whole, rtol=1e-12, atol=1e-12)
    assert float((expected[3].exp().sum(1) - 1).abs().max()) < 1e-12


# ---------------------------------------------------------------------- mistakes of others


def _gradients(group: Any, loss: str, sizes: list[int], **options: Any) -> list[Any]:
    ranks = Ranks.of(group) if group is not None else Ranks.alone()
    layer = _layer(group, loss, dtype=torch.float64, **options)
    hidden, target = _examples(sum(sizes))
    if group is not None:
        hidden, target = (x.split(sizes)[ranks.rank] for x in (hidden, target))
    hidden = hidden.clone().requires_grad_()
    output, value = layer(hidden, target)
    value.backward()
    grad = layer.weight.grad
    return [
        output.detach(),
        value.detach(),
        hidden.grad,
        grad.to_dense() if grad.is_sparse else grad,
        layer.division.rows(),
    ]


@pytest.mark.parametrize("loss", ["blackout", "nce", "full"])
def test_the_mean_of_ranks_is_the_mean_of_all(crew: Any, loss: str) -> None:
    """No factor of the number of ranks, statistics of all ranks, the states' gradient reduced."""
    output, value, hidden, gradient, _ = _gradients(None, loss, [12])
    parts = crew.run(_gradients, 3, loss, [4, 4, 4])
    torch.testing.assert_close(torch.cat([p[0] for p in parts]), output, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sum(p[1] for p in parts) / 3, value)
    # a rank's states have the gradient of its own mean, over 4 examples instead of 12
    torch.testing.assert_close(torch.cat([p[2] for p in parts]) / 3, hidden, rtol=1e-11, atol=1e-14)
    for *_, found, rows in parts:
        torch.testing.assert_close(found, gradient[rows], rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("sizes", [[5, 2], [3, 0, 1], [0, 0]])
def test_last_batches_of_any_size(crew: Any, sizes: list[int]) -> None:
    whole = _gradients(None, "blackout", [sum(sizes)], reduction="sum") if sum(sizes) else None
    parts = crew.run(_gradients, len(sizes), "blackout", sizes, reduction="sum")
    for size, part in zip(sizes, parts, strict=True):
        assert part[2].shape == (size, H)
        if whole is None:
            assert float(part[3].abs().sum()) == 0
        else:
            expected = whole[3][part[4]] / len(sizes)
            torch.testing.assert_close(part[3], expected, rtol=1e-11, atol=1e-14)
    if whole is not None:
        torch.testing.assert_close(torch.cat([p[2] for p in parts]), whole[2])


def _clipped(group: Any) -> tuple[float, float, float]:
    layer = _layer(group, dtype=torch.float64)
    body = nn.Linear(H, H, bias=False, dtype=torch.float64)
    layer(body(_examples(6)[0]), _examples(6)[1]).loss.backward()
    parameters = [*body.parameters(), *layer.parameters()]
    norm = blackout.clip_grad_norm_(parameters, 0.01)
    again = blackout.clip_grad_norm_(parameters, 1.0)
    update = blackout.RMSProp(parameters, clip=1.0)
    update.step()
    return float(norm), float(again), float(update.last_norm)


def test_rows_and_body_are_clipped_together(crew: Any) -> None:
    """All ranks have the same examples here, so that their bodies' gradients are equal."""
    expected = _clipped(None)
    found = crew.run(_clipped, 2)
    assert found[0] == found[1]
    assert expected[1] == pytest.approx(0.01)
    assert found[0] == pytest.approx(expected, rel=1e-10)


def _beside_ddp(group: Any, again: bool) -> list[Any]:
    """A body under DDP, the head outside; ``again``: its forward pass is made again on the way."""
    ranks = Ranks.of(group) if group is not None else Ranks.alone()
    torch.manual_seed(1)
    body: nn.Module = nn.Linear(H, H, dtype=torch.float64)
    if group is not None:
        body = DistributedDataParallel(body, process_group=group)
    layer = copy.deepcopy(_layer(group, "nce", dtype=torch.float64))
    hidden, target = (x.chunk(ranks.size)[ranks.rank] for x in _examples(8))
    states = body(hidden)
    call = partial(checkpoint, layer, use_reentrant=False) if again else layer
    call(states, target).loss.backward()
    division = division_of(layer.weight)
    assert (division is None) == (group is None)  # copies of a layer are divided too
    grads = [p.grad for p in body.parameters()]
    return [*grads, layer.log_z.grad, layer.weight.grad.to_dense(), layer.division.rows()]


@pytest.mark.parametrize("again", [False, True])
def test_a_body_under_ddp_and_a_divided_head(crew: Any, again: bool) -> None:
    *expected, rows_gradient, _ = _beside_ddp(None, False)
    for *found, gradient, rows in crew.run(_beside_ddp, 2, again):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-14)
        torch.testing.assert_close(gradient, rows_gradient[rows], rtol=1e-11, atol=1e-14)


def _inside_ddp(group: Any) -> None:
    network = nn.Sequential(nn.Linear(H, H))
    network.add_module("head", _layer(group))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = network

        def forward(self, x: Any, y: Any) -> Any:
            return self.parts.head(self.parts[0](x), y).loss

    wrapped = DistributedDataParallel(Whole(), process_group=group)
    hidden, target = _examples(4, torch.float32)
    wrapped(hidden, target)


def test_inside_ddp_it_is_refused(crew: Any) -> None:
    with pytest.raises(RankError) as failure:
        crew.run(_inside_ddp, 2)
    assert "leave it outside DistributedDataParallel" in failure.value.text


# ---------------------------------------------------------------------- refusals


def _unlike(group: Any, name: str) -> None:
    rank = Ranks.of(group).rank
    unlike: dict[str, Any] = {
        "n_classes": {"classes": V + rank},
        "samples": {"samples": 16 + rank},
        "seed": {"seed": rank},
        "counts": {"counts": torch.ones(V) + rank * torch.arange(V)},
        "bias": {"bias": bool(rank)},
        "collisions": {"collisions": ["keep", "remove"][rank]},
    }[name]
    _layer(group, **unlike)


@pytest.mark.parametrize("name", ["n_classes", "samples", "seed", "counts", "bias", "collisions"])
def test_ranks_that_disagree_are_named_before_training(crew: Any, name: str) -> None:
    with pytest.raises(RankError) as failure:
        crew.run(_unlike, 2, name)
    assert failure.value.kind == "UserError"
    assert f"{name} is " in failure.value.text
    assert "on rank 1" in failure.value.text


def _another_purpose(group: Any) -> None:
    layer = _layer(group)
    hidden, target = _examples(4, torch.float32)
    if Ranks.of(group).rank:
        layer.eval()
    layer(hidden, target)


def test_ranks_that_do_different_things_are_named(crew: Any) -> None:
    with pytest.raises(RankError) as failure:
        crew.run(_another_purpose, 2)
    assert "rank 1 calls the layer for another purpose than rank 0" in failure.value.text


def _refused(group: Any, **options: Any) -> None:
    layer = _layer(group, **options)
    hidden, _ = _examples(4, torch.float32)
    layer(hidden, torch.zeros(4, 2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 3}, "4 ranks cannot share 2 strata of 3 rows"),
        ({"samples": 3, "sampling": "strata"}, "4 ranks cannot share 2 strata of 100 rows"),
        ({"proposal": "bigram"}, "with process_group proposal must be unigram or batch"),
        ({}, "several classes an example"),
    ],
)
def test_what_cannot_be_divided_is_refused(crew: Any, options: Any, message: str) -> None:
    with pytest.raises(RankError) as failure:
        crew.run(_refused, 4, **options)
    assert failure.value.kind == "UserError"
    assert message in failure.value.text
