"""How fast and in how much memory an n-gram model is estimated, loaded and asked.

    python benchmarks/ngram_speed.py TRAIN TEST [--order 5] [--memory 4G 1G] [--lmplz PROGRAM]

TRAIN and TEST are texts. Prints, for each memory setting, words per second and peak memory of
the estimation (beside those of KenLM's lmplz in the same run, when its path is given), then the
time to load the model as ARPA and in the binary form, then words per second of queries on one
core, from the text file and from word ids.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from blackout.ngram import NGram, evaluate, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--memory", nargs="+", default=["4G", "1G"])
    parser.add_argument("--threads", type=int, default=0, help="0 for all cores")
    parser.add_argument("--lmplz", type=Path, help="KenLM's program, to run beside ours")
    parser.add_argument("--folder", type=Path, help="for models and temporary files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        measure_estimation(args, Path(name))
        measure_queries(Path(name) / "model.arpa", args.test)


def measure_estimation(args: argparse.Namespace, folder: Path) -> None:
    arpa = folder / "model.arpa"
    print(f"{'estimation':<28}{'words/s':>12}{'seconds':>9}{'peak GiB':>10}")
    for memory in args.memory:
        seconds, peak, words = in_child(estimate, args, arpa, memory, folder)
        show(f"ours, memory {memory}", words, seconds, peak)
        if args.lmplz:
            seconds, peak, _ = in_child(peer, args, folder / "peer.arpa", memory, folder)
            show(f"lmplz, memory {memory}", words, seconds, peak)
            (folder / "peer.arpa").unlink()


def show(what: str, words: int, seconds: float, peak: float) -> None:
    print(f"{what:<28}{words / seconds:>12,.0f}{seconds:>9.1f}{peak:>10.2f}", flush=True)


def in_child(work: Any, *arguments: Any) -> tuple[float, float, int]:
    """Seconds, peak GiB and result of a function, run in a process of its own."""
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(writer, work, arguments))
    process.start()
    seconds, peak, result = reader.recv()
    process.join()
    return seconds, peak, result


def run(writer: Any, work: Any, arguments: tuple[Any, ...]) -> None:
    import resource

    started = time.perf_counter()
    result = work(*arguments)
    seconds = time.perf_counter() - started
    who = resource.RUSAGE_CHILDREN if work is peer else resource.RUSAGE_SELF
    writer.send((seconds, resource.getrusage(who).ru_maxrss / (1 << 20), result))


def estimate(args: argparse.Namespace, out: Path, memory: str, folder: Path) -> int:
    result = train(
        args.train, out, order=args.order, memory=memory, threads=args.threads, temp_dir=folder
    )
    return result.words + result.sentences


def peer(args: argparse.Namespace, out: Path, memory: str, folder: Path) -> int:
    command = [args.lmplz, "-o", str(args.order), "-S", memory, "-T", f"{folder}{os.sep}"]
    command += ["--text", args.train, "--arpa", out, "--discount_fallback"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return 0


def measure_queries(arpa: Path, test: Path) -> None:
    binary = arpa.with_suffix(".bin")
    started = time.perf_counter()
    NGram.load(arpa).save(binary)
    print(f"\nARPA to binary form          {time.perf_counter() - started:8.1f} s")
    for verify in (True, False):
        started = time.perf_counter()
        model = NGram.load(binary, verify=verify)
        label = "checked" if verify else "unchecked"
        print(f"loading the binary, {label:<9}{time.perf_counter() - started:8.3f} s")
    sizes = [path.stat().st_size / (1 << 30) for path in (arpa, binary)]
    print(f"ARPA {sizes[0]:.2f} GiB, binary form {sizes[1]:.2f} GiB")

    results = [evaluate(model, test, threads=1) for _ in range(5)]
    tokens = results[0].words + results[0].sentence_ends
    print(f"\nperplexity {results[0].perplexity:.2f} over {tokens:,} words and sentence ends")
    best = max(result.words_per_second for result in results)
    print(f"queries from the text file   {best:12,.0f} words/s")
    print(f"queries from word ids        {query_ids(model, test):12,.0f} words/s")


def query_ids(model: NGram, test: Path) -> float:
    words = test.read_text(encoding="utf-8").replace("\n", " </s> ").split()
    ids = np.asarray(model.ids(words))
    best = 0.0
    for _ in range(5):
        started = time.perf_counter()
        model.score_tokens(ids)
        best = max(best, len(ids) / (time.perf_counter() - started))
    return best


if __name__ == "__main__":
    main()
