"""``blackout convert-rnnlm FILE OUT``: a model of the paper's own program as a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from blackout.cli.common import Output, parse
from blackout.cli.stages import Stages


@dataclass
class ConvertOptions:
    """Convert a model file of rnnlm, the paper's program: blackout convert-rnnlm FILE OUT"""

    file: Annotated[Path, tyro.conf.Positional]
    """The file that program wrote (its option --rnnlm)."""
    out: Annotated[Path, tyro.conf.Positional]
    """Folder for the model; eval, mix, rescore and generate read it."""
    train: Path | None = None
    """The text the model was trained on, to count its words: the file has no counts, and without
    them each word counts once. Only further training looks at them."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(ConvertOptions, "convert-rnnlm", arguments)
    output = options.output
    from blackout.models.convert import OOV_WORD, convert_rnnlm  # PyTorch comes with it

    with Stages() as stages:
        done = convert_rnnlm(
            options.file,
            options.out,
            train=options.train,
            progress=lambda now, total: stages("reading", now, total),
        )
    output.say(f"vocabulary      {done.vocab_size:,} words")
    output.say(f"hidden units    {done.hidden:,}")
    output.say(f"parameters      {done.parameters:,}")
    if done.literal_unk:
        output.say(f"its text had <unk> as a word: its own unknown word is now {OOV_WORD}")
    output.say(f"model           {options.out}")
    output.result({**asdict(done), "model": str(options.out)})
