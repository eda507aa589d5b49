"""A head that no single process holds: its table divided over ranks, the body under DDP.

    torchrun --nproc-per-node 2 examples/divided_head.py

Every rank has the whole body, examples of its own, and its share of the head's rows: memory for
classes, their moments and their gradients is divided by the number of ranks. The ranks exchange
hidden states and a few numbers an example, never rows, so that what goes over the wire depends
neither on the number of classes nor on that of samples.

The head stays outside DistributedDataParallel, since it adds up its own gradients. The optimiser
gets both: it sees which rows are divided, and clips by the norm over all ranks.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import blackout

FEATURES, HIDDEN, BATCH = 32, 64, 128


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
    body = DistributedDataParallel(
        nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
    )
    head = blackout.BlackOut(
        HIDDEN,
        options.classes,
        samples=100,
        counts=frequency,
        sampling="strata",  # each rank draws for the rows it has
        process_group=dist.group.WORLD,
    )
    torch.manual_seed(rank + 1)  # ... the examples are not

    def batch(size: int) -> tuple[Tensor, Tensor]:
        target = torch.multinomial(frequency, size, replacement=True)
        return prototypes[target] + 0.05 * torch.randn(size, FEATURES), target

    parameters = [*body.parameters(), *head.parameters()]
    optimizer = blackout.RMSProp(parameters, lr=0.002, clip=1.0)
    started = time.perf_counter()
    for step in range(1, options.steps + 1):
        features, target = batch(BATCH)
        _, loss = head(body(features), target)  # the rank's own mean; all ranks call together
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(options.steps // 5, 1) == 0:
            features, target = batch(500)
            right = head.predict(body(features)) == target  # over all classes, on all ranks
            accuracy = right.float().mean()
            dist.all_reduce(accuracy)
            if rank == 0:
                speed = ranks * step * BATCH / (time.perf_counter() - started)
                shown = f"accuracy {accuracy / ranks:.1%}  {speed:,.0f} examples/s"
                print(f"step {step:4d}  {shown}", flush=True)
    told = [f"rank {rank} of {ranks} holds {len(head.weight):,} of {options.classes:,} classes"]
    everyone: list[list[str] | None] = [None] * ranks
    dist.all_gather_object(everyone, told)
    if rank == 0:
        print("\n".join(line for lines in everyone if lines for line in lines))
    dist.destroy_process_group()
    time.sleep(0.5)  # threads of gloo let go of their tensors, which at the very end is an abort


if __name__ == "__main__":
    main()
