"""kill -9 of ranks at operations on the disk: the run goes on from whole checkpoints."""

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


@pytest.fixture(scope="module")
def settings(lab):
    assert lab.data.shards, "prepared here, where nobody counts operations"
    return lab.config(epochs=2, batch=16, bptt=12, sampling="strata").to_dict()


@pytest.fixture(scope="module")
def straight(lab, crew, settings):
    out = lab.folder / "straight-on-ranks"
    crew.run(run, RANKS, lab.data.folder, out, settings)
    return last(out)


# Rank 0 has some 120 operations, rank 1, which writes its parts only, some 50: of either a few that
# lie in different files, from those of the run's beginning to those of its last checkpoint.
@pytest.mark.parametrize(("victim", "n"), [(0, 8), (0, 64), (0, 92), (0, 118), (1, 3), (1, 40)])
def test_a_rank_dies_at_an_operation_on_the_disk(
    lab, child, crew, tmp_path, settings, straight, victim, n
):
    out = tmp_path / "out"

    def work(rank, group):
        if rank == victim:
            DiesAt(n)
        run(group, lab.data.folder, out, settings)

    assert on_ranks(child, work)[victim] == -signal.SIGKILL
    assert len(list(out.glob("checkpoints/step-*.safetensors"))) <= 2
    begun = (out / "run.toml").exists()
    crew.run(run, RANKS, lab.data.folder, out, settings, resume=begun)
    assert lab.differing(last(out), straight) == []
    assert lab.leftovers(out) == []
    parts = [name for name in os.listdir(out) if name.startswith("part-of-")]
    assert len(parts) == RANKS, "parts that nobody names are gone"
