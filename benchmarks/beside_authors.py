"""Training speed beside the authors' C++ program, the two in turns on the same text.

    python benchmarks/beside_authors.py PROGRAM DATA [--line N …] [--rounds R] [--threads 1]

PROGRAM is the binary of https://github.com/IntelLabs/rnnlm, built by whoever runs this (g++ -O3
-march=native -fopenmp, MKL, Boost); DATA holds ``rnnlm-small/train`` and ``enwiki/train`` as text.
Each round trains for some seconds with the authors' program, with ours in float32 and with ours in
bf16 products, one after the other, in processes of their own; a line of the table has the medians
over the rounds. Ours runs the loop of ``blackout train``; only training is counted on both sides,
within an epoch. On one core the clock is the processor time of
either process, which other work on the machine hardly disturbs; on more it is the clock on the
wall, and the machine must be empty. The small text is repeated, so that an epoch is long enough.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any


@dataclass(frozen=True)
class Line:
    """One line of the table: a text and the shape of a network over it."""

    text: str
    vocab_size: int
    hidden: int
    samples: int
    batch: int
    bptt: int
    alpha: float
    threads: int
    sentences: int | None = None  # the first of the text
    copies: int = 1  # of the text, one behind the other
    seconds: float = 8.0

    @property
    def name(self) -> str:
        cores = "one core" if self.threads == 1 else f"{self.threads} cores"
        return (
            f"V {self.vocab_size:,}, h {self.hidden}, K {self.samples}, B {self.batch}, "
            f"T {self.bptt}, α {self.alpha:g}, {cores}"
        )


SMALL = ("rnnlm-small/train", 3720)
REPEATED = {"copies": 100, "seconds": 2.0}
LARGE = ("enwiki/train", 64_000)
QUARTER = 230_000  # sentences
BLOCKS_A_REPORT = 100  # of the authors' program
LINES = [
    Line(*SMALL, 16, 10, 8, 15, 0.3, 1, **REPEATED),
    Line(*SMALL, 16, 50, 8, 15, 0.3, 1, **REPEATED),
    Line(*SMALL, 64, 100, 32, 20, 1.0, 1, **REPEATED),
    Line(*SMALL, 128, 100, 32, 20, 1.0, 1, **REPEATED),
    Line(*LARGE, 256, 500, 128, 20, 0.4, 2, QUARTER),
    Line(*LARGE, 256, 500, 128, 20, 1.0, 2, QUARTER),
    Line(*LARGE, 1024, 500, 128, 20, 0.4, 2, QUARTER),
    Line(*LARGE, 1024, 500, 128, 20, 1.0, 2, QUARTER),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--line", type=int, action="append", choices=range(1, len(LINES) + 1))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="in place of those of the lines")
    parser.add_argument("--work", type=Path, help="folder for the texts, kept for the next time")
    parser.add_argument("--ours", choices=("fp32", "bf16"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:  # one measurement, in this process
        print(json.dumps(ours(chosen(options, options.line[0]), options.work, options.ours)))
        return
    if not options.program.is_file():
        parser.error(f"no program {options.program}")
    with tempfile.TemporaryDirectory() as scratch:
        compare(options, options.work or Path(scratch))


def chosen(options: argparse.Namespace, number: int) -> Line:
    line = LINES[number - 1]
    return replace(line, threads=options.threads or line.threads)


def compare(options: argparse.Namespace, work: Path) -> None:
    print("| | authors' program | float32 | | bf16 products | |")
    print("|---|---|---|---|---|---|")
    for number in options.line or range(1, len(LINES) + 1):
        line = chosen(options, number)
        texts = work / line.text.replace("/", "-")
        cut(options.data / line.text, line, texts)
        found: dict[str, list[float]] = {"authors": [], "fp32": [], "bf16": []}
        for _ in range(options.rounds):
            found["authors"].append(authors(options.program, line, texts))
            for precision in ("fp32", "bf16"):
                found[precision].append(our_process(options, number, texts, precision))
        show(line, found)


def show(line: Line, found: dict[str, list[float]]) -> None:
    theirs = statistics.median(found["authors"])
    cells = [line.name, spread(found["authors"])]
    for precision in ("fp32", "bf16"):
        cells += [
            spread(found[precision]),
            f"{statistics.median(found[precision]) / theirs:.2f}×",
        ]
    print("| " + " | ".join(cells) + " |", flush=True)


def spread(rates: list[float]) -> str:
    """The median, and in brackets the least and the most."""
    low, high = min(rates) / 1e3, max(rates) / 1e3
    return f"{statistics.median(rates) / 1e3:,.1f} K ({low:,.1f}–{high:,.1f})"


def cut(text: Path, line: Line, folder: Path) -> None:
    """The text of a line, and one sentence to validate on."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    with text.open("rb") as file:
        sentences = list(itertools.islice(file, line.sentences))
    (folder / "train").write_bytes(b"".join(sentences) * line.copies)
    (folder / "valid").write_bytes(sentences[0])


