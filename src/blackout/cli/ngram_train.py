"""``blackout ngram train``: a Kneser-Ney model from text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from blackout.cli.common import Output, parse
from blackout.cli.stages import Stages
from blackout.config import ReadingConfig
from blackout.ngram import NGram, evaluate, train
from blackout.ngram.estimate import FALLBACK


@dataclass
class NGramTrainOptions:
    """Estimate a Kneser-Ney model: blackout ngram train --order 5 --train FILE --out X.arpa"""

    train: tuple[Path, ...]
    """Text, one sentence a line; one file or several."""
    out: Path
    """X.arpa, X.arpa.gz, or X.bin for the binary form."""
    test: Path | None = None
    """Report the perplexity of this text under the new model."""
    order: int = 5
    """Length of the longest n-grams, 1 to 6."""
    prune: tuple[int, ...] = ()
    """Drop n-grams whose count is not above the threshold of their order; the last threshold
    stands for all higher orders."""
    vocab: Path | None = None
    """A word a line: the words of the model; all others are <unk>."""
    discount_fallback: tuple[float, float, float] = FALLBACK
    """Discounts where there is too little data to estimate them."""
    strict_discounts: bool = False
    """Refuse too little data instead."""
    memory: str | None = None
    """For sorting, such as 800M; larger texts go on in temporary files. By default 4G, or half of
    the machine's memory where that is less."""
    temp_dir: Path | None = None
    """Folder for temporary files."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(NGramTrainOptions, "ngram train", arguments)
    output = options.output
    config = options.reading
    started = time.perf_counter()
    with Stages() as progress:
        estimate = train(
            options.train,
            options.out,
            order=options.order,
            prune=options.prune,
            vocab=options.vocab,
            discount_fallback=None if options.strict_discounts else options.discount_fallback,
            memory=options.memory,
            threads=options.threads,
            temp_dir=options.temp_dir,
            config=config,
            progress=progress,
        )
    seconds = time.perf_counter() - started
    for warning in estimate.warnings:
        output.say(f"warning: {warning}")
    for order, (count, amounts) in enumerate(
        zip(estimate.ngrams, estimate.discounts, strict=True), 1
    ):
        shown = " ".join(f"{amount:.4f}" for amount in amounts)
        output.say(f"{order}-grams      {count:>12,}   discounts {shown}")
    tokens = estimate.words + estimate.sentences
    output.say(f"words        {estimate.words:>12,}   in {estimate.sentences:,} sentences")
    output.say(f"time         {seconds:10.1f} s   {tokens / seconds:,.0f} words/s")
    perplexity = None
    if options.test is not None:
        perplexity = evaluate(
            NGram.load(options.out), options.test, config, threads=options.threads
        ).perplexity
        output.say(f"perplexity   {perplexity:12.2f}")
    output.result(
        {
            "ngrams": sum(estimate.ngrams),
            "ngrams_by_order": estimate.ngrams,
            "discounts": estimate.discounts,
            "warnings": estimate.warnings,
            "perplexity": perplexity,
            "words": estimate.words,
            "sentence_ends": estimate.sentences,
            "words_per_second": tokens / seconds,
            "model": str(options.out),
        }
    )
