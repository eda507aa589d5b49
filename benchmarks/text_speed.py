"""How fast text becomes a vocabulary and a token shard.

    python benchmarks/text_speed.py FILE [--threads N] [--repeat R]

Prints words per second of counting, of encoding and of ``prepare`` as a whole, beside two marks
taken in the same run: a plain read of the file (the ceiling) and ``collections.Counter`` over
``str.split`` (what one would write without this package).
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from blackout.text.corpus import count_words, encode_file
from blackout.text.prepared import prepare
from blackout.text.source import thread_count
from blackout.text.vocab import Vocab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="plain text, one sentence per line")
    parser.add_argument("--threads", type=int, default=0, help="0 for all cores")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs counts")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        measure(args.file, Path(name), args.threads, args.repeat)


def measure(file: Path, folder: Path, threads: int, repeat: int) -> None:
    counts = count_words(file, threads=threads)
    vocab = Vocab.from_counts(counts)
    _ = vocab.word_map, vocab.hash
    fresh = iter(range(10**9))
    tasks: dict[str, Callable[[], object]] = {
        "plain read": lambda: plain_read(file),
        "collections.Counter": lambda: python_counter(file),
        "count_words": lambda: count_words(file, threads=threads),
        "encode_file": lambda: encode_file(file, vocab, None, folder / "shard", threads),
        "prepare, both passes": lambda: prepare(file, folder / str(next(fresh)), threads=threads),
    }
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(repeat):  # in turns, so that a busy moment of the machine hits all alike
        for task, run in tasks.items():
            start = time.perf_counter()
            run()
            best[task] = min(best[task], time.perf_counter() - start)

    words = counts.tokens - counts.sentences
    print(f"{file}: {words:,} words, {counts.types:,} types, {thread_count(threads)} threads")
    print(f"{'':22}{'seconds':>9}{'M words/s':>11}{'x Counter':>11}{'x read':>9}")
    for task, seconds in best.items():
        relative = best["collections.Counter"] / seconds, seconds / best["plain read"]
        print(f"{task:22}{seconds:9.3f}{words / seconds / 1e6:11.2f}", end="")
        print(f"{relative[0]:11.2f}{relative[1]:9.1f}")
    # Counter keeps every word as a Python string, so that this is its peak, not ours.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process, Counter included: {peak:,.0f} MiB")


def plain_read(file: Path) -> None:
    buffer = bytearray(8 << 20)
    with open(file, "rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


def python_counter(file: Path) -> Counter[str]:
    counter: Counter[str] = Counter()
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            counter.update(line.split())
    return counter


if __name__ == "__main__":
    main()
