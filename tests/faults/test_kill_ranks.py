"""kill -9 of ranks at every operation on the disk: the run goes on from whole checkpoints."""

import os
import signal
import socket

import pytest
from tests.faults.test_kill import DiesAt
from tests.train.over_ranks import last, run

from blackout.errors import UserError

RANKS = 2


def on_ranks(child, work):
    """``work(rank, group)`` on forked ranks; the statuses of their ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def begin(rank):
        def main() -> int:
            import torch.distributed as dist

            where = f"tcp://127.0.0.1:{port}"
            dist.init_process_group("gloo", where, rank=rank, world_size=RANKS)
            try:
                work(rank, dist.group.WORLD)
            except (UserError, RuntimeError):
                return 1  # the other one was lost
            return 0

        return main

    return [one.wait() for one in [child(begin(rank)) for rank in range(RANKS)]]


@pytest.mark.parametrize("victim", range(RANKS))
def test_a_rank_dies_at_operations_on_the_disk(lab, child, crew, tmp_path, victim):
    settings = lab.config(epochs=2, batch=16, bptt=12, sampling="strata").to_dict()
    crew.run(run, RANKS, lab.data.folder, tmp_path / "straight", settings)
    expected, died = last(tmp_path / "straight"), 0
    # some of the many: rank 0 writes more files
    for n in range(1 + victim, 1000, 23 if victim == 0 else 9):
        out = tmp_path / f"{n}"

        def work(rank, group, n=n, out=out):
            if rank == victim:
                DiesAt(n)
            run(group, lab.data.folder, out, settings)

        statuses = on_ranks(child, work)
        if statuses == [0] * RANKS:
            break
        assert statuses[victim] == -signal.SIGKILL
        died += 1
        assert len(list(out.glob("checkpoints/step-*.safetensors"))) <= 2
        begun = (out / "run.toml").exists()
        crew.run(run, RANKS, lab.data.folder, out, settings, resume=begun)
        assert lab.differing(last(out), expected) == []
        assert lab.leftovers(out) == []
        parts = [name for name in os.listdir(out) if name.startswith("part-of-")]
        assert len(parts) == RANKS, "parts that nobody names are gone"
    assert died > 1
