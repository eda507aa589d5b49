"""Runs the programs of examples/ as a reader would, only smaller."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def run_example(child, tmp_path):
    """Runs a program of examples/; gives what it printed.

    In a forked process: importing PyTorch, or a framework, again takes longer than they do.
    """

    def program(name: str, arguments: tuple[str, ...], printed: Path) -> None:
        os.environ |= ENVIRONMENT
        file = printed.open("w", buffering=1)
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        sys.stdout = sys.stderr = file
        sys.argv = [name, *arguments]
        sys.path.insert(0, str(EXAMPLES))
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    def run(name: str, *arguments: str) -> str:
        printed = tmp_path / f"printed by {name}"
        process = child(lambda: program(name, arguments, printed))
        assert process.wait() == 0, printed.read_text()
        return printed.read_text()

    return run


@pytest.fixture
def run_on_ranks():
    """Runs a program of examples/ in two processes; gives what the first one printed."""

    def run(name: str, *arguments: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        processes = [
            subprocess.Popen(
                [sys.executable, str(EXAMPLES / name), *arguments],
                env={**os.environ, **ENVIRONMENT, **meeting, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        results = [process.communicate(timeout=120) for process in processes]
        for process, (_, errors) in zip(processes, results, strict=True):
            assert process.returncode == 0, errors
        return results[0][0]

    return run
