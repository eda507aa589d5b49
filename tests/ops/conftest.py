"""What the tests of the engines share."""

import os

import pytest
import torch

from blackout.ops.dispatch import ENGINES

# Where tests/ops/test_isa.py forces an instruction set, one number of threads is enough.
FORCED = "BLACKOUT_ISA" in os.environ


@pytest.fixture(params=[1] if FORCED else [1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(params=["native"] if FORCED else list(ENGINES))
def engine(request):
    """Every engine there is; the truth is the reference in float64."""
    return ENGINES[request.param]
