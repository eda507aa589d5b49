"""Tries the properties of this folder for as long as you like: ``make soak MINUTES=60``.

Rounds with a new seed each, printed before it begins; a round that fails ends the run with the
command that repeats it. What hypothesis prints on top is the smallest case it could find.
"""

from __future__ import annotations

import argparse
import datetime
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cases", type=int, default=200, help="that each property tries a round")
    parser.add_argument("--seed", type=int, help="of one round, to repeat it")
    options = parser.parse_args()
    environment = {**os.environ, "BLACKOUT_SOAK": str(options.cases)}
    environment.setdefault("OMP_NUM_THREADS", "1")
    end, rounds = time.monotonic() + 60 * options.minutes, 0
    while True:
        seed = secrets.randbelow(2**32) if options.seed is None else options.seed
        print(f"round {rounds + 1}, seed {seed}, {options.cases} cases a property", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER)]
        done = subprocess.run([*command, f"--hypothesis-seed={seed}"], env=environment, check=False)
        keep(seed, options.cases, done.returncode)
        if done.returncode:
            again = f"--cases {options.cases} --seed {seed}"
            print(f"seed {seed} failed; again: {sys.executable} {__file__} {again}", flush=True)
            return 1
        rounds += 1
        if options.seed is not None or time.monotonic() >= end:
            print(f"{rounds} rounds of {options.cases} cases a property, no failure")
            return 0


def keep(seed: int, cases: int, status: int) -> None:
    """A line of the tally, from which tests/docs/tried.py makes a table."""
    tally = FOLDER.parents[1] / "build" / "soak" / "tally.tsv"
    tally.parent.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    with tally.open("a") as lines:
        lines.write(f"{today}\t{seed}\t{cases}\t{status}\n")


if __name__ == "__main__":
    sys.exit(main())
