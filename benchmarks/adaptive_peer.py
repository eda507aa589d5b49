"""The adaptive softmax beside ``torch.nn.AdaptiveLogSoftmaxWithLoss``: same shapes, same thread.

    python benchmarks/adaptive_peer.py --vocab-size 64000

Loss and gradients of a block, and log-probabilities of its targets without gradients, in turns;
medians of words a second of processor time. No optimiser: both would have the same.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from blackout.bench.words import draw_words, zipf_counts
from blackout.output import Adaptive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab-size", type=int, default=64_000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--words", type=int, default=2560, help="in a block")
    parser.add_argument("--cutoffs", type=int, nargs="*", default=[], help="none: ours by default")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    counts = zipf_counts(options.vocab_size)
    ours = Adaptive(
        options.hidden,
        options.vocab_size,
        counts=torch.from_numpy(counts),
        cutoffs=options.cutoffs,
    )
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(
        options.hidden, options.vocab_size, ours.cutoffs, div_value=4.0
    )
    target = torch.from_numpy(draw_words(counts, (options.words,), 1))
    print(f"cut-offs {ours.cutoffs}, blocks of {options.words} words, {options.hidden} units")
    layers = {"ours": ours, "PyTorch's": theirs}
    for what, work in (("trained", train), ("scored", score)):
        seconds: dict[str, list[float]] = {name: [] for name in layers}
        for _ in range(options.rounds):
            for name, layer in layers.items():
                hidden = torch.randn(options.words, options.hidden)
                seconds[name].append(processor_seconds(work, layer, hidden, target))
        rates = {n: options.words / statistics.median(some) for n, some in seconds.items()}
        shown = "  ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
        ratio = rates["ours"] / rates["PyTorch's"]
        print(f"{what:8} words/s  {shown}  ratio {ratio:.2f}", flush=True)


def train(layer: torch.nn.Module, hidden: torch.Tensor, target: torch.Tensor) -> None:
    layer.zero_grad(set_to_none=True)
    layer(hidden.requires_grad_(), target).loss.backward()


@torch.no_grad()
def score(layer: torch.nn.Module, hidden: torch.Tensor, target: torch.Tensor) -> None:
    layer.train(isinstance(layer, torch.nn.AdaptiveLogSoftmaxWithLoss))  # which has one way only
    layer(hidden, target)
    layer.train()


def processor_seconds(
    work: Callable[..., None], layer: torch.nn.Module, hidden: torch.Tensor, target: torch.Tensor
) -> float:
    begun = time.process_time()
    work(layer, hidden, target)
    return time.process_time() - begun


if __name__ == "__main__":
    main()
