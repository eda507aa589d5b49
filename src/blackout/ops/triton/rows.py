"""Row gradients summed word by word: sorted once, added up in chunks, runs joined in order.

Entries of one word stand side by side after sorting: a run. A program adds up the entries of one
chunk in their order; a run that goes on in later chunks gets their parts added afterwards, in the
chunks' order. So every sum has one fixed order, and the same entries give the same bits. The
squares of the sums come out of the same pass.

How many runs there are stays on the device: arrays have room for every entry being a run.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops.triton.launch import block_of

CHUNK = 32
_COLUMNS = 512
_FLAT = 1024


class Order(NamedTuple):
    """Entries sorted by their rows."""

    rows: Tensor  # (N,), the distinct rows, ascending; then the last one again and again
    entry: Tensor  # (N,), which entry stands at each place
    run: Tensor  # (N,) int32, which run each place belongs to
    first: Tensor  # (N + 1,) int32, where each run begins; then N
    runs: Tensor  # (1,) int32, how many runs there are


@triton.jit
def _fresh(ordered, fresh, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    here = tl.load(ordered + place, mask=there, other=0)
    before = tl.load(ordered + place - 1, mask=there & (place > 0), other=0)
    tl.store(fresh + place, ((here != before) | (place == 0)).to(tl.int32), mask=there)


@triton.jit
def _runs(
    ordered, run, rows, first, found, live, count, WITH_LIVE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """``run`` holds sums of the fresh ones so far, 1 at least."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    here = tl.load(ordered + place, mask=there, other=0)
    number = tl.load(run + place, mask=there, other=1) - 1
    before = tl.load(run + place - 1, mask=there & (place > 0), other=0) - 1
    fresh = there & (number != before)
    tl.store(rows + number, here.to(rows.dtype.element_ty), mask=fresh)
    tl.store(first + number, place, mask=fresh)
    runs = tl.load(run + count - 1)
    spare = there & (place >= runs)
    last = tl.zeros_like(here) + tl.load(ordered + count - 1)
    tl.store(rows + place, last.to(rows.dtype.element_ty), mask=spare)
    tl.store(first + place + 1, count, mask=there & (place + 1 >= runs))
    changed = runs
    if WITH_LIVE:
        changed = tl.where(tl.load(live) != 0, runs, 0)
    tl.store(found + place, changed, mask=place == 0)


def order_rows(rows: Tensor, live: Tensor | None = None) -> Order:
    """Entries sorted by their rows (N,); where ``live`` (1,) is 0, as if there were no runs."""
    count, device = len(rows), rows.device
    ordered, entry = rows.to(torch.int32).sort(stable=True)
    run = torch.empty(count, dtype=torch.int32, device=device)
    grid = (triton.cdiv(count, _FLAT),)
    _fresh[grid](ordered, run, count, _FLAT)
    run = torch.cumsum(run, 0, dtype=torch.int32)
    distinct = torch.empty(count, dtype=torch.int64, device=device)
    first = torch.empty(count + 1, dtype=torch.int32, device=device)
    found = torch.empty(1, dtype=torch.int32, device=device)
    _runs[grid](
        ordered, run, distinct, first, found, found if live is None else live, count,
        live is not None, _FLAT,
    )  # fmt: skip
    return Order(distinct, entry, run, first, found)


@triton.jit
def load_entry(
    entry, values, more, scale, leading, column, there, size, WITH_MORE: tl.constexpr
):  # fmt: skip
    """A gradient: of ``values``, or for entries from ``leading`` on ``scale`` times ``more``."""
    if WITH_MORE:
        if entry < leading:
            row = tl.load(values + entry * size + column, mask=there, other=0.0).to(tl.float32)
        else:
            other = entry - leading
            row = tl.load(more + other * size + column, mask=there, other=0.0).to(tl.float32)
            row *= tl.load(scale + other)
    else:
        row = tl.load(values + entry * size + column, mask=there, other=0.0).to(tl.float32)
    return row


