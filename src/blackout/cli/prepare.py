"""``blackout prepare``: vocabulary and token shards, once for many runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blackout.cli.common import Output, parse
from blackout.config import TextConfig
from blackout.run_folder import RunFolder
from blackout.text.prepared import prepare
from blackout.text.source import Progress


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
    with RunFolder(options.out).held(), progress_bar() as progress:
        prepared = prepare(
            options.train,
            options.out,
            options.text,
            valid=options.valid,
            test=options.test,
            threads=options.threads,
            progress=progress,
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


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A bar of bytes read on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)
