"""A system short of threads makes native code slower, not wrong, and never ends the process."""

import os
import resource
import subprocess
import sys

import pytest

GIB = 1 << 30
STACK = 8 * GIB  # of a thread, where the limit below is set before the program begins

# numpy's own threads are not what this is about
ALONE = os.environ | {"OPENBLAS_NUM_THREADS": "1", "BLACKOUT_POOL": "own"}

# allow(n): from now on there is room for the stacks of n threads
ALLOW = (
    "import resource, sys\n"
    "def allow(threads):\n"
    f"    limit = {STACK} * threads + {STACK} // 2\n"
    "    if sys.argv[-1] == 'short':\n"
    "        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))\n"
)

# a thread that was joined has its stack until the system has ended it
GONE = """
import os, time
def gone():
    for _ in range(100 * (sys.argv[-1] == 'short' and os.path.exists('/proc/self/task'))):
        if len(os.listdir('/proc/self/task')) == 1:
            break
        time.sleep(0.01)
"""

ESTIMATE = """
from blackout.ngram import NGram, evaluate, train
allow(1)  # for the one that reads ahead
text, arpa = sys.argv[1:3]
train(text, arpa, order=4, threads=4, memory="64M",
      progress=lambda stage, *_: stage == "adjusting counts" and allow(0))
gone()
allow(1)
print(evaluate(NGram.load(arpa), text, threads=4).perplexity)
"""

DRAW = """
import hashlib
import numpy as np
from blackout import _native
allow(1)
half, alias = np.full(100, 0.5), np.arange(100)[::-1].copy()
samples = np.empty((64, 512), np.int64)
places = [array.ctypes.data for array in (half, alias, samples)]
_native.draw_samples(*places[:2], 100, 3, 4, *samples.shape, places[2], 4)
print(hashlib.sha256(samples).hexdigest())
"""


def run(program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ALLOW + GONE + program, *map(str, arguments)],
        env=ALONE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_limit_is_one():
    program = "import threading\nallow(0)\nthreading.Thread(target=print).start()"
    run(program, "all")
    with pytest.raises(AssertionError, match="can't start new thread"):
        run(program, "short")


def test_an_ngram_is_estimated_and_scored_alike(tmp_path):
    lines = [f"the {i % 7} cat {i % 13} sat on {i % 101} mats" for i in range(30_000)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    models = {threads: tmp_path / f"{threads}.arpa" for threads in ("all", "short")}
    found = {run(ESTIMATE, tmp_path / "text", path, kind) for kind, path in models.items()}
    assert len(found) == 1
    assert models["all"].read_bytes() == models["short"].read_bytes()


def test_the_engine_computes_alike():
    assert run(DRAW, "all") == run(DRAW, "short")
