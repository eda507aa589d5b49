"""A network over frequent words mixed with a 5-gram over all: better than either, on rnnlm-small.

    python benchmarks/mix_small.py --data DIR [--out DIR] [--threads N]

DIR holds ``train``, ``valid`` and ``test``. The network has the 2,065 words that occur twice or
more, 16 units, K = 50; the weight comes from ``valid``. Prints the table on ``test``, over the
vocabulary of the 5-gram.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from blackout.cli.main import main

NETWORK = (
    "--min-count 2 --hidden 16 --loss blackout --samples 50 --alpha 0.3 "
    "--collisions remove --batch 8 --bptt 15 "
    "--lr 0.01 --lr-decay 0.999 --beta 0.999 --damping 1e-6 --clip 1 --epochs 50 --device cpu"
)


def run(*words: object) -> None:
    """One command line; prints it first."""
    line = [str(word) for word in words]
    print("$ blackout", " ".join(line), flush=True)
    if status := main(line):
        raise SystemExit(status)


def study(data: Path, out: Path, threads: int) -> None:
    train, valid, test = (data / name for name in ("train", "valid", "test"))
    out.mkdir(parents=True, exist_ok=True)
    arpa, network = out / "5-gram.arpa", out / "blackout"
    run("ngram", "train", "--order", 5, "--train", train, "--out", arpa)
    files = ["--train", train, "--valid", valid, "--out", network]
    run("train", *files, *NETWORK.split(), "--threads", threads)
    for how in ("unigram", "uniform"):
        run("mix", network, arpa, "--tune", valid, "--test", test, "--unknown", how)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study(options.data, options.out or Path(folder), options.threads)
