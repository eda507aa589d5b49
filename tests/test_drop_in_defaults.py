"""The layer and the optimiser with nothing but defaults, in networks narrow and wide."""

import math

import pytest
import torch

import blackout

CLASSES, WORDS = 300, 128


def classify(width: int, steps: int = 150) -> float:
    """Exact mean loss on new examples after some steps, in nats; knowing nothing is log 300."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, width, generator=generator)
    torch.manual_seed(0)
    head = blackout.BlackOut(width, CLASSES, samples=30)
    optimizer = blackout.RMSProp(head.parameters(), clip=1.0)

    def examples() -> tuple[torch.Tensor, torch.Tensor]:
        target = torch.randint(CLASSES, (WORDS,), generator=generator)
        noise = torch.randn(WORDS, width, generator=generator)
        return (centres[target] + noise).tanh(), target

    for _ in range(steps):
        _, loss = head(*examples())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hidden, target = examples()
    with torch.no_grad():
        return -float(head.target_log_prob(hidden, target).mean())


@pytest.mark.parametrize("width", [16, 256, 4096])
def test_every_width_learns(width):
    assert classify(width) < 0.75 * math.log(CLASSES)
