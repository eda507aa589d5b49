"""The instruction sets: each one this machine has passes the tests of the engines."""

import os
import subprocess
import sys
from pathlib import Path

from blackout import _native

NATIVE = [str(path) for path in sorted(Path(__file__).parent.glob("test_engine*.py"))]


def available() -> list[str]:
    found = ["portable"]
    for isa in ("avx2", "avx512", "avx512bf16"):
        code = "from blackout import _native; print(_native.isa())"
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "BLACKOUT_ISA": isa}, check=False
        )
        if done.returncode == 0:
            found.append(isa)
    return [isa for isa in found if isa != _native.isa()]


def test_every_instruction_set_of_this_machine_passes_the_native_tests():
    for isa in available():
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-k", "not training", *NATIVE],
            env={**os.environ, "BLACKOUT_ISA": isa},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{isa}: {done.stdout[-3000:]}{done.stderr[-2000:]}"


def test_an_unknown_instruction_set_is_refused():
    code = "from blackout import _native; _native.isa()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "BLACKOUT_ISA": "sse9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "sse9" in done.stderr
