"""Runs the programs of examples/ as a reader would, only smaller."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example():
    """Runs a program of examples/ in one or several processes; gives what the first one printed."""

    def run(name: str, *arguments: str, ranks: int = 1) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        if ranks > 1:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            environment |= {"WORLD_SIZE": str(ranks)}
        processes = [
            subprocess.Popen(
                [sys.executable, str(EXAMPLES / name), *arguments],
                env={**environment, "RANK": str(rank)} if ranks > 1 else environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        results = [process.communicate(timeout=120) for process in processes]
        for process, (_, errors) in zip(processes, results, strict=True):
            assert process.returncode == 0, errors
        return results[0][0]

    return run
