"""Which labels fit a document? A hundred thousand to choose from, four losses at equal time.

    python examples/many_labels.py                                    # made-up documents
    python examples/many_labels.py --train train.txt --test test.txt  # your own

Extreme multi-label classification: a document has a few of very many labels. Files are in the
format of the Extreme Classification Repository. The network is the smallest that does it: word
vectors summed up, one layer, and a vector for each label. What differs is the loss alone; each way
gets the same network, the same optimiser and the same processor time, and of several rates the one
that documents held out from training like best. Evaluation ranks all labels: precision@k is the
share of the k best that are the document's.

With BlackOut it is ``head(states, labels)``, labels (B, L) filled up with -100: the mean over a
document's labels, none of them a negative of another.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import blackout
from documents import NONE, Batch, Documents

WIDTH, BATCH, BEST = 64, 128, (1, 3, 5)


class Body(nn.Module):
    """A document's words to its state (B, h)."""

    def __init__(self, n_words: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(n_words, WIDTH, mode="mean", sparse=True)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, batch: Batch) -> Tensor:
        states: Tensor = self.layer(self.words(batch.words, batch.offsets))
        return states + states.relu()


class Way(nn.Module):
    """A way to train: a vector and a bias for each label, and a loss."""

    sparse = True

    def __init__(self, counts: Tensor, samples: int) -> None:
        super().__init__()
        self.samples = samples
        self.head = blackout.BlackOut(
            WIDTH, len(counts), samples, counts=counts, bias=True, sparse=self.sparse
        )

    def loss(self, states: Tensor, labels: Tensor) -> Tensor:
        """BlackOut: K samples by popularity, shared by the batch."""
        return self.head(states, labels)[1]

    def logits(self, states: Tensor) -> Tensor:
        """Of all labels, for the ways that look at all."""
        return functional.linear(states, self.head.weight, self.head.bias)


class Softmax(Way):
    """The exact softmax, the mean over a document's labels."""

    sparse = False

    def loss(self, states: Tensor, labels: Tensor) -> Tensor:
        chosen = self.logits(states).log_softmax(1).gather(1, labels.clamp(min=0))
        there = labels != NONE
        each = chosen.masked_fill(~there, 0).sum(1) / there.sum(1).clamp(min=1)
        return -each[there.any(1)].mean()


class OneAgainstAll(Way):
    """A yes or no for each label, all of them looked at."""

    sparse = False

    def __init__(self, counts: Tensor, samples: int) -> None:
        super().__init__(counts, samples)
        assert self.head.bias is not None
        nn.init.constant_(self.head.bias, -float(np.log(len(counts))))  # hardly any label fits

    def loss(self, states: Tensor, labels: Tensor) -> Tensor:
        logits = self.logits(states)
        row, place = (labels != NONE).nonzero(as_tuple=True)
        return (functional.softplus(logits).sum() - logits[row, labels[row, place]].sum()) / len(
            row
        )


class SomeAgainst(Way):
    """A yes for each label, a no for K labels drawn uniformly, shared by the batch."""

    def loss(self, states: Tensor, labels: Tensor) -> Tensor:
        row, place = (labels != NONE).nonzero(as_tuple=True)
        true, drawn = labels[row, place], torch.randint(self.head.n_classes, (self.samples,))
        table, biases = self.head.table, self.head.biases
        assert biases is not None
        own = (states[row] * table(true)).sum(1) + biases(true)
        others = states @ table(drawn).T + biases(drawn)
        fits = (labels[:, :, None] == drawn).any(1)
        others = others.masked_fill(fits, -torch.inf)
        return (functional.softplus(-own).sum() + functional.softplus(others).sum()) / len(row)


WAYS: dict[str, type[Way]] = {
    "BlackOut": Way,
    "exact softmax": Softmax,
    "one against all": OneAgainstAll,
    "one against uniform": SomeAgainst,
}


def train(way: Way, documents: Documents, seconds: float, lr: float) -> tuple[Body, int]:
    """Trains for so much processor time; gives the body and the number of steps."""
    torch.manual_seed(1)
    body, random = Body(documents.n_words), np.random.default_rng(1)
    optimizer = blackout.Adam([*body.parameters(), *way.parameters()], lr=lr, clip=1.0)
    started, steps = time.process_time(), 0
    while True:
        for batch in documents.batches(BATCH, random):
            left = 1 - (time.process_time() - started) / seconds
            if left <= 0:
                return body, steps
            for group in optimizer.param_groups:
                group["lr"] = lr * left  # falls to 0 with the time
            loss = way.loss(body(batch), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1


@torch.no_grad()
def precision(body: Body, way: Way, documents: Documents) -> list[float]:
    """The share of the k best labels that are a document's, for each k of BEST."""
    right = torch.zeros(max(BEST))
    for chosen in np.array_split(np.arange(len(documents)), max(len(documents) // 500, 1)):
        batch = documents.batch(chosen)
        best = way.head.topk(body(batch), max(BEST)).indices
        right += (best[:, :, None] == batch.labels[:, None, :]).any(2).sum(0)
    return [float(right[:k].sum()) / (k * len(documents)) for k in BEST]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=Path, help="file of documents; without it made-up ones")
    parser.add_argument("--test", type=Path, help="file of documents")
    parser.add_argument("--labels", type=int, default=100_000, help="of made-up documents")
    parser.add_argument("--documents", type=int, default=100_000, help="made-up ones")
    parser.add_argument("--seconds", type=float, default=30.0, help="of training, for each way")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--lr", type=float, nargs="+", default=[0.003])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    if (options.train is None) != (options.test is None):
        parser.error("--train and --test go together")
    torch.set_num_threads(1)  # processor time then is time
    if options.train:
        documents, test = Documents.read(options.train), Documents.read(options.test)
    else:
        documents = Documents.made_up(options.labels, options.documents)
        test = Documents.made_up(options.labels, min(options.documents, 2000), seed=1)
    documents, valid = documents.parted(min(len(documents) // 10, 1000))
    print(f"{len(documents):,} documents, {documents.n_labels:,} labels", flush=True)
    print(f"{'':20} {'lr':>6} {'steps':>7} " + " ".join(f"{f'P@{k}':>6}" for k in BEST))
    for name in options.ways:
        tried = []
        for lr in options.lr:
            torch.manual_seed(0)
            way = WAYS[name](documents.counts(), options.samples)
            body, steps = train(way, documents, options.seconds, lr)
            tried.append((precision(body, way, valid), lr, steps, precision(body, way, test)))
        _, lr, steps, found = max(tried)
        figures = " ".join(f"{p:6.3f}" for p in found)
        print(f"{name:20} {lr:6g} {steps:7d} {figures}", flush=True)


if __name__ == "__main__":
    main()
