"""Draws from an alias table, and copies among them: the same words as on every other engine."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops.engine import Scalar
from blackout.ops.triton.launch import MASK64, block_of, launch, scalar, signed, tiles, warps_of
from blackout.ops.triton.numbers import GOLDEN, mix64, unsigned, whole
from blackout.ops.triton.rows import sorted_groups

_BLOCK = 512


def mixed_on_host(x: int) -> int:
    """The splitmix64 finaliser on a Python number."""
    x &= MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


@triton.jit
def drawn_words(threshold, alias, key, group, spot, vocab, there):
    """The words at places of groups; ``key`` is :func:`step_key`'s.

    float64, to be launched without fused multiply-add: as the other engines round it.
    """
    bits = mix64(key + ((unsigned(group) << 32) + unsigned(spot) + 1) * GOLDEN) >> 11
    position = bits.to(tl.float64) * (vocab.to(tl.float64) * 1.1102230246251565e-16)
    column = tl.minimum(position.to(tl.int64), (vocab - 1).to(tl.int64))
    chance = tl.load(threshold + column, mask=there, other=0.0)
    other = tl.load(alias + column, mask=there, other=0)
    return tl.where(position - column.to(tl.float64) < chance, column, other)


@triton.jit
def step_key(start, step, STEP_ON_DEVICE: tl.constexpr):
    """The key of a step's draws; ``start`` is :func:`draws_start`'s."""
    return mix64(unsigned(start) + unsigned(whole(step, STEP_ON_DEVICE)) * GOLDEN)


def draws_start(seed: int) -> int:
    """The key of a seed, to which a kernel adds the step."""
    return signed(mixed_on_host(seed + GOLDEN.value))


@triton.jit(do_not_specialize=["start", "step", "vocab"])
def _draw(
    threshold, alias, start, step, out, vocab, count, samples,
    STEP_ON_DEVICE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    key = step_key(start, step, STEP_ON_DEVICE)
    word = drawn_words(threshold, alias, key, place // samples, place % samples, vocab, there)
    tl.store(out + place, word.to(out.dtype.element_ty), mask=there)


def draw_samples(
    threshold: Tensor, alias: Tensor, seed: int, step: Scalar, groups: int, samples: int
) -> Tensor:
    """(G, K) words, a pure function of seed, step, group and place."""
    out = torch.empty(groups, samples, dtype=torch.int64, device=alias.device)
    start = draws_start(seed)
    now, on_device = scalar(step)
    launch(
        _draw,
        (tiles(out.numel(), _BLOCK),),
        (threshold, alias, start, now, out),
        (len(threshold), out.numel(), samples, on_device, _BLOCK),
        enable_fp_fusion=False,
    )
    return out


@triton.jit
def _merge(ordered, words, copies, samples, columns, BLOCK: tl.constexpr):
    """One group: equal words stand side by side; each run becomes a column."""
    group = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    there = k < samples
    word = tl.load(ordered + group * samples + k, mask=there, other=0)
    before = tl.load(ordered + group * samples + k - 1, mask=there & (k > 0), other=-1)
    fresh = (word != before) & there
    column = tl.cumsum(fresh.to(tl.int32), 0) - 1
    found = tl.sum(fresh.to(tl.int32), 0)
    tl.store(words + group * columns + column, word, mask=fresh & (column < columns))
    # whole numbers: their sum does not depend on the order
    tl.atomic_add(copies + group * columns + column, 1.0, mask=there & (column < columns))
    # what is left over holds draws from all over the group, so that no row gets many of them
    spare = (k >= found) & (k < columns)
    place = (k - found) * samples // tl.maximum(columns - found, 1)
    again = tl.load(ordered + group * samples + place, mask=spare, other=0)
    tl.store(words + group * columns + k, again, mask=spare)
    if found > columns:  # must never pass unnoticed: the loss becomes infinite
        tl.store(copies + group * columns, float("inf"))


def merge_into(samples: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Words (G, C), ascending, and how often each was drawn, for a given C.

    Columns that are left over hold words of the group, drawn 0 times. A group with more than C
    words has an infinite multiplicity, which no loss survives: C must be chosen so that it does not
    happen (:func:`capacity`).
    """
    groups, count = samples.shape
    ordered = sorted_groups(samples)
    words = torch.empty(groups, columns, dtype=samples.dtype, device=samples.device)
    copies = torch.zeros(groups, columns, device=samples.device)
    block = block_of(max(count, columns))
    launch(
        _merge, (groups,), (ordered, words, copies), (count, columns, block),
        num_warps=warps_of(block),
    )  # fmt: skip
    return words, copies


def merge_copies(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Each word of a group once; as many columns as draws, since nobody waits to count them."""
    return merge_into(samples, samples.shape[1])


def capacity(q: Tensor, samples: int) -> int:
    """Columns that ``samples`` draws from probabilities ``q`` do not exceed, a multiple of 32.

    The mean number of different words and eight standard deviations: the number is nearly normal,
    so that a set has more once in 10**15 times.
    """
    q = q.double().clamp(max=1 - 1e-12)
    missed = torch.log1p(-q)
    seen = -torch.expm1(samples * missed)
    together = float((q * torch.exp((samples - 1) * missed)).sum()) ** 2 * samples
    spread = max(float((seen * (1 - seen)).sum()) - together, 1.0) ** 0.5
    return 32 * (int(float(seen.sum()) + 8 * spread) // 32 + 1)
