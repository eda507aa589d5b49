"""Where the time of a block goes: each matrix product and each native call, and the rest."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from blackout import _native


class _Timer:
    """Totals by name of the calls made through :meth:`wrap`."""

    def __init__(self) -> None:
        self.total: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments, **keywords)
            self.total[name] += time.perf_counter() - start
            self.calls[name] += 1
            return result

        return timed


@contextmanager
def _instrumented(timer: _Timer) -> Iterator[None]:
    """While inside, products and native calls report their time."""
    natives = [(_native, name) for name in dir(_native) if callable(getattr(_native, name))]
    found = [(*place, getattr(*place)) for place in (*natives, (torch, "mm"), (torch, "bmm"))]
    for module, name, function in found:
        kind = "native" if module is _native else "product"
        setattr(module, name, timer.wrap(f"{kind} {name}", function))
    try:
        yield
    finally:
        for module, name, function in found:
            setattr(module, name, function)


def profile(
    work: Callable[[], None], device: torch.device | None = None, blocks: int = 20
) -> list[tuple[str, float, float]]:
    """(what, milliseconds a block, calls a block), the longest first; the last line is the rest.

    Of a GPU its kernels, which may run beside each other.
    """
    if device is not None and device.type == "cuda":
        return _kernels(work, blocks)
    timer = _Timer()
    with _instrumented(timer):
        work()
        timer.total.clear()
        timer.calls.clear()
        start = time.perf_counter()
        for _ in range(blocks):
            work()
        total = time.perf_counter() - start
    lines = [
        (name, 1e3 * spent / blocks, timer.calls[name] / blocks)
        for name, spent in sorted(timer.total.items(), key=lambda item: -item[1])
    ]
    rest = 1e3 * (total - sum(timer.total.values())) / blocks
    return [*lines, ("PyTorch's small operations and Python", rest, 0.0)]


def _kernels(work: Callable[[], None], blocks: int) -> list[tuple[str, float, float]]:
    work()
    torch.cuda.synchronize()
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as found:
        for _ in range(blocks):
            work()
        torch.cuda.synchronize()
    lines = [
        (event.key[:80], event.self_device_time_total / 1e3 / blocks, event.count / blocks)
        for event in found.key_averages()
        if event.self_device_time_total > 0
    ]
    return sorted(lines, key=lambda line: -line[1])
