"""How fast n-best lists are rescored, beside exact evaluation of the distinct words in them.

    python benchmarks/rescore_speed.py [--utterances 1000] [--hypotheses 100] [--words 20]

Makes up lists whose hypotheses differ in a few words, and an untrained network. Batches of them
are rescored, from words as strings to totals, in turns with the exact evaluation (hidden states
included) of as many words as the batch has distinct ones, a word being distinct by itself and all
words before it. Prints both times, their ratio, and what scoring every hypothesis would take.
"""

from __future__ import annotations

import argparse
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

from blackout.bench.words import draw_words, zipf_counts
from blackout.config import Config, TextConfig
from blackout.models.language_model import LanguageModel
from blackout.models.saved import new_model
from blackout.rescore.nbest import Hypothesis, NBest, Utterance
from blackout.rescore.score import rescore
from blackout.runtime import set_threads
from blackout.score.perplexity import log_probabilities
from blackout.text.shards import Shard
from blackout.text.source import SourceId
from blackout.text.vocab import EOS, Vocab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--utterances", type=int, default=1000)
    parser.add_argument("--hypotheses", type=int, default=100, help="of each utterance")
    parser.add_argument("--words", type=int, default=20, help="of each hypothesis")
    parser.add_argument("--changes", type=int, default=3, help="words changed at most")
    parser.add_argument("--turn", type=int, default=10, help="utterances rescored in one turn")
    parser.add_argument("--vocab-size", type=int, default=64000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--cell", default="sigmoid")
    parser.add_argument("--threads", type=int, default=0, help="0 for all cores")
    args = parser.parse_args()
    threads = set_threads(args.threads)
    counts = zipf_counts(args.vocab_size)
    vocab = Vocab(["</s>", "<unk>", *(f"w{i}" for i in range(2, args.vocab_size))], counts)
    config = Config.from_dict({"model": {"hidden": args.hidden, "cell": args.cell}})
    model = new_model(config, vocab).eval()
    nbest = made_up_lists(args, vocab, counts)
    print(
        f"{args.utterances:,} utterances × {args.hypotheses} hypotheses × {args.words} words, "
        f"V {args.vocab_size:,}, h {args.hidden}, {args.cell}, {threads} threads"
    )
    measure(model, nbest, counts, args)


def made_up_lists(args: Namespace, vocab: Vocab, counts: np.ndarray) -> NBest:
    """Each hypothesis is the utterance's first with some words replaced, anywhere in it."""
    rng = np.random.default_rng(1)
    shape = (args.utterances, args.hypotheses)
    words = np.maximum(draw_words(counts, (args.utterances, args.words), 1), 2)
    others = np.maximum(draw_words(counts, (*shape, args.words), 2), 2)
    changes = rng.integers(1, args.changes + 1, shape)
    changes[:, 0] = 0
    order = rng.random((*shape, args.words)).argsort(-1)
    texts = np.where(order < changes[..., None], others, words[:, None])
    lists = []
    for number, hypotheses in enumerate(texts.tolist()):
        strings = [tuple(map(vocab.word, text)) for text in hypotheses]
        scores = rng.normal(-100, 5, len(strings)).tolist()
        items = [Hypothesis(" ".join(s), s, a) for s, a in zip(strings, scores, strict=True)]
        lists.append(Utterance(f"utt{number}", items))
    return NBest("jsonl", 1.0, lists)


class Stopwatch:
    """Seconds by the clock and of processor time: the second hardly minds a busy machine."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self._started[0]
        self.cpu += time.process_time() - self._started[1]


def measure(model: LanguageModel, nbest: NBest, counts: np.ndarray, args: Namespace) -> None:
    batches = [
        NBest("jsonl", 1.0, nbest.utterances[start : start + args.turn])
        for start in range(0, len(nbest.utterances), args.turn)
    ]
    rescore(model, NBest("jsonl", 1.0, nbest.utterances[:1]))  # warm up
    rescoring, exact = Stopwatch(), Stopwatch()
    tokens = prefixes = distinct = 0
    for batch in batches:
        with rescoring:
            scored = rescore(model, batch)
        tokens += len(scored.network)
        prefixes += scored.prefixes
        distinct += scored.pairs
        shard = made_up_text(counts, scored.pairs, args.words)
        with exact:
            for _ in log_probabilities(model, shard):
                pass
    ratios = rescoring.wall / exact.wall, rescoring.cpu / exact.cpu
    print(f"words and sentence ends   {tokens:12,}")
    print(f"  distinct after prefix   {distinct:12,}")
    print(f"  distinct prefixes       {prefixes:12,}")
    print(f"rescoring                 {rescoring.wall:12.1f} s {rescoring.cpu:10.1f} s processor")
    print(f"exact, distinct words     {exact.wall:12.1f} s {exact.cpu:10.1f} s processor")
    print(f"ratio                     {ratios[0]:12.3f}   {ratios[1]:10.3f}")
    print(f"exact, every word (est.)  {exact.wall * tokens / distinct:12.1f} s")


def made_up_text(counts: np.ndarray, tokens: int, words: int) -> Shard:
    """Sentences of so many words, in all as many tokens."""
    text = np.maximum(draw_words(counts, (tokens,), 3), 2).astype(np.uint32)
    text[words :: words + 1] = EOS
    text[-1] = EOS
    offsets = np.concatenate([[0], np.flatnonzero(text == EOS) + 1]).astype(np.uint64)
    nowhere = SourceId(size=0, mtime_ns=0, checksum="", read_ns=0)
    return Shard(Path(), text, offsets, 0, "", nowhere, TextConfig(), None)


if __name__ == "__main__":
    main()
