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

from blackout.ops.triton.launch import block_of, launch, tiles

_COLUMNS = 512
_FLAT = 1024
_FEW = 1 << 14  # entries up to which each is compared with each
_OWN, _TILE = 32, 128


class Order(NamedTuple):
    """Entries sorted by their rows."""

    rows: Tensor  # (N,), the distinct rows, ascending; then the last one again and again
    entry: Tensor  # (N,), which entry stands at each place
    run: Tensor  # (N,) int32, which run each place belongs to
    first: Tensor  # (N + 1,) int32, where each run begins; then N
    runs: Tensor  # (1,) int32, how many runs there are


@triton.jit
def _rank(
    rows, ordered, entry, count, pieces,
    WITH_ENTRY: tl.constexpr, OWN: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Each finds its place in its group: how many have a smaller row, or the same and earlier.

    Every pair is looked at, which for a few thousand takes a GPU less than to begin a real sort.
    """
    i = tl.program_id(0) * OWN + tl.arange(0, OWN)
    begin = tl.program_id(1).to(tl.int64) * count
    row = tl.load(rows + begin + i, mask=i < count, other=0).to(tl.int64)
    own = (row << 32) + i
    before = tl.zeros([OWN, TILE], tl.int32)
    part = 0
    while part < pieces:
        j = part * TILE + tl.arange(0, TILE)
        there = j < count
        other = (tl.load(rows + begin + j, mask=there, other=0).to(tl.int64) << 32) + j
        before += ((other[None, :] < own[:, None]) & there[None, :]).to(tl.int32)
        part += 1
    rank = tl.sum(before, 1)
    tl.store(ordered + begin + rank, row.to(tl.int32), mask=i < count)
    if WITH_ENTRY:
        tl.store(entry + begin + rank, i.to(tl.int64), mask=i < count)


@triton.jit
def _are_fresh(ordered, place, there):
    """Whether a place is the first of its row; and the row."""
    here = tl.load(ordered + place, mask=there, other=0)
    before = tl.load(ordered + place - 1, mask=there & (place > 0), other=0)
    return there & ((here != before) | (place == 0)), here


@triton.jit
def _runs(
    ordered, run, rows, first, found, live, count, pieces,
    WITH_LIVE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program counts for itself how many runs begin before its places, and in all."""
    program = tl.program_id(0)
    earlier = tl.zeros([BLOCK], tl.int32)
    all_of_them = tl.zeros([BLOCK], tl.int32)
    part = 0
    while part < pieces:
        place = part * BLOCK + tl.arange(0, BLOCK)
        fresh, _ = _are_fresh(ordered, place, place < count)
        all_of_them += fresh.to(tl.int32)
        earlier += tl.where(part < program, fresh.to(tl.int32), 0)
        part += 1
    runs = tl.sum(all_of_them, 0)
    place = program * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    fresh, here = _are_fresh(ordered, place, there)
    number = tl.sum(earlier, 0) + tl.cumsum(fresh.to(tl.int32), 0)
    tl.store(run + place, number, mask=there)
    tl.store(rows + number - 1, here.to(rows.dtype.element_ty), mask=fresh)
    tl.store(first + number - 1, place, mask=fresh)
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
    ordered, entry = _sorted(rows.contiguous())
    run = torch.empty(count, dtype=torch.int32, device=device)
    distinct = torch.empty(count, dtype=torch.int64, device=device)
    first = torch.empty(count + 1, dtype=torch.int32, device=device)
    found = torch.empty(1, dtype=torch.int32, device=device)
    block = _FLAT if count <= _FEW else 4 * _FLAT
    pieces = tiles(count, block)
    launch(
        _runs,
        (pieces,),
        (ordered, run, distinct, first, found, found if live is None else live),
        (count, pieces, live is not None, block),
        num_warps=block // 256,
    )
    return Order(distinct, entry, run, first, found)


def _sorted(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in ascending order, int32, and which entry stands at each place; equal ones in order."""
    count = len(rows)
    if count > _FEW:
        ordered, entry = rows.to(torch.int32).sort(stable=True)
        return ordered, entry
    entry = torch.empty(count, dtype=torch.int64, device=rows.device)
    return _ranked(rows[None], entry)[0], entry


def sorted_groups(rows: Tensor) -> Tensor:
    """Each group (G, N) in ascending order."""
    if rows.shape[1] > _FEW:
        return rows.sort(1).values
    return _ranked(rows.contiguous(), None)


def _ranked(rows: Tensor, entry: Tensor | None) -> Tensor:
    """Groups (G, N) in ascending order, int32; ``entry`` takes which one stands at each place."""
    groups, count = rows.shape
    ordered = torch.empty(groups, count, dtype=torch.int32, device=rows.device)
    launch(
        _rank,
        (tiles(count, _OWN), groups),
        (rows, ordered, ordered if entry is None else entry),
        (count, tiles(count, _TILE), entry is not None, _OWN, _TILE),
        num_warps=4,
    )
    return ordered


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
    behind = tl.num_programs(0) * tl.num_programs(1)  # those of _sum_chunk
    tl.store(squares + behind + chunk * tl.num_programs(1) + tl.program_id(1), tl.sum(square, 0))


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


def chunk_of(entries: int) -> int:
    """How many entries a program adds up, one after another: few where there are few in all."""
    if entries <= 4096:
        return 8
    return 16 if entries <= 8192 else 32


def square_slots(entries: int, size: int) -> int:
    """How many partial sums of squares :func:`sum_rows` has."""
    return 2 * tiles(entries, chunk_of(entries)) * tiles(size, block_of(size, _COLUMNS))


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
    chunk, block = chunk_of(count), block_of(size, _COLUMNS)
    chunks = tiles(count, chunk)
    sums = torch.empty(count, size, dtype=values.dtype, device=device)
    parts = torch.empty(chunks, size, device=device)
    grid = (chunks, tiles(size, block))
    launch(
        _sum_chunk,
        grid,
        (
            order.entry, order.run, order.first, values, values if more is None else more,
            squares if scale is None else scale, sums, parts, squares,
        ),
        (count, size, len(values), more is not None, chunk, block),
        num_warps=max(1, block // 256),
    )  # fmt: skip
    launch(
        _join_chunks,
        grid,
        (order.run, order.first, sums, parts, squares),
        (count, size, chunk, block),
        num_warps=max(1, block // 256),
    )
    return Sums(order, values, more, scale, sums, squares)
