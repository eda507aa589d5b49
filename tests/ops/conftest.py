"""What the tests of the engines share: every engine, on the device it computes on.

The Triton kernels run on a GPU where there is one, else in Triton's interpreter, which takes
milliseconds for what a GPU does in a microsecond: there a few cases of each test stand for all.
"""

import importlib.util
import os
import zlib

import pytest
import torch

from blackout.ops.dispatch import ENGINES, triton_engine

GPU = torch.cuda.is_available()
# Where tests/ops/test_isa.py forces an instruction set, one number of threads is enough.
FORCED = "BLACKOUT_ISA" in os.environ
TRITON = importlib.util.find_spec("triton") is not None and not FORCED
INTERPRETED_CASES = 6  # of each test


@pytest.fixture(params=[1] if FORCED else [1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(params=["native"] if FORCED else [*ENGINES, *(["triton"] if TRITON else [])])
def engine(request):
    """Every engine there is; the truth is the reference in float64."""
    if request.param != "triton":
        return ENGINES[request.param]
    return OnGpu(triton_engine()) if GPU else triton_engine()


@pytest.fixture
def fewer(engine):
    """Chooses between many and few: the latter for an engine that is interpreted."""
    return lambda many, few: few if engine.name == "triton" and not GPU else many


@pytest.fixture
def home(engine):
    """The device that an engine computes on."""
    return torch.device("cuda" if engine.name == "triton" and GPU else "cpu")


class OnGpu:
    """An engine whose arguments and results are on the CPU, and its work on the GPU."""

    def __init__(self, engine):
        self._engine = engine

    def __getattr__(self, name):
        found = getattr(self._engine, name)
        return self._carried(found) if callable(found) else found

    @staticmethod
    def _carried(function):
        def call(*given):
            moved = {}

            def there(tensor):
                if tensor.dim() == 0 and tensor.dtype == torch.int64:
                    return tensor  # a step: a number on the host
                return moved.setdefault(id(tensor), (tensor, tensor.cuda()))[1]

            result = function(*[each_tensor(one, there) for one in given])
            for before, after in moved.values():
                before.copy_(after)  # what was changed in place
            return each_tensor(result, torch.Tensor.cpu)

        return call


def each_tensor(value, change):
    """A tensor or a tuple with tensors, all of them changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple):
        parts = [each_tensor(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def pytest_collection_modifyitems(config, items):
    """Threads are nothing to Triton; its interpreter gets a few cases of each test."""
    dropped, taken = [], {}
    by_chance = sorted(items, key=lambda item: zlib.crc32(item.name.encode()))
    for item in by_chance:
        given = getattr(item, "callspec", None)
        if given is None or given.params.get("engine") != "triton":
            continue
        seen = taken.setdefault(item.function, [])
        if given.params.get("threads", 1) > 1 or (not GPU and len(seen) >= INTERPRETED_CASES):
            dropped.append(item)
        else:
            seen.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        gone = set(dropped)
        items[:] = [item for item in items if item not in gone]