@triton.jit
def _sum_chunk(
    entry_of, run_of, first, values, more, scale, sums, parts, squares, count, size, leading,
    WITH_MORE: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums of the runs that begin in this chunk; the part of one that began before goes aside.

    A run of one entry is not copied: its gradient lies where it is.
    """
    chunk = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < size
    begin = chunk * CHUNK
    end = tl.minimum(begin + CHUNK, count)
    run = tl.load(run_of + begin)
    started_before = tl.load(first + run - 1) < begin
    total = tl.zeros([BLOCK], tl.float32)
    square = tl.zeros([BLOCK], tl.float32)
    for i in range(CHUNK):
        place = begin + i
        inside = place < end
        entry = tl.load(entry_of + place, mask=inside, other=0).to(tl.int64)
        wanted = there & inside
        row = load_entry(entry, values, more, scale, leading, column, wanted, size, WITH_MORE)
        here = tl.load(run_of + place, mask=inside, other=0)
        here = tl.where(inside, here, run)
        if here != run:
            if started_before:
                tl.store(parts + chunk.to(tl.int64) * size + column, total, mask=there)
            else:
                square += total * total
                if tl.load(first + run) - tl.load(first + run - 1) > 1:
                    target = sums + (run - 1).to(tl.int64) * size + column
                    tl.store(target, total.to(sums.dtype.element_ty), mask=there)
            started_before = here != here
            run = here
            total = tl.zeros([BLOCK], tl.float32)
        total += row
    if started_before:
        tl.store(parts + chunk.to(tl.int64) * size + column, total, mask=there)
    else:
        length = tl.load(first + run) - tl.load(first + run - 1)
        if length > 1:
            target = sums + (run - 1).to(tl.int64) * size + column
            tl.store(target, total.to(sums.dtype.element_ty), mask=there)
        if tl.load(first + run) <= end:
            square += total * total
    tl.store(squares + chunk * tl.num_programs(1) + tl.program_id(1), tl.sum(square, 0))


@triton.jit
def _join_chunks(
    run_of, first, sums, parts, squares, count, size, CHUNK: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The first chunk in which a run goes on adds the parts of all its chunks, in their order."""
    chunk = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < size
    begin = chunk * CHUNK
    run = tl.load(run_of + begin)
    start = tl.load(first + run - 1)
    stop = tl.load(first + run)
    square = tl.zeros([BLOCK], tl.float32)
    if (start < begin) & (start >= begin - CHUNK):
        target = sums + (run - 1).to(tl.int64) * size + column
        total = tl.load(target, mask=there, other=0.0).to(tl.float32)
        later = chunk
        while later * CHUNK < stop:
            part = parts + later.to(tl.int64) * size + column
            total += tl.load(part, mask=there, other=0.0)
            later += 1
        tl.store(target, total.to(sums.dtype.element_ty), mask=there)
        square = total * total
    tl.store(squares + chunk * tl.num_programs(1) + tl.program_id(1), tl.sum(square, 0))


class Sums(NamedTuple):
    """A row-sparse gradient: entries in their order, and the sums of runs of several."""

    order: Order
    values: Tensor  # (n, h), the first n entries
    more: Tensor | None  # (N - n, h), the others …
    scale: Tensor | None  # … times these (N - n,)
    sums: Tensor  # (N, h); a run of one entry has nothing here
    squares: Tensor  # partial sums of the squares

    @property
    def rows(self) -> Tensor:
        """The distinct rows, ascending; filled up with the last one."""
        return self.order.rows

    @property
    def distinct(self) -> Tensor:
        """How many rows there are, before they are filled up, (1,)."""
        return self.order.runs


def square_slots(entries: int, size: int) -> int:
    """How many partial sums of squares :func:`sum_rows` has."""
    return 2 * triton.cdiv(entries, CHUNK) * triton.cdiv(size, block_of(size, _COLUMNS))


def sum_rows(
    order: Order,
    values: Tensor,
    more: Tensor | None = None,
    scale: Tensor | None = None,
    squares: Tensor | None = None,
) -> Sums:
    """Sums of the entries of each run; ``squares`` takes the partial sums of their squares."""
    count, size, device = len(order.entry), values.shape[1], values.device
    if squares is None:
        squares = torch.empty(square_slots(count, size), device=device)
    chunks, block = triton.cdiv(count, CHUNK), block_of(size, _COLUMNS)
    sums = torch.empty(count, size, dtype=values.dtype, device=device)
    parts = torch.empty(chunks, size, device=device)
    grid = (chunks, triton.cdiv(size, block))
    half = len(squares) // 2
    _sum_chunk[grid](
        order.entry, order.run, order.first, values, values if more is None else more,
        squares if scale is None else scale, sums, parts, squares[:half], count, size, len(values),
        more is not None, CHUNK, block, num_warps=max(1, block // 256),
    )  # fmt: skip
    _join_chunks[grid](
        order.run, order.first, sums, parts, squares[half:], count, size,
        CHUNK, block, num_warps=max(1, block // 256),
    )  # fmt: skip
    return Sums(order, values, more, scale, sums, squares)
