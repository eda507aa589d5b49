"""What a GPU adds to a benchmark: clocks that wait for it, and the traffic of the rows touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from blackout.config import Config
from blackout.models.language_model import LanguageModel
from blackout.text.streams import Block

_COPY = 1 << 28  # bytes of the copy that measures the memory's rate


def waits_for(device: torch.device) -> Callable[[], None]:
    """Waits until the device has done all that it was given."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def captured(work: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """Work as one graph on a GPU, where launches would take longer than many a product."""
    if device.type != "cuda":
        return work
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Callable[[], object] = graph.replay
    return replay


def row_traffic(config: Config, model: LanguageModel, block: Block) -> int:
    """Bytes that the rows of one block cannot do without.

    Each different row is read and written once with its second moment, and its gradient, in the
    type of the products, is written and read once.
    """
    product = 2 if config.run.precision == "bf16" else 4
    total = 0
    for weight, rows in _touched(config, model, block):
        size, number = weight.shape[1], weight.element_size()
        moment = 4 * size if config.optim.second_moment == "full" else 4
        total += rows * 2 * (size * (number + product) + moment)
    return total


def _touched(config: Config, model: LanguageModel, block: Block) -> list[tuple[torch.Tensor, int]]:
    """The two tables and how many of their rows a block touches."""
    output: Any = model.output
    targets = torch.from_numpy(block.targets)
    proposal = getattr(output, "proposal", None)
    if proposal is None:
        touched = len(output.weight)
    else:
        groups = len(targets) if output.sharing == "step" else 1
        seed, step = output.seed, int(output.step)
        drawn = proposal.words(seed, step, groups, output.samples).cpu()
        touched = len(torch.cat([drawn.flatten(), targets.flatten()]).unique())
    inputs = len(torch.from_numpy(block.inputs).unique())
    return [(model.embedding.weight, inputs), (output.weight, touched)]


class DeviceCopy:
    """A copy from one place of the device's memory to another: its rate is the memory's."""

    def __init__(self, device: torch.device) -> None:
        self.source = torch.empty(_COPY, dtype=torch.uint8, device=device)
        self.target = torch.empty_like(self.source)
        self.bytes = 2 * _COPY

    def run(self) -> None:
        self.target.copy_(self.source)
