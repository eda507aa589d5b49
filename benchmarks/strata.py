"""How noisy a sampled gradient is, by where samples come from: all classes, or strata of them.

    python benchmarks/strata.py

A model that knows the classes' frequencies and something of the states: u = log p(w) + <theta, s>.
For each number of samples K the gradient by the states is made from many draws; printed is the mean
square of its deviation from its mean, in parts of the square of that mean. Beside it, how many
different classes a set of K has, which is what products cost once copies are merged, and how many
of them the busiest of 8 ranks has. Smaller is better.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import blackout
from blackout.proposals import StrataProposal

HIDDEN, WORDS = 32, 64


def layer_for(kind: str, classes: int, samples: int) -> blackout.BlackOut:
    counts = 1 / torch.arange(1, classes + 1)
    torch.manual_seed(1)
    sampling = "global" if kind == "global" else "strata"
    layer = blackout.BlackOut(
        HIDDEN, classes, samples, counts=counts, sampling=sampling, bias=True, init_range=0.3
    )
    if kind != "global":
        layer.proposal = StrataProposal(counts, 1.0, samples, layer.division.strata, by=kind)  # type: ignore[arg-type]
    assert layer.bias is not None
    with torch.no_grad():
        layer.bias.copy_((counts / counts.sum()).log())
    return layer


def noise(kind: str, classes: int, samples: int, draws: int) -> float:
    layer = layer_for(kind, classes, samples)
    states = torch.randn(WORDS, HIDDEN, generator=torch.Generator().manual_seed(2))
    log_p = layer.eval().log_prob(states)
    torch.manual_seed(3)
    target = torch.multinomial(log_p.exp(), 1)[:, 0]
    layer.train()
    gradients = torch.stack([_gradient(layer, states, target) for _ in range(draws)])
    mean = gradients.mean(0)
    return float((gradients - mean).square().sum((1, 2)).mean() / mean.square().sum())


def _gradient(layer: blackout.BlackOut, states: Tensor, target: Tensor) -> Tensor:
    hidden = states.clone().requires_grad_()
    _, loss = layer(hidden, target)
    (gradient,) = torch.autograd.grad(loss, hidden)
    return gradient.double()


def columns(kind: str, classes: int, samples: int) -> str:
    """Different classes of a set, and those of the busiest of 8 ranks, in the mean over 20 sets."""
    layer = layer_for(kind, classes, samples)
    drawn = [layer.draw(torch.zeros(1, 1, dtype=torch.int64)).samples.unique() for _ in range(20)]
    rank = [words % layer.division.strata % 8 for words in drawn]
    busiest = max(sum(int((r == n).sum()) for r in rank) for n in range(8))
    return f"{sum(map(len, drawn)) / 20:7.0f} ({busiest / 20:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--samples", type=int, nargs="+", default=[20, 100, 500, 2000])
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    kinds = ("global", "mass", "equal")
    print(f"{'K':>6}" + "".join(f"{kind:>24}" for kind in kinds))
    for samples in options.samples:
        found = [noise(kind, options.classes, samples, options.draws) for kind in kinds]
        width = [columns(kind, options.classes, samples) for kind in kinds]
        shown = (f"{value:10.4f}{n:>14}" for value, n in zip(found, width, strict=True))
        print(f"{samples:6d}" + "".join(shown), flush=True)


if __name__ == "__main__":
    main()
