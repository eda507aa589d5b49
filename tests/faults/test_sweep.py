"""Old state or new state, never between, whatever goes wrong at the system: a part of the sweep.

`python -m tests.faults.sweep` tries every operation (sweep.py, works.py, hungry.py); here are some
of each work's, with ``BLACKOUT_SWEEP=1`` all but those that take long, runs over ranks among them,
of which test_kill_ranks tries some.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.system import DISK, MEMORY, is_available

ROOT = Path(__file__).parents[2]
EVERY = 1 if "BLACKOUT_SWEEP" in os.environ else 61

pytestmark = pytest.mark.skipif(not is_available(), reason="needs Linux and a C compiler")


@pytest.fixture(scope="module")
def swept():
    """What came of each work with each fault."""
    command = [sys.executable, "-m", "tests.faults.sweep", "--quick", "--first=3"]
    done = subprocess.run(
        [*command, f"--every={EVERY}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_faults(swept, faults, works):
    """Those with some faults: all of them were tried, and nothing was found."""
    some = [one for one in swept if one["fault"] in faults]
    assert [one for one in some if one["found"]] == []
    assert len({(one["work"], one["fault"]) for one in some}) == works * len(faults)
    assert all(one["cases"] > 0 for one in some)
    return some


def test_operations_on_the_disk(swept):
    """Estimating in three forms, mixing, preparing, saving from the start and later, tuning."""
    for one in of_faults(swept, DISK, works=8):
        # half a write is no failure, as the rest is written again; who is killed has not ended
        expected = {"short": 0, "dies": one["cases"]}.get(one["fault"], one["failed"])
        assert one["failed"] == expected, one


def test_large_pieces_of_memory(swept):
    """Threads, estimating, mixing, scoring, preparing, training (twice), answering."""
    for one in of_faults(swept, MEMORY, works=8):
        assert one["failed"] == one["cases"], one
