"""BlackOut in somebody else's network: a classifier with 200,000 classes, trained on a laptop.

    python examples/drop_in.py

The classes are points on a sphere and an example is its class seen through noise: a made-up
stand-in for recommendation or entity linking. Everything but the layer and the optimiser is plain
PyTorch; a step costs what 100 sampled classes cost, not 200,000.
"""

import time

import torch
from torch import nn

import blackout

CLASSES, FEATURES, HIDDEN, BATCH, STEPS = 200_000, 64, 128, 512, 1500

torch.manual_seed(0)
prototypes = nn.functional.normalize(torch.randn(CLASSES, FEATURES), dim=1)
frequency = 1 / torch.arange(1, CLASSES + 1)  # a few classes are common, most are rare


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Examples and their classes."""
    target = torch.multinomial(frequency, size, replacement=True)
    return prototypes[target] + 0.08 * torch.randn(size, FEATURES), target


body = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
head = blackout.BlackOut(HIDDEN, CLASSES, samples=100, counts=frequency)
optimizer = blackout.RMSProp([*body.parameters(), *head.parameters()], lr=0.002, clip=1.0)

started = time.perf_counter()
for step in range(1, STEPS + 1):
    features, target = batch(BATCH)
    _, loss = head(body(features), target)
    optimizer.zero_grad()
    loss.backward()  # the table's gradient is row-sparse: about 600 of 200,000 rows
    optimizer.step()
    if step % 250 == 0:
        features, target = batch(1000)
        right = (head.predict(body(features)) == target).float().mean()
        speed = step * BATCH / (time.perf_counter() - started)
        print(f"step {step:4d}  loss {loss:.3f}  accuracy {right:.1%}  {speed:,.0f} examples/s")
