"""Training speed at growing vocabularies: plain PyTorch, this package, exact and adaptive softmax.

    python benchmarks/speed_study.py                     the table, and docs/speed.svg
    python benchmarks/speed_study.py --threads 1         one core, by processor time
    python benchmarks/speed_study.py --cell gru --methods plain fp32 bf16    beside torch.nn.GRU

One recurrent network (sigmoid cell where nothing else is said, hidden 256, batch 128, 20 time
steps), made-up words with Zipf's frequencies, RMSProp; only the output layer and the arithmetic
behind it differ. Every method runs in a process of its own, one after the other for each
vocabulary size; the exact softmax trains blocks of 16 streams, since its logits for 128 would need
gigabytes. With one thread the clock is the processor time of the process, which other work on the
machine hardly disturbs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from blackout.pages.palette import BLACK, BLUE, GREEN, PURPLE, VERMILION

METHODS = {
    "plain": "BlackOut, plain PyTorch",
    "fp32": "BlackOut, native float32",
    "bf16": "BlackOut, native bf16 products",
    "adaptive": "PyTorch's adaptive softmax",
    "full": "exact softmax",
}
STYLES = {
    "plain": (VERMILION, "s"),
    "fp32": (BLUE, "o"),
    "bf16": (GREEN, "D"),
    "adaptive": (PURPLE, "^"),
    "full": (BLACK, "v"),
}
LARGEST_FULL = 250_000


def measure(
    method: str, vocab_size: int, seconds: float, threads: int, cell: str, alpha: float
) -> dict[str, Any]:
    """Words per second of one method, in this process."""
    from blackout.bench.measure import TrainingBench
    from blackout.config import Config
    from blackout.runtime import set_threads

    set_threads(threads)

    config = Config.from_dict(
        {
            "model": {"cell": cell, "hidden": 256, "context": "stream"},
            "loss": {
                "samples": 500,
                "alpha": alpha,
                "loss": "full" if method == "full" else "blackout",
            },
            "run": {
                "precision": "bf16" if method == "bf16" else "fp32",
                "batch": 16 if method == "full" else 128,
            },
        }
    )
    bench = TrainingBench(config, vocab_size, "reference" if method == "plain" else "auto")
    if method == "adaptive":
        use_adaptive_softmax(bench, vocab_size)
    if threads == 1:
        return {"words_per_second": words_per_processor_second(bench, seconds)}
    return bench.measure(seconds).to_dict()


def words_per_processor_second(bench: Any, seconds: float) -> float:
    """Of the fastest half of the blocks."""
    run, spent = bench.config.run, []
    bench.train_block()
    while len(spent) < 4 or sum(spent) < seconds:
        start = time.process_time()
        bench.train_block()
        spent.append(time.process_time() - start)
    fastest = sorted(spent)[: len(spent) // 2]
    return run.batch * run.bptt * len(fastest) / sum(fastest)


def use_adaptive_softmax(bench: Any, vocab_size: int) -> None:
    """Puts ``torch.nn.AdaptiveLogSoftmaxWithLoss`` in place of the sampled output layer."""
    import torch
    from torch import nn

    from blackout.optim import RMSProp
    from blackout.train.step import BlockShape, ComposedStep

    class Adaptive(nn.Module):
        history_words = 0

        def __init__(self) -> None:
            super().__init__()
            cutoffs = [vocab_size // 50, vocab_size // 10]
            self.inner = nn.AdaptiveLogSoftmaxWithLoss(256, vocab_size, cutoffs)

        def forward(self, hidden: torch.Tensor, target: torch.Tensor, *_: Any) -> Any:
            return self.inner(hidden.reshape(-1, 256), target.reshape(-1))

    bench.model.output = Adaptive()
    optimizer = RMSProp(bench.model.parameters(), clip=1.0)
    run = bench.config.run
    bench.step = ComposedStep(bench.model, optimizer, BlockShape(run.bptt, run.batch))


def run(method: str, vocab_size: int, options: argparse.Namespace) -> dict[str, Any]:
    arguments = ["--one", method, "--sizes", str(vocab_size)]
    for name in ("seconds", "threads", "cell", "alpha"):
        arguments += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{method} at {vocab_size}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def study(options: argparse.Namespace) -> dict[str, dict[int, dict[str, Any]]]:
    results: dict[str, dict[int, dict[str, Any]]] = {method: {} for method in options.methods}
    for vocab_size in options.sizes:
        for method in options.methods:
            if method == "full" and vocab_size > LARGEST_FULL:
                continue
            results[method][vocab_size] = run(method, vocab_size, options)
            speed = results[method][vocab_size]["words_per_second"]
            print(f"{vocab_size:>9,}  {METHODS[method]:<32} {speed:>10,.0f} words/s", flush=True)
    return results


def table(results: dict[str, dict[int, dict[str, Any]]], sizes: list[int]) -> str:
    lines = ["| words/s at V = | " + " | ".join(f"{size:,}" for size in sizes) + " |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for method, found in results.items():
        cells = [
            f"{found[size]['words_per_second']:,.0f}" if size in found else "–" for size in sizes
        ]
        lines.append(f"| {METHODS[method]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(results: dict[str, dict[int, dict[str, Any]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "blackout"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for method, points in results.items():
        colour, marker = STYLES[method]
        sizes = sorted(points)
        speeds = [points[size]["words_per_second"] for size in sizes]
        axes.plot(sizes, speeds, color=colour, marker=marker, label=METHODS[method])
    axes.set(xscale="log", yscale="log", xlabel="vocabulary size", ylabel="training words / second")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 64_000, 250_000, 1_000_000]
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each measurement")
    parser.add_argument("--threads", type=int, default=0, help="0 for all cores")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of speed.svg")
    parser.add_argument("--cell", default="sigmoid")
    parser.add_argument("--alpha", type=float, default=0.4, help="power of the unigram proposal")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--one", choices=list(METHODS), help="one measurement, in this process")
    options = parser.parse_args()
    if options.one:
        about = options.seconds, options.threads, options.cell, options.alpha
        print(json.dumps(measure(options.one, options.sizes[0], *about)))
        return
    results = study(options)
    print("\n" + table(results, options.sizes))
    if options.methods == list(METHODS):
        plot(results, options.out / "speed.svg")


if __name__ == "__main__":
    main()
