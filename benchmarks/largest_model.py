"""The paper's largest model, a million words and 4.1 billion parameters, within a memory limit.

    python benchmarks/largest_model.py FOLDER [--hidden 2048] [--blocks 20]

Makes a text with a million different words in FOLDER, trains a few blocks with bf16 tables and
row-wise second moments, stops the run (which saves a checkpoint), resumes it, stops it again, and
prints the peak memory of both processes. Needs about 20 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path


def make_text(folder: Path, vocab_size: int) -> None:
    """Every word once, in random order; validation is a few of them."""
    if (folder / "train.txt").exists():
        return
    words = [f"w{i}" for i in range(vocab_size - 2)]
    random.Random(1).shuffle(words)
    lines = [" ".join(words[i : i + 20]) for i in range(0, len(words), 20)]
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    (folder / "valid.txt").write_text("\n".join(lines[:2]) + "\n")


def child(folder: str, hidden: str, blocks: str, resume: str) -> None:
    """Trains some blocks, then asks itself to stop as Ctrl-C would; prints its peak memory."""
    from blackout.config import Config
    from blackout.text.prepared import prepare
    from blackout.train import train
    from blackout.train.checkpoint import Position
    from blackout.train.loop import Stopped
    from blackout.train.progress import Progress

    class StopAfter(Progress):
        done = 0

        def block_done(self, position: Position) -> None:
            self.done += 1
            if self.done == int(blocks):
                signal.raise_signal(signal.SIGINT)

    config = Config.from_dict(
        {
            "model": {"cell": "sigmoid", "hidden": int(hidden), "storage": "bf16"},
            "loss": {"samples": 2000},
            "optim": {"second_moment": "row"},
            "run": {"precision": "bf16", "device": "cpu"},
        }
    )
    texts = Path(folder)
    data = prepare(texts / "train.txt", texts / "data", valid=texts / "valid.txt")
    message = ""
    try:
        train(config, data, texts / "run", resume=resume == "resume", progress=StopAfter())
    except Stopped as reason:
        message = str(reason)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak_gib": round(peak / 2**30, 2), "message": message}))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:6])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocab-size", type=int, default=1_000_000)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    make_text(options.folder, options.vocab_size)
    parameters = 2 * options.vocab_size * options.hidden + options.hidden**2
    print(f"{parameters / 1e9:.2f} billion parameters")
    for phase in ("begin", "resume"):
        command = [sys.executable, __file__, "--child", str(options.folder)]
        command += [str(options.hidden), str(options.blocks), phase]
        print(phase, subprocess.run(command, capture_output=True, text=True).stdout.strip())
    size = sum(path.stat().st_size for path in options.folder.glob("run/checkpoints/*"))
    print(f"checkpoint {size / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
