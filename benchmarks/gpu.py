"""Training, exact scoring and the layer alone on a GPU, each beside what the GPU could do.

    python benchmarks/gpu.py [--only WORD …] [--seconds S] [--profile] [--json FILE]

B = 128, T = 20, α = 1 and bf16 products where a line says nothing else. A line is what ``blackout
bench train --device cuda`` measures with the same settings, in one process. ``--only`` takes the
lines in whose titles one of the words occurs.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import blackout
from blackout.bench.gpu import captured
from blackout.bench.measure import EvaluationBench, Speed, TrainingBench
from blackout.bench.profile import profile
from blackout.bench.words import zipf_counts
from blackout.config import Config
from blackout.ops.triton import recurrent
from blackout.score.perplexity import scored_at_once
from blackout.tables import tables_on

GPU = torch.device("cuda")
SMALL = {"storage": "bf16", "second_moment": "row"}
TRAINING: dict[str, dict[str, Any]] = {
    "64,000, 1024, 500": {"vocab": 64_000, "hidden": 1024, "samples": 500},
    "64,000, 4096, 500": {"vocab": 64_000, "hidden": 4096, "samples": 500},
    "1,000,000, 1024, 2000": {"vocab": 1_000_000, "hidden": 1024},
    "1,000,000, 2048, 2000": {},
    "1,000,000, 2048, 2000, α 0.4": {"alpha": 0.4},
    "1,000,000, 2048, 2000, B = 1024": {"batch": 1024},
    "1,000,000, 2048, 2000, B = 1024, α 0.4": {"batch": 1024, "alpha": 0.4},
    "1,000,000, 2048, 2000, bf16 storage, row moments": SMALL,
    "1,000,000, 2048, 2000, α 0.4, bf16 storage, row moments": {"alpha": 0.4, **SMALL},
    "64,000, 1024, 500, LSTM, T = 35": {
        "vocab": 64_000,
        "hidden": 1024,
        "samples": 500,
        "cell": "lstm",
        "bptt": 35,
    },
    "1,000,000, 2048, 2000, sampled": {"loss": "sampled"},
    "1,000,000, 2048, 2000, nce": {"loss": "nce"},
    "10,000,000, 2048, 2000, bf16 storage, row moments": {"vocab": 10_000_000, **SMALL},
}
SCORING: dict[str, dict[str, Any]] = {
    "scoring 64,000, 1024": {"vocab": 64_000, "hidden": 1024},
    "scoring 1,000,000, 2048": {},
}
EXAMPLES = 2560


def config_of(
    hidden: int = 2048,
    samples: int = 2000,
    alpha: float = 1.0,
    batch: int = 128,
    bptt: int = 20,
    cell: str = "sigmoid",
    loss: str = "blackout",
    storage: str = "fp32",
    second_moment: str = "full",
) -> Config:
    return Config.from_dict(
        {
            "model": {"hidden": hidden, "cell": cell, "storage": storage, "context": "stream"},
            "loss": {"loss": loss, "samples": samples, "alpha": alpha},
            "optim": {"second_moment": second_moment},
            "run": {"batch": batch, "bptt": bptt, "precision": "bf16"},
        },
        "benchmarks/gpu.py",
    )


def show_profile(work: Callable[[], Any], times: int) -> None:
    for name, spent, calls in profile(work, GPU, times):
        print(f"    {1e3 * spent:9.1f} µs  {calls:5.1f}  {name}")


def training(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    some = dict(settings)
    vocab, config = some.pop("vocab", 1_000_000), config_of(**some)
    bench = TrainingBench(config, vocab, device="cuda")
    speed = bench.measure(options.seconds)
    words = config.run.batch * config.run.bptt
    found = figures(speed) | {
        "µs a block": 1e6 * words / speed.words_per_second,
        "floor: products, M words/s": speed.products_words_per_second / 1e6,
        "floor: rows, M words/s": speed.traffic_words_per_second / 1e6,
    }
    if options.profile:
        show_profile(bench.train_block, 32)
    return found


def scoring(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    some = dict(settings)
    vocab = some.pop("vocab", 1_000_000)
    bench = EvaluationBench(config_of(**some), vocab, words=scored_at_once(GPU), device="cuda")
    found = figures(bench.measure(options.seconds))
    if options.profile:
        show_profile(bench.score, 3)
    return found


def figures(speed: Speed) -> dict[str, Any]:
    return {
        "M words/s": speed.words_per_second / 1e6,
        "fraction of the matrix rate": speed.fraction_of_gemm,
        "GiB": speed.peak_device_bytes / 2**30,
    }


# ---------------------------------------------------------------------- steps of a recurrence


def steps(size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Twenty steps of 128 streams there and back: each as one kernel, and as two."""
    words = torch.randint(64_000, (20, 128), device=GPU)
    table = torch.randn(64_000, size, device=GPU)
    half: dict[str, Any] = {"device": GPU, "dtype": torch.bfloat16}
    state, grad = torch.rand(1, 128, size, **half), torch.randn(20, 128, size, **half)
    matrix = torch.randn(size, size, **half) / size**0.5

    def both() -> None:
        given = ("sigmoid", table, state, matrix, None, None, torch.bfloat16, words)
        found = recurrent.forward(*given)
        recurrent.backward("sigmoid", found.saved, grad, torch.bfloat16)

    def replayed() -> float:
        return 1e3 * timed(captured(both, GPU))

    one, divided = replayed(), recurrent.tile_of
    recurrent.tile_of = lambda streams, matrix: None
    found = {"µs, one kernel a step": one, "µs, a product and a kernel": replayed()}
    recurrent.tile_of = divided
    return found


