"""``blackout ngram eval``: perplexity of a text under an n-gram model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from blackout.cli.common import Output, parse
from blackout.config import ReadingConfig
from blackout.ngram import NGram, evaluate


@dataclass
class NGramEvalOptions:
    """Perplexity of a text under an n-gram model: blackout ngram eval X.arpa FILE"""

    model: Annotated[Path, tyro.conf.Positional]
    """ARPA text of any program, packed or not, or the binary form."""
    file: Annotated[Path, tyro.conf.Positional]
    """Text, one sentence a line."""
    probs: Path | None = None
    """Write "word<TAB>log10-probability" for each word to this file."""
    save: Path | None = None
    """Write the model in the binary form to this file; it loads at once."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(NGramEvalOptions, "ngram eval", arguments)
    output = options.output
    model = NGram.load(options.model)
    if options.save is not None:
        model.save(options.save)
    config = options.reading
    result = evaluate(model, options.file, config, dump=options.probs, threads=options.threads)
    output.say(str(result))
    output.result(
        {
            **dataclasses.asdict(result),
            "order": model.order,
            "ngrams": sum(model.ngrams),
            "ngrams_by_order": model.ngrams,
        }
    )
