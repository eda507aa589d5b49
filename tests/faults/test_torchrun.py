"""A command under torchrun whose rank is killed: it goes on by itself, and nothing is different."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.train.over_ranks import events, last, run


def children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_a_rank_is_killed_and_the_run_goes_on(lab, crew, tmp_path):
    """From the newest checkpoint, without --resume; the result is the same bit for bit."""
    out = tmp_path / "out"
    settings = {"epochs": 4, "checkpoint_minutes": 1e-9, "sampling": "strata"}
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("--max-restarts", "2", "-m", "blackout", *lab.options(out, lr=0.02, **settings)),
    ]
    quiet = {"OMP_NUM_THREADS": "1"}
    with (tmp_path / "said").open("w") as said:
        started = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | quiet)
        until = time.monotonic() + 120
        while not list(out.glob("checkpoints/step-*")):
            assert started.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(children(started.pid)[1], signal.SIGKILL)
        assert started.wait(180) == 0, (tmp_path / "said").read_text()
    said = (tmp_path / "said").read_text()
    assert "Traceback" not in said
    assert said.count("test perplexity") == 1, "one of the ranks talks"
    (straight,) = crew.run(
        run, 2, lab.data.folder, tmp_path / "straight", lab.config(**settings).to_dict()
    )[:1]
    assert straight["epochs"] == 4
    assert lab.differing(last(tmp_path / "straight"), last(out)) == []
    assert events(out) == events(tmp_path / "straight")
    assert lab.leftovers(out) == []
