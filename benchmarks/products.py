"""Matrix products of the algorithm: ours beside PyTorch's, GFLOP/s, in one run.

    python benchmarks/products.py [--threads 1] [--seconds 0.05] [--only 128x256x256]

A line is rows x depth x columns. "packed" multiplies with an operand that was packed before, as a
recurrent matrix is over the time steps of a block; "packing" packs it in every call. The kinds are
the products of a layer: `forward` H W^T, `hidden` D W, `rows` D^T H. PyTorch's time has one call
from Python (about a microsecond) in it, as every call of it has; ours repeats inside native code.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from blackout import _native

SHAPES = [
    ("forward", 8, 16, 16),
    ("forward", 8, 16, 10),
    ("hidden", 8, 10, 16),
    ("rows", 10, 8, 16),
    ("forward", 32, 64, 64),
    ("forward", 32, 64, 100),
    ("hidden", 32, 100, 64),
    ("rows", 100, 32, 64),
    ("forward", 128, 256, 256),
    ("hidden", 128, 256, 256),
    ("rows", 256, 2560, 256),
    ("forward", 128, 256, 331),
    ("hidden", 128, 331, 256),
    ("rows", 331, 128, 256),
    ("forward", 128, 256, 1024),
    ("forward", 128, 1024, 331),
    ("hidden", 128, 331, 1024),
    ("rows", 331, 128, 1024),
    ("forward", 128, 1024, 1024),
    ("rows", 1024, 2560, 1024),
]


def best_seconds(call: Callable[[], object], calls: int, seconds: float) -> float:
    call()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best / calls


def half(tensor: Tensor) -> bool:
    return tensor.dtype == torch.bfloat16


def operands(
    kind: str, rows: int, depth: int, columns: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """As they lie in memory: the left one and the one that is packed."""
    left = (
        torch.randn(depth, rows).to(dtype).t()
        if kind == "rows"
        else torch.randn(rows, depth).to(dtype)
    )
    right = torch.randn(columns, depth) if kind == "forward" else torch.randn(depth, columns)
    return left, right.to(dtype)


def line(
    kind: str, rows: int, depth: int, columns: int, dtype: torch.dtype, threads: int, seconds: float
) -> None:
    left, right = operands(kind, rows, depth, columns, dtype)
    out, theirs = torch.empty(rows, columns), torch.empty(rows, columns, dtype=dtype)
    panels = torch.empty(_native.panel_numbers(depth, columns) + 32, dtype=dtype)
    place = (panels.data_ptr() + 63) // 64 * 64
    flop = 2 * rows * depth * columns
    calls = max(1, int(2e7 / flop))

    def pack() -> None:
        _native.pack(
            right.data_ptr(), half(right), right.stride(0), 0, place, half(panels), depth, columns,
            kind == "forward", threads,
        )  # fmt: skip

    def multiply(repeat: int) -> None:
        _native.product(
            left.data_ptr(), half(left), left.stride(0), left.stride(1), place, half(panels), rows,
            depth, columns, out.data_ptr(), False, columns, False, repeat, threads,
        )  # fmt: skip

    def pytorch() -> None:
        factor = right.t() if kind == "forward" else right
        for _ in range(calls):
            torch.mm(left, factor, out=theirs)

    pack()
    ours = best_seconds(lambda: multiply(calls), calls, seconds)
    packing = best_seconds(pack, 1, seconds)
    peer = best_seconds(pytorch, calls, seconds)
    worst = (out - theirs).abs().max() / out.abs().max()
    assert worst < (2e-2 if half(left) else 1e-5), worst
    shape = f"{rows}x{depth}x{columns}"
    rates = [f"{flop / spent / 1e9:9.1f}" for spent in (ours, ours + packing, peer)]
    ratios = [f"{peer / spent:7.2f}" for spent in (ours, ours + packing)]
    print(f"{kind:8s} {shape:14s} {str(dtype)[6:]:9s} {threads} ", *rates, *ratios, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{_native.isa()}; PyTorch {torch.__version__}; GFLOP/s")
    print("kind     shape          format    threads packed   packing   PyTorch   times   times")
    for threads in options.threads:
        torch.set_num_threads(threads)
        for dtype in (torch.float32, torch.bfloat16):
            for kind, rows, depth, columns in SHAPES:
                if options.only in f"{rows}x{depth}x{columns}":
                    line(kind, rows, depth, columns, dtype, threads, options.seconds)


if __name__ == "__main__":
    main()
