"""``blackout prepare``: vocabulary and token shards, once for many runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from blackout.cli.common import Output, parse
from blackout.config import TextConfig
from blackout.text.prepared import prepare


@dataclass
class PrepareOptions:
    """Make vocabulary and token shards: blackout prepare --train FILE --out DIR

    Runs then take them with: blackout train --prepared DIR
    """

    train: Path
    """Text to train on, one sentence a line."""
    out: Path
    """Folder for vocab.txt and the shards."""
    valid: Path | None = None
    """Validation text."""
    test: Path | None = None
    """Test text."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    text: TextConfig = field(default_factory=TextConfig)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(PrepareOptions, "prepare", arguments)
    output = options.output
    started = time.perf_counter()
    prepared = prepare(
        options.train,
        options.out,
        options.text,
        valid=options.valid,
        test=options.test,
        threads=options.threads,
    )
    seconds = time.perf_counter() - started
    shard = prepared.shard("train")
    tokens, types = len(shard.tokens), shard.types or 0
    output.say(
        f"tokens       {tokens:,} in {shard.sentences:,} sentences ({shard.unknown:,} unknown)"
    )
    output.say(f"types        {types:,}")
    output.say(f"vocabulary   {len(prepared.vocab):,} words, {options.out / 'vocab.txt'}")
    output.say(f"time         {seconds:.1f} s")
    output.result(
        {
            "tokens": tokens,
            "types": types,
            "vocab_size": len(prepared.vocab),
            "sentences": shard.sentences,
            "unknown": shard.unknown,
            "seconds": seconds,
        }
    )
