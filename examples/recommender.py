"""What comes next? A sequential recommender, with five ways to train its softmax, at equal time.

    blackout data amazon-video
    python examples/recommender.py --data data/amazon-video/interactions
    python examples/recommender.py --items 200000        # made-up sessions

The network is SASRec's: two causal attention blocks over a user's last items. Its item vectors are
also the vectors it compares the state with. What differs is the loss alone: each way gets the same
network, the same optimiser and the same processor time; evaluation ranks all items that the user
does not have yet.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import blackout
from sessions import LONGEST, Sessions

WIDTH, BATCH = 64, 128


class Body(nn.Module):
    """Vectors of the items so far (B, T, h) to a state for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(0.02 * torch.randn(LONGEST, WIDTH))
        block = nn.TransformerEncoderLayer(
            WIDTH, 2, WIDTH, dropout=0.2, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(0.2)

    def forward(self, vectors: Tensor) -> Tensor:
        length = vectors.shape[1]
        later = nn.Transformer.generate_square_subsequent_mask(length)
        placed = self.dropout(vectors * WIDTH**0.5 + self.places[:length])
        states: Tensor = self.norm(self.blocks(placed, later, is_causal=True))
        return states


class Way(nn.Module):
    """A way to train: the item vectors, and a loss of states (N, h) and the next items (N,)."""

    def __init__(self, counts: Tensor, samples: int, sparse: bool = True) -> None:
        super().__init__()
        self.counts, self.samples = counts, samples
        self.items = self.table(sparse)

    def table(self, sparse: bool) -> nn.Embedding:
        table = nn.Embedding(len(self.counts), WIDTH, sparse=sparse)
        nn.init.uniform_(table.weight, -(WIDTH**-0.5), WIDTH**-0.5)
        return table

    def loss(self, states: Tensor, target: Tensor) -> Tensor:
        raise NotImplementedError


class BlackOut(Way):
    """This package's: K samples by popularity, shared by the block."""

    def table(self, sparse: bool) -> nn.Embedding:
        self.head = blackout.BlackOut(
            WIDTH, len(self.counts), self.samples, counts=self.counts, sharing="block"
        )
        return self.head.table

    def loss(self, states: Tensor, target: Tensor) -> Tensor:
        return self.head(states, target)[1]


class FullSoftmax(Way):
    """Cross entropy over all items."""

    def __init__(self, counts: Tensor, samples: int) -> None:
        super().__init__(counts, samples, sparse=False)

    def loss(self, states: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(states @ self.items.weight.T, target)


class InBatchSoftmax(Way):
    """The other targets of the batch are the negatives, corrected by their popularity."""

    def loss(self, states: Tensor, target: Tensor) -> Tensor:
        logits = states @ self.items(target).T - self.counts[target].float().log()
        copies = (target[:, None] == target) & ~torch.eye(len(target), dtype=torch.bool)
        logits = logits.masked_fill(copies, -torch.inf)
        return functional.cross_entropy(logits, torch.arange(len(target)))


class UniformSoftmax(Way):
    """K negatives drawn uniformly, shared by the block."""

    def loss(self, states: Tensor, target: Tensor) -> Tensor:
        drawn = torch.randint(1, len(self.counts), (self.samples,))
        own = (states * self.items(target)).sum(1, keepdim=True)
        others = (states @ self.items(drawn).T).masked_fill(target[:, None] == drawn, -torch.inf)
        logits = torch.cat([own, others], 1)
        return functional.cross_entropy(logits, torch.zeros(len(target), dtype=torch.long))


class OneNegative(Way):
    """Binary cross entropy with one negative for each target, as SASRec was published."""

    def loss(self, states: Tensor, target: Tensor) -> Tensor:
        drawn = torch.randint(1, len(self.counts), target.shape)
        own, other = ((states * self.items(items)).sum(1) for items in (target, drawn))
        return -(functional.logsigmoid(own) + functional.logsigmoid(-other)).mean()


WAYS: dict[str, type[Way]] = {
    "BlackOut": BlackOut,
    "full softmax": FullSoftmax,
    "in-batch softmax": InBatchSoftmax,
    "uniform sampled softmax": UniformSoftmax,
    "BCE, one negative": OneNegative,
}


class Found(NamedTuple):
    """How good the lists of twenty are."""

    recall: float
    ndcg: float


def train(way: Way, sessions: Sessions, seconds: float, lr: float) -> tuple[Body, int]:
    """Trains for so much processor time; gives the body and the number of steps."""
    torch.manual_seed(1)
    body, random = Body(), np.random.default_rng(1)
    optimizer = blackout.Adam([*body.parameters(), *way.parameters()], lr=lr, clip=1.0)
    started, steps = time.process_time(), 0
    while True:
        for items, target in sessions.batches(BATCH, random):
            there = target > 0
            left = 1 - (time.process_time() - started) / seconds
            if left <= 0:
                return body, steps
            for group in optimizer.param_groups:
                group["lr"] = lr * left  # falls to 0 with the time
            loss = way.loss(body(way.items(items))[there], target[there])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1


@torch.no_grad()
def evaluate(body: Body, way: Way, sessions: Sessions, part: str, users: int) -> Found:
    """Recall@20 and NDCG@20 of the item held out, among all that the user does not have yet."""
    body.eval()
    chosen = np.random.default_rng(0).permutation(len(sessions.histories))[:users]
    recall = ndcg = 0.0
    for some in np.array_split(chosen, max(len(chosen) // 500, 1)):
        known, target = sessions.held_out(some, part)
        last = (known > 0).sum(1) - 1
        states = body(way.items(known))[torch.arange(len(known)), last]
        scores = states @ way.items.weight.T
        scores.scatter_(1, known, -torch.inf)  # item 0 is among them where a history is short
        scores[:, 0] = -torch.inf
        hit = scores.topk(20).indices == target[:, None]
        recall += float(hit.sum())
        ndcg += float((hit / torch.log2(torch.arange(20) + 2)).sum())
    body.train()
    return Found(recall / len(chosen), ndcg / len(chosen))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, help="file of lines: user item")
    parser.add_argument("--items", type=int, default=20_000, help="of made-up sessions")
    parser.add_argument("--users", type=int, default=50_000, help="of made-up sessions")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, for each way")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--lr", type=float, nargs="+", default=[0.001])
    parser.add_argument("--eval-users", type=int, default=10_000)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    torch.set_num_threads(1)  # processor time then is time
    sessions = (
        Sessions.read(options.data)
        if options.data
        else Sessions.made_up(options.items, options.users)
    )
    print(f"{len(sessions.histories):,} users, {sessions.n_items:,} items", flush=True)
    print(f"{'':24} {'lr':>6} {'steps':>7} {'valid':>6} {'recall@20':>10} {'NDCG@20':>8}")
    for name in options.ways:
        tried = []
        for lr in options.lr:
            torch.manual_seed(0)
            way = WAYS[name](sessions.counts(), options.samples)
            body, steps = train(way, sessions, options.seconds, lr)
            valid = evaluate(body, way, sessions, "valid", options.eval_users)
            test = evaluate(body, way, sessions, "test", options.eval_users)
            tried.append((valid.ndcg, lr, steps, test))
        valid_ndcg, lr, steps, test = max(tried)  # the rate that validation likes best
        figures = f"{valid_ndcg:6.3f} {test.recall:10.3f} {test.ndcg:8.3f}"
        print(f"{name:24} {lr:6g} {steps:7d} {figures}", flush=True)


if __name__ == "__main__":
    main()
