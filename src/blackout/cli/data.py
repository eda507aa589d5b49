"""``blackout data``: a public corpus, downloaded and checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from blackout.cli.common import Output, parse
from blackout.text.catalogue import CORPORA
from blackout.text.download import Report
from blackout.text.fetch import fetch, is_complete


@dataclass
class DataOptions:
    """Download a public corpus: blackout data NAME [--out DIR]

    Gives the files train, valid and test (amazon-video: interactions). A broken download goes on
    with the same command.
    """

    name: Annotated[
        Literal["rnnlm-small", "wikitext-2", "billion", "amazon-video"], tyro.conf.Positional
    ]
    """The small data set of the RNNLM toolkit (0.4 MB), WikiText-2 (13 MB; use it with
    --keep-empty), the billion-word benchmark (1.8 GB, 4 GB unpacked), or what users bought, for
    examples/recommender.py (3 MB)."""
    out: Path | None = None
    """Folder for the files; by default data/NAME."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(DataOptions, "data", arguments)
    output, corpus = options.output, CORPORA[options.name]
    folder = options.out or Path("data") / corpus.name
    if is_complete(corpus, folder):
        paths = {part.name: folder / part.name for part in corpus.parts}
        output.say(f"{corpus.name} is complete already")
    else:
        paths = fetch(corpus, folder, show_progress())
    for name, path in paths.items():
        output.say(f"{name:<6} {path}  {path.stat().st_size:,} bytes")
    if corpus.advice:
        output.say(corpus.advice)
    output.result({"path": str(folder), **{name: str(path) for name, path in paths.items()}})


def show_progress() -> Report:
    """Lines on standard error: on a terminal one that is rewritten, elsewhere one a while."""
    terminal = sys.stderr.isatty()
    interval, shown = (0.2 if terminal else 15.0), time.monotonic()

    def report(done: int, total: int | None) -> None:
        nonlocal shown
        now = time.monotonic()
        finished = done == total
        if now - shown < interval and not (finished and terminal):
            return
        shown = now
        share = f" of {total / 1e6:,.1f} MB, {done / total:.0%}" if total else " MB"
        end = "\n" if finished or not terminal else ""
        line = f"downloaded {done / 1e6:,.1f}{share}"
        print(f"\r{line}\033[K" if terminal else line, end=end, file=sys.stderr, flush=True)

    return report