# ---------------------------------------------------------------------- the authors' program


def authors(program: Path, line: Line, texts: Path) -> float:
    """Words a second of the authors' program, by its reports of progress."""
    settings = {
        "train": texts / "train",
        "valid": texts / "valid",
        "rnnlm": os.devnull,
        "algo": "blackout",
        "hidden": line.hidden,
        "sample-k": line.samples,
        "batch-size": line.batch,
        "bptt-block": line.bptt,
        "alpha": line.alpha,
        "max-vocab-size": line.vocab_size,
        "numcores": line.threads,
        "lr": 0.01,
        "lr-decay": 0.999,
        "momentum": 0.999,
        "rmsprop-damping": 1e-3,
        "gradient-cutoff": 1,
        "max-iter": 1,
    }
    command = [str(program.resolve())]
    for name, value in settings.items():
        command += [f"--{name}", str(value)]
    environment = os.environ | {
        "OMP_NUM_THREADS": str(line.threads),
        "MKL_NUM_THREADS": str(line.threads),
        "MKL_THREADING_LAYER": "GNU",  # the OpenMP that g++ gives the rest of the program
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            return measured(process.stdout, line, process.pid)
        finally:
            process.kill()


def measured(output: IO[bytes], line: Line, process: int) -> float:
    """From the beginning of training to a report of progress after some seconds."""
    begun, blocks = 0.0, 1  # the first block is in no report's number
    for piece in pieces(output):
        now = processor_seconds(process) if line.threads == 1 else time.perf_counter()
        if "start training" in piece:
            begun = now
        if "progress" in piece:
            blocks += BLOCKS_A_REPORT
            if now - begun > line.seconds:
                return blocks * line.batch * line.bptt / (now - begun)
    raise SystemExit("the authors' program ended before it was measured")


def processor_seconds(process: int) -> float:
    """What the only thread of a process has had of a processor."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) * 1e-9


def pieces(output: IO[bytes]) -> Iterator[str]:
    """What stands between carriage returns and line ends."""
    piece = bytearray()
    while byte := output.read(1):
        if byte in b"\r\n":
            yield piece.decode(errors="replace")
            piece.clear()
        else:
            piece += byte


# ---------------------------------------------------------------------- ours


def our_process(options: argparse.Namespace, number: int, texts: Path, precision: str) -> float:
    command = [sys.executable, __file__, str(options.program), str(options.data)]
    command += ["--line", str(number), "--work", str(texts), "--ours", precision]
    command += ["--threads", str(chosen(options, number).threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return float(json.loads(done.stdout.splitlines()[-1]))


def ours(line: Line, texts: Path, precision: str) -> float:
    """Words a second of the loop of ``blackout train``, after its first blocks."""
    from blackout.config import Config
    from blackout.text.prepared import prepare
    from blackout.train import train
    from blackout.train.progress import Progress

    clock = time.process_time if line.threads == 1 else time.perf_counter

    class Enough(Exception):
        pass

    class Watch(Progress):
        """Ends training after some seconds of it."""

        def __init__(self) -> None:
            self.marks: list[tuple[float, int]] = []

        def block_done(self, position: Any) -> None:
            if position.step >= 20:  # fresh memory is paid for
                self.marks.append((clock(), position.words))
                if self.marks[-1][0] - self.marks[0][0] > line.seconds:
                    raise Enough

    config = Config.from_dict(
        {
            "text": {"vocab_size": line.vocab_size},
            "model": {"cell": "sigmoid", "hidden": line.hidden},
            "loss": {"loss": "blackout", "samples": line.samples, "alpha": line.alpha},
            "run": {
                "batch": line.batch,
                "bptt": line.bptt,
                "epochs": 1000,
                "threads": line.threads,
                "precision": precision,
                "device": "cpu",
            },
        }
    )
    data = prepare(texts / "train", texts / "prepared", config.text, valid=texts / "valid")
    watch = Watch()
    with tempfile.TemporaryDirectory() as scratch, contextlib.suppress(Enough):
        train(config, data, Path(scratch) / "run", progress=watch)
    (start, before), (end, after) = watch.marks[0], watch.marks[-1]
    return (after - before) / (end - start)


if __name__ == "__main__":
    main()
