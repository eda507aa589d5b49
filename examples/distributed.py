"""A network with a sparse head under DistributedDataParallel: several processes, one model.

    torchrun --nproc-per-node 2 examples/distributed.py

Every rank reads examples of its own and draws samples of its own. DDP averages the gradients: those
of the body as matrices, that of the head as rows, because the head's table is an ``nn.Embedding``
with sparse gradients. The optimiser then sees the same averaged gradients on every rank, clips them
by the same norm and keeps the weights equal without exchanging them. gloo can add sparse gradients;
with a backend that cannot, keep the head out of DDP or make it dense (``sparse=False``).
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import blackout

FEATURES, HIDDEN, BATCH = 32, 64, 128


class Classifier(nn.Module):
    """Body and head in one module, so that DDP sees the whole backward pass."""

    def __init__(self, frequency: Tensor) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
        self.head = blackout.BlackOut(HIDDEN, len(frequency), samples=100, counts=frequency)

    def forward(self, features: Tensor, target: Tensor) -> Tensor:
        _, loss = self.head(self.body(features), target)
        return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the task and the first weights are the same everywhere, ...
    prototypes = nn.functional.normalize(torch.randn(options.classes, FEATURES), dim=1)
    frequency = 1 / torch.arange(1, options.classes + 1)
    network = DistributedDataParallel(Classifier(frequency))
    torch.manual_seed(rank + 1)  # ... the examples are not

    def batch(size: int) -> tuple[Tensor, Tensor]:
        target = torch.multinomial(frequency, size, replacement=True)
        return prototypes[target] + 0.05 * torch.randn(size, FEATURES), target

    optimizer = blackout.RMSProp(network.parameters(), lr=0.002, clip=1.0)
    started = time.perf_counter()
    for step in range(1, options.steps + 1):
        loss = network(*batch(BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(options.steps // 5, 1) == 0 and rank == 0:
            features, target = batch(500)
            classifier = network.module
            right = classifier.head.predict(classifier.body(features)) == target
            speed = ranks * step * BATCH / (time.perf_counter() - started)
            print(f"step {step:4d}  accuracy {right.float().mean():.1%}  {speed:,.0f} examples/s")
    check_equal(network.module, ranks)
    if rank == 0:
        print(f"{ranks} ranks end with the same weights")
    dist.destroy_process_group()
    time.sleep(0.5)  # threads of gloo let go of their tensors, which at the very end is an abort


def check_equal(module: nn.Module, ranks: int) -> None:
    """Every rank must have the same numbers, bit for bit."""
    sums = torch.stack([p.detach().double().sum() for p in module.parameters()])
    found = [torch.empty_like(sums) for _ in range(ranks)]
    dist.all_gather(found, sums)
    assert all(torch.equal(other, sums) for other in found), "the ranks went apart"


if __name__ == "__main__":
    main()
