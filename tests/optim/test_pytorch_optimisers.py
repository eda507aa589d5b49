"""Other people's optimisers on our layers: row-sparse and dense ones learn."""

import pytest
import torch
from torch import nn

import blackout

CHOICES = {
    "SGD": (torch.optim.SGD, {"lr": 5.0}, True),
    "SparseAdam": (torch.optim.SparseAdam, {"lr": 0.05}, True),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.3}, True),
    "Adam": (torch.optim.Adam, {"lr": 0.05}, False),
    "AdamW": (torch.optim.AdamW, {"lr": 0.05}, False),
    "our RMSProp": (blackout.RMSProp, {"lr": 0.02, "clip": 1.0}, True),
    "our Adagrad": (blackout.Adagrad, {"lr": 0.2, "clip": 1.0}, True),
    "our Adam": (blackout.Adam, {"lr": 0.02, "clip": 1.0}, True),
}


PAIRS = [(blackout.BlackOut, choice) for choice in CHOICES]
for other in (blackout.NCE, blackout.Sampled):
    PAIRS += [(other, choice) for choice in ("SparseAdam", "our RMSProp")]


@pytest.mark.parametrize(("layer", "choice"), PAIRS)
def test_it_learns(layer, choice):
    """300 classes, each with a state of its own; a guess is right once in 300 times."""
    optimizer_class, options, sparse = CHOICES[choice]
    torch.manual_seed(0)
    states = nn.functional.normalize(torch.randn(300, 32)) * 4
    head = layer(32, 300, samples=50, sparse=sparse)
    if optimizer_class is torch.optim.SparseAdam:  # it refuses the dense gradient of NCE's log Z
        parameters = [head.weight]
    else:
        parameters = list(head.parameters())
    optimizer = optimizer_class(parameters, **options)
    generator = torch.Generator().manual_seed(1)
    for _ in range(150):
        target = torch.randint(300, (64,), generator=generator)
        _, loss = head(states[target], target)
        optimizer.zero_grad()
        loss.backward()
        assert head.weight.grad.is_sparse == sparse
        optimizer.step()
    right = head.predict(states) == torch.arange(300)
    assert float(right.float().mean()) > 0.9
