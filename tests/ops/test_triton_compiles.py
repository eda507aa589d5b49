"""Triton's compiler takes every kernel: its interpreter, which the other tests use, takes more."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.ops.compile_kernels"  # a process of its own: here kernels may be interpreted


def _version_of_triton() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "none"


@pytest.mark.skipif(
    not _version_of_triton().startswith("3.6."), reason="the GPU that is not there is Triton 3.6's"
)
def test_every_kernel_compiles_and_is_remembered_for_the_arguments_it_was_compiled_for():
    cache = {"TRITON_CACHE_DIR": str(ROOT / "build" / "triton")}  # `make clean` empties it
    environment = {**cache, **os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-5000:]}"