# ---------------------------------------------------------------------- the layer alone


def layer_alone(options: argparse.Namespace) -> dict[str, Any]:
    """A layer in somebody's network, forward, backward and step, beside the exact softmax."""
    hidden = torch.randn(EXAMPLES, 2048, device=GPU, requires_grad=True)
    target = torch.randint(1_000_000, (EXAMPLES,), device=GPU)
    found = {"ms, eager": eager_layer(hidden, target, options)}
    found["ms, in a graph of one's own"] = captured_layer(hidden, target)
    found["ms, exact softmax in plain PyTorch, no step"] = exact_softmax(hidden, target)
    return found


def network(capturable: bool) -> tuple[blackout.BlackOut, blackout.RMSProp]:
    with tables_on(GPU):
        counts = torch.as_tensor(zipf_counts(1_000_000))
        head = blackout.BlackOut(2048, 1_000_000, 2000, counts=counts, precision="bf16").to(GPU)
    optimizer = blackout.RMSProp(head.parameters(), lr=1e-3, clip=1.0, capturable=capturable)
    return head, optimizer


def one_step(
    head: blackout.BlackOut, optimizer: blackout.RMSProp, hidden: torch.Tensor, target: torch.Tensor
) -> None:
    optimizer.zero_grad()
    hidden.grad = None
    head(hidden, target).loss.backward()
    optimizer.step()


def eager_layer(hidden: torch.Tensor, target: torch.Tensor, options: argparse.Namespace) -> float:
    work = functools.partial(one_step, *network(False), hidden, target)
    found = timed(work)
    if options.profile:
        show_profile(work, 20)
        show_calls(work)
    return found


def captured_layer(hidden: torch.Tensor, target: torch.Tensor) -> float:
    work = functools.partial(one_step, *network(True), hidden, target)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return timed(graph.replay)


def exact_softmax(hidden: torch.Tensor, target: torch.Tensor) -> float:
    table = torch.zeros(1_000_000, 2048, dtype=torch.bfloat16, device=GPU).normal_()
    table.requires_grad_()

    def work() -> None:
        hidden.grad = table.grad = None
        logits = hidden.bfloat16() @ table.mT
        torch.nn.functional.cross_entropy(logits, target).backward()

    return timed(work, 5)


def timed(work: Callable[[], Any], times: int = 50) -> float:
    """Milliseconds, the median of five rounds."""
    work()
    found = []
    for _ in range(5):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(times):
            work()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - begun) / times)
    return statistics.median(found)


def show_calls(work: Callable[[], Any]) -> None:
    """Where Python spends its time."""
    import cProfile
    import pstats

    looked = cProfile.Profile()
    looked.enable()
    for _ in range(50):
        work()
    looked.disable()
    torch.cuda.synchronize()
    pstats.Stats(looked).sort_stats("tottime").print_stats(25)


# ---------------------------------------------------------------------- all lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    lines: dict[str, Callable[[], dict[str, Any]]]
    lines = {"layer alone": functools.partial(layer_alone, options)}
    for size in (256, 512, 1024, 2048):
        lines[f"steps of {size} units"] = functools.partial(steps, size, options)
    for kind, settings in ((training, TRAINING), (scoring, SCORING)):
        for title, given in settings.items():
            lines[title] = functools.partial(kind, given, options)
    found = {}
    for title, measure in lines.items():
        if options.only and not any(word in title for word in options.only):
            continue
        torch.cuda.reset_peak_memory_stats()
        begun = time.perf_counter()
        found[title] = measure()
        gc.collect()
        torch.cuda.empty_cache()
        shown = ", ".join(f"{name} {value:.4g}" for name, value in found[title].items())
        print(f"{title}: {shown}  ({time.perf_counter() - begun:.0f} s)", flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump(found, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
