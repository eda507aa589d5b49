"""Two rounds of numbers a word: the objectives of one process, and finite whatever the logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from blackout.ops.cpu.rounds import Rounds
from blackout.ops.reference.objectives import OBJECTIVES
from blackout.output.divided import native
from blackout.output.divided.rounds import ROUNDS
from blackout.ranks import Ranks


def _objectives(group: Any, name: str, z_target: Any, z: Any, copies: Any) -> list[Any]:
    """Columns dealt out to ranks; targets too."""
    ranks = Ranks.of(group)
    mine = torch.arange(z.shape[-1]) % ranks.size == ranks.rank
    none = not mine.any()  # a rank without a sample
    if none:
        mine, copies = torch.arange(z.shape[-1]) < 1, torch.zeros_like(copies)
    here = torch.arange(z_target.shape[1]) % ranks.size == ranks.rank
    own = torch.where(here, z_target, -torch.inf)
    found = ROUNDS[name](own, z[..., mine], copies[..., mine], ranks)
    if none:
        assert not found.d_samples.any()
    return [found.value, found.d_target, found.d_samples[..., :0] if none else found.d_samples]


def _case(dtype: torch.dtype, scale: float, seed: int) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    z_target = scale * torch.randn(2, 6, generator=generator, dtype=torch.float64)
    z = scale * torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    copies = torch.tensor([[1.0, 0.0, 4.0], [2.0, 1.0, 0.0]])[:, None, :].expand(2, 6, 3)
    return z_target.to(dtype), z.to(dtype), copies.to(dtype).clone()


@pytest.mark.parametrize("name", ROUNDS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_they_are_those_of_one_process(crew: Any, ranks: int, name: str) -> None:
    for scale in (3.0, 200.0):
        case = _case(torch.float64, scale, ranks)
        expected = OBJECTIVES[name](*case)  # type: ignore[index]
        _agrees(crew.run(_objectives, ranks, name, *case), expected, name, 1e-11)


def _agrees(parts: list[Any], expected: Any, name: str, tolerance: float) -> None:
    close = {"rtol": tolerance, "atol": tolerance}
    for rank, (value, d_target, d_samples) in enumerate(parts):
        torch.testing.assert_close(value, expected.value, **close)
        columns = expected.d_samples[..., rank :: len(parts)]
        torch.testing.assert_close(d_samples, columns, **close)
        if name != "nce":  # there each rank has those of its own targets
            torch.testing.assert_close(d_target, expected.d_target, **close)


@pytest.mark.parametrize("name", ROUNDS)
def test_finite_at_ten_thousand(crew: Any, name: str) -> None:
    signs = torch.tensor([-1e4, 1e4])
    z_target = signs.repeat(3).expand(2, 6).clone()
    for z in (
        torch.full((2, 6, 3), 1e4),
        torch.full((2, 6, 3), -1e4),
        torch.tensor([1e4, -1e4, 3.0]).expand(2, 6, 3).clone(),
        torch.tensor([1e4, 1e4, -1e4]).expand(2, 6, 3).clone(),
    ):
        copies = torch.tensor([1.0, 2.0, 1.0]).expand(2, 6, 3).clone()
        expected = OBJECTIVES[name](z_target, z, copies)  # type: ignore[index]
        parts = crew.run(_objectives, 2, name, z_target, z, copies)
        assert all(bool(x.isfinite().all()) for part in parts for x in part[::2])
        _agrees(parts, expected, name, 1e-6)


def _both(group: Any, scale: float, dtype: torch.dtype) -> list[Any]:
    """Native and plain rounds over the same columns, one copy less of some for each word."""
    ranks = Ranks.of(group)
    generator = torch.Generator().manual_seed(7 + ranks.rank)
    groups, words, columns = 3, 5, 37
    z = scale * torch.randn(groups, words, columns, generator=generator)
    if scale > 100:
        z = z.clamp(-1e4, 1e4)
    copies = torch.randint(0, 4, (groups, columns), generator=generator).float()
    copies[0] = copies[0].clamp(max=1)
    copies[1] = 0  # a group without samples here
    drawn = torch.randint(columns, (groups, words), generator=generator)
    replaced = drawn.where(copies.gather(1, drawn) > 0, -1)
    counted = copies[:, None, :].repeat(1, words, 1)
    less = (replaced >= 0).float()[..., None]
    counted.scatter_add_(2, replaced.clamp(min=0)[..., None], -less)
    z_target = scale * torch.randn(groups, words, generator=torch.Generator().manual_seed(3))
    own = z_target if ranks.rank == 0 else torch.full_like(z_target, -torch.inf)
    offset = torch.randn(groups, columns, generator=generator)
    logits = z.to(dtype)
    plain = ROUNDS["blackout"](own, logits.float() - offset[:, None], counted, ranks)
    fast = native.blackout(own, Rounds(logits, offset, copies, replaced), ranks)
    return [*plain, fast.value, fast.d_target, fast.d_samples.float()]


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("ranks", [1, 3])
def test_native_rounds_are_the_plain_ones(crew: Any, ranks: int, scale: float) -> None:
    for found in crew.run(_both, ranks, scale, torch.float32):
        for plain, fast in zip(found[:3], found[3:], strict=True):
            assert bool(fast.isfinite().all())
            torch.testing.assert_close(fast, plain, rtol=2e-5, atol=2e-5)
    for found in crew.run(_both, ranks, scale, torch.bfloat16):
        torch.testing.assert_close(found[3], found[0], rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(found[5], found[2], rtol=1e-2, atol=1e-2)
