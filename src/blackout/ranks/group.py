"""A group of ranks and what they exchange: each collective by name, its bytes counted.

Sums are made in rank order, whatever the backend does in a reduction: every rank has the same bits,
and so has the next run. One process alone is a group of one that exchanges nothing.

>>> alone = Ranks.alone()
>>> alone.size, alone.sum_in_order(torch.tensor([1.5]))
(1, tensor([1.5000]))
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from blackout.errors import UserError
from blackout.ranks.known import Known


class Traffic:
    """What this rank has received from others, by collective: bytes, calls, seconds."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()

    def clear(self) -> None:
        for counter in (self.bytes, self.calls, self.seconds):
            counter.clear()


class Ranks:
    """The processes of a ``torch.distributed`` group, seen by one of them.

    Everything here is called by all ranks, in the same order. ``traffic`` counts what was received.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)
        self.traffic = Traffic()
        self.known: Known | None = None
        """The block under way, where every rank has been told all of it."""

    @classmethod
    def of(cls, group: dist.ProcessGroup | Ranks | None) -> Ranks:
        """The ranks of a group; those that are so already stay the same."""
        return group if isinstance(group, Ranks) else cls(group)

    @classmethod
    def alone(cls) -> Ranks:
        """One process."""
        return cls(None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Ranks:
        return self  # processes cannot be copied

    def __repr__(self) -> str:
        return f"Ranks({self.rank} of {self.size})"

    @property
    def device(self) -> torch.device:
        """Where numbers that only the host reads are exchanged."""
        if self.group is not None and dist.get_backend(self.group) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    # ------------------------------------------------------------------ moving

    def gather(self, part: Tensor, name: str = "gather") -> list[Tensor]:
        """The parts of all ranks, by rank; all have one shape and type."""
        if self.size == 1:
            return [part]
        with self._counted(name, part.nbytes * (self.size - 1)):
            return self._moved([part] * self.size, [part.shape] * self.size)

    def gather_uneven(
        self, part: Tensor, lengths: Sequence[int], name: str = "gather"
    ) -> list[Tensor]:
        """The parts of all ranks, by rank; rank r's has ``lengths[r]`` rows of this one's shape."""
        if len(set(lengths)) == 1:
            return self.gather(part, name)
        copies = [part] * self.size
        return self.exchange(copies, lengths, name)

    def exchange(
        self, parts: Sequence[Tensor], lengths: Sequence[int], name: str = "exchange"
    ) -> list[Tensor]:
        """All to all: ``parts[r]`` goes to rank r, of which a part of ``lengths[r]`` rows comes."""
        if self.size == 1:
            return list(parts)
        rest = parts[0].shape[1:]
        width = math.prod(rest) * parts[0].itemsize
        with self._counted(name, width * (sum(lengths) - lengths[self.rank])):
            return self._moved(parts, [torch.Size([n, *rest]) for n in lengths])

    def _moved(self, sent: Sequence[Tensor], shapes: Sequence[torch.Size]) -> list[Tensor]:
        """``sent[r]`` to rank r, of which something of that shape comes; the own part stays here.

        Each part goes straight to its rank. gloo's collectives copy more, and take four times as
        much processor time for few bytes; NCCL joins the parts into one launch.
        """
        # bytes: a backend moves them, whatever types it can add
        got = [sent[0].new_empty(shape) for shape in shapes]
        got[self.rank] = sent[self.rank].detach()
        others = [r for r in range(self.size) if r != self.rank]
        group, size = self.group, self.size
        asked = [
            dist.P2POp(dist.isend, _raw(sent[r]), group=group, group_peer=r)
            for r in ((self.rank + i) % size for i in range(1, size))
            if sent[r].numel()
        ]
        asked += [
            dist.P2POp(dist.irecv, _raw(got[r]), group=group, group_peer=r)
            for r in others
            if got[r].numel()
        ]
        for work in dist.batch_isend_irecv(asked) if asked else []:
            work.wait()
        return got

    def gather_numbers(self, numbers: Sequence[int], name: str = "sizes") -> list[list[int]]:
        """A few whole numbers of each rank, by rank."""
        part = torch.tensor(list(numbers), dtype=torch.int64, device=self.device)
        return [found.tolist() for found in self.gather(part, name)]

    def exchange_numbers(self, numbers: Sequence[int], name: str = "sizes") -> list[int]:
        """All to all of one whole number: ``numbers[r]`` goes to rank r, of which one comes."""
        part = torch.tensor(list(numbers), dtype=torch.int64, device=self.device)
        found = self.exchange(part.split(1), [1] * self.size, name)
        return [int(number) for number in torch.cat(found).tolist()]

    # ------------------------------------------------------------------ adding

    def sum_in_order(self, part: Tensor, name: str = "sum") -> Tensor:
        """The sum over ranks, added in rank order: the same bits everywhere.

        Each rank adds one piece and all gather the sums: no more bytes than a ring would take.
        """
        if self.size == 1 or not part.numel():
            return part
        if self.size == 2:  # as many bytes in one go
            return add(self.gather(part, name))
        flat = part.reshape(-1)
        share = -(-len(flat) // self.size)
        padded = torch.cat([flat, flat.new_zeros(share * self.size - len(flat))])
        pieces = self.exchange(list(padded.split(share)), [share] * self.size, name)
        return torch.cat(self.gather(add(pieces), name))[: len(flat)].view(part.shape)

    def sums(self, numbers: Sequence[float], name: str = "sums") -> list[float]:
        """Sums over ranks of a few float64 numbers, added in rank order."""
        part = torch.tensor(list(numbers), dtype=torch.float64, device=self.device)
        return list(add(self.gather(part, name)).tolist())

    # ------------------------------------------------------------------ agreeing

    def require_same(self, facts: dict[str, Any]) -> None:
        """Refuses ranks that were given different numbers, the first of them by its name."""
        if self.size == 1:
            return
        text = json.dumps(facts, default=str).encode()
        mine = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(self.device)
        lengths = [n for (n,) in self.gather_numbers([len(mine)], "agreement")]
        parts = self.gather_uneven(mine, lengths, "agreement")
        told = [json.loads(bytes(part.tolist())) for part in parts]
        for rank, other in enumerate(told):
            for name in [*told[0], *other]:
                here, there = told[0].get(name), other.get(name)
                if here != there:
                    raise UserError(f"{name} is {here} on rank 0 and {there} on rank {rank}")

    def same_seed(self, seed: int) -> int:
        """Rank 0's seed."""
        return self.gather_numbers([seed], "agreement")[0][0]

    # ------------------------------------------------------------------

    def _counted(self, name: str, received: int) -> _Timed:
        self.traffic.bytes[name] += received
        self.traffic.calls[name] += 1
        return _Timed(self.traffic.seconds, name)


class _Timed:
    """Adds the seconds of a block to a counter."""

    def __init__(self, seconds: Counter[str], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] += time.perf_counter() - self.began  # type: ignore[assignment]


def add(parts: Sequence[Tensor]) -> Tensor:
    """The sum of the parts of ranks, in rank order."""
    if len(parts) == 1:
        return parts[0].clone()
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total


def _raw(part: Tensor) -> Tensor:
    """The bytes of a tensor: a backend moves them, whatever types it can add."""
    flat = part.detach().contiguous().view(-1)
    if flat.stride(0) != 1:  # one number of an expanded tensor passes for contiguous
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)
