"""``blackout generate MODEL``: text from a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from blackout.cli.common import Output, parse
from blackout.cli.on_ranks import join
from blackout.errors import UserError


@dataclass
class GenerateOptions:
    """Text from a model: blackout generate MODEL --prompt "The house" """

    model: Annotated[Path, tyro.conf.Positional]
    """Folder of a model or a run."""
    prompt: str = ""
    """Words to begin with."""
    words: int = 100
    """How many words to add, sentence ends counted."""
    temperature: float = 1.0
    """Below 1 safer, above 1 bolder, 0 always the most probable word."""
    top_k: int = 0
    """Choose among the k most probable words; 0 for all."""
    seed: int = 1
    """The same seed gives the same text."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(GenerateOptions, "generate", arguments)
    if not options.model.is_dir():
        raise UserError(f"{options.model}: no such model folder")

    from blackout.models.saved import load
    from blackout.score.generate import generate  # PyTorch comes with it

    _, ranks = join()
    text = generate(
        load(options.model, process_group=ranks),
        prompt=options.prompt,
        words=options.words,
        temperature=options.temperature,
        top_k=options.top_k,
        seed=options.seed,
    )
    options.output.say(text)
    options.output.result({"text": text})
