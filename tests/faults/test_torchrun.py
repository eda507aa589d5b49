"""Commands under torchrun: what dies, comes or goes, the run goes on by itself."""

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from tests.train.over_ranks import events, last, run


@pytest.fixture
def torchrun(child, tmp_path):
    """Starts a torchrun, forked from here: that it need not import PyTorch again.

    Those that a test leaves behind are told to stop.
    """
    started = []

    def start(*arguments: str, said: str = "said"):
        def begin() -> None:
            os.environ.update(OMP_NUM_THREADS="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
            output = os.open(tmp_path / said, os.O_CREAT | os.O_WRONLY)
            os.dup2(output, 1)
            os.dup2(output, 2)
            from torch.distributed.run import main

            main(list(arguments))

        started.append(child(begin))
        return started[-1]

    yield start
    for one in started:
        if is_alive(one):
            os.kill(one.pid, signal.SIGTERM)
            one.wait()


def is_alive(process) -> bool:
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:  # was waited for
        return False


def children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_until(condition, agent, said: Path) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert is_alive(agent), said.read_text()
        assert time.monotonic() < until, said.read_text()
        time.sleep(0.02)


def test_a_rank_is_killed_and_the_run_goes_on(lab, crew, tmp_path, torchrun):
    """From the newest checkpoint, without --resume; the result is the same bit for bit."""
    out, said = tmp_path / "out", tmp_path / "said"
    settings = {"epochs": 4, "checkpoint_minutes": 1e-9, "sampling": "strata"}
    agent = torchrun(
        *("--standalone", "--nproc-per-node", "2", "--max-restarts", "2"),
        *("-m", "blackout", *lab.options(out, lr=0.02, **settings)),
    )
    wait_until(lambda: list(out.glob("checkpoints/step-*")), agent, said)
    os.kill(children(agent.pid)[1], signal.SIGKILL)
    assert agent.wait() == 0, said.read_text()
    assert "Traceback" not in said.read_text()
    assert said.read_text().count("test perplexity") == 1, "one of the ranks talks"
    (straight,) = crew.run(
        run, 2, lab.data.folder, tmp_path / "straight", lab.config(**settings).to_dict()
    )[:1]
    assert straight["epochs"] == 4
    assert lab.differing(last(tmp_path / "straight"), last(out)) == []
    assert events(out) == events(tmp_path / "straight")
    assert lab.leftovers(out) == []


def test_a_machine_joins_and_leaves(lab, tmp_path, torchrun):
    """The run goes on with the new number of ranks each time, without --resume; nothing is lost."""
    out = tmp_path / "out"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    quick = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=6"
    command = [
        *("--nnodes", "1:4", "--max-restarts", "1", "--local-addr", "127.0.0.1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", meeting, "--rdzv-conf", quick),
        *("--rdzv-id", "job", "-m", "blackout"),
        *lab.options(out, epochs=100000, lr=1e-6, checkpoint_minutes=0.003, batch=4, bptt=2),
    ]

    def saved(parts: int, after: str = "") -> bool:
        """Whether there is a later checkpoint of so many ranks."""
        names = sorted(path.name for path in out.glob("checkpoints/*.safetensors"))
        whole = [name for name in names if name.startswith("step-")]
        others = {name.rsplit("-of-")[-1][:1] for name in names if name.startswith("part-")}
        return whole[-1:] > [after] and others == ({str(parts)} if parts > 1 else set())

    def newest() -> str:
        return max(path.name for path in out.glob("checkpoints/step-*.safetensors"))

    first = torchrun(*command, said="first")
    wait_until(lambda: saved(1), first, tmp_path / "first")
    second = torchrun(*command, said="second")
    wait_until(lambda: saved(2), first, tmp_path / "first")
    joined = newest()
    wait_until(lambda: saved(2, joined), first, tmp_path / "first")
    os.kill(second.pid, signal.SIGTERM)
    wait_until(lambda: saved(1, joined), first, tmp_path / "first")
    os.kill(first.pid, signal.SIGTERM)
    first.wait()

    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    done = [(event["epoch"], event["words"]) for event in epochs]
    words = done[0][1]
    assert done == [(n, n * words) for n in range(1, len(done) + 1)], "none twice, none left out"
