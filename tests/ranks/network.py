"""A small network with both tables divided, trained on made-up words: on one process or several."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import blackout
from blackout.ranks import Ranks, division_of, strata_for
from blackout.ranks.division import is_complete
from blackout.tables import ShardedTable, Table

V, H, T, B = 150, 12, 3, 7
COUNTS = (1000 / torch.arange(1, V + 1)).ceil()

LOSSES: dict[str, tuple[type, dict[str, Any]]] = {
    "blackout": (blackout.BlackOut, {}),
    "blackout-noise": (blackout.BlackOut, {"negatives": "nce"}),
    "blackout-remove": (blackout.BlackOut, {"collisions": "remove", "always_sample": (1, 4)}),
    "sampled": (blackout.Sampled, {}),
    "nce": (blackout.NCE, {}),
    "full": (blackout.Full, {}),
    "smoothed": (blackout.Full, {"label_smoothing": 0.1}),
}


class Network(nn.Module):
    """words (T, b) → tanh(W embedding) → layer."""

    def __init__(
        self, group: Any, loss: str, dtype: torch.dtype, tied: bool = False, **options: Any
    ) -> None:
        super().__init__()
        torch.manual_seed(11)
        kind, more = LOSSES[loss]
        if kind is not blackout.Full:
            more = {"samples": 20, "counts": COUNTS, "sharing": "step"} | more
        ranks = None if group is None else Ranks.of(group)
        half = options.get("storage") == "bf16"
        stored = {"init_range": 0.3, "storage": torch.bfloat16 if half else dtype}
        strata = strata_for(V, 20 if options.get("sampling") == "strata" else None)
        self.table = (
            Table(V, H, **stored)
            if ranks is None
            else ShardedTable(V, H, ranks, strata=strata, **stored)
        )
        if tied:
            options["tied_to"] = self.table
        self.layer = kind(H, V, dtype=dtype, process_group=ranks, **{**more, **options})
        self.body = nn.Linear(H, H, dtype=dtype)
        self.ranks = Ranks.alone() if ranks is None else ranks

    def forward(self, words: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        """The rank's loss, such that the mean over ranks is the sum over words / (T B)."""
        hidden = self.body(self.table(words).to(self.body.weight.dtype)).tanh()
        loss: Tensor = self.layer(hidden, target, mask, divisor=T * B / self.ranks.size).loss
        return loss

    def average_body(self) -> None:
        """What DistributedDataParallel would do."""
        for p in self.parameters():
            if not is_complete(p) and p.grad is not None:
                p.grad = self.ranks.sum_in_order(p.grad, "body") / self.ranks.size


def blocks(count: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Words, targets and masks (T, B): frequent words more often, some places empty."""
    generator = torch.Generator().manual_seed(5)
    draws = torch.multinomial(COUNTS, count * T * B * 2, True, generator=generator)
    words = draws.view(2, count, T, B)
    mask = torch.rand(count, T, B, generator=generator) > 0.1
    return list(zip(*words, mask, strict=True))


def train(
    group: Any,
    loss: str,
    count: int,
    dtype: torch.dtype = torch.float32,
    optimizer: str = "RMSProp",
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Losses, norms and what this rank holds of all weights after ``count`` blocks."""
    network = Network(group, loss, dtype, **options)
    settings = {"lr": 0.01, "clip": 0.5} | (settings or {})
    update = getattr(blackout, optimizer)(network.parameters(), **settings)
    ranks, losses, norms = network.ranks, [], []
    for block in blocks(count):
        mine = [part.tensor_split(ranks.size, 1)[ranks.rank] for part in block]
        value = network(*mine)
        update.zero_grad()
        value.backward()
        network.average_body()
        update.step()
        losses.append(ranks.sums([float(value.detach())])[0] / ranks.size)
        norms.append(float(update.last_norm))
    held = {}
    for name, p in network.named_parameters():
        division = division_of(p)
        held[name] = (None if division is None else division.rows(), p.detach())
    return {"losses": losses, "norms": norms, "weights": held}


def whole(parts: list[dict[str, Any]]) -> dict[str, Tensor]:
    """The weights of all ranks put together."""
    found = {}
    for name, (rows, value) in parts[0]["weights"].items():
        if rows is None:
            assert all(torch.equal(part["weights"][name][1], value) for part in parts)
            found[name] = value
            continue
        table = value.new_full((V, *value.shape[1:]), float("nan"))
        for part in parts:
            table[part["weights"][name][0]] = part["weights"][name][1]
        found[name] = table
    return found
