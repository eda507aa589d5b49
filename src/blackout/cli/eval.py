"""``blackout eval MODEL FILE``: exact perplexity of a text."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from blackout.cli.common import Computing, Output, open_for_writing, parse
from blackout.config import ReadingConfig
from blackout.errors import UserError
from blackout.run_folder import RunFolder
from blackout.text.corpus import encode_file


@dataclass
class EvalOptions:
    """Exact perplexity of a text under a model: blackout eval MODEL FILE"""

    model: Annotated[Path, tyro.conf.Positional]
    """Folder of a model or a run."""
    file: Annotated[Path, tyro.conf.Positional]
    """Text, one sentence a line."""
    probs: Path | None = None
    """Write "word<TAB>log10-probability" for each word to this file."""
    unnormalised: bool = False
    """Also score without the sum over the vocabulary, and say how far off that is; for models that
    normalise themselves (losses self-normalised and nce)."""
    computing: Computing = field(default_factory=Computing)
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(EvalOptions, "eval", arguments)
    if not options.model.is_dir():
        raise UserError(f"{options.model}: no such model folder")

    from blackout.score.perplexity import evaluate  # PyTorch comes with it
    from blackout.score.unnormalised import Unnormalised

    about = RunFolder(options.model).description()
    as_in_training = EvalOptions(
        model=tyro.MISSING, file=tyro.MISSING, reading=ReadingConfig(**about.config.text.reading())
    )
    options = parse(EvalOptions, "eval", arguments, default=as_in_training)
    output = options.output
    threads = options.computing.threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.shard"
        shard = encode_file(options.file, about.vocab, options.reading, path, threads)
        model = options.computing.load(options.model)
        beside = Unnormalised(model, shard) if options.unnormalised else None
        with open_for_writing(options.probs) as dump:
            watch = None if beside is None else beside.add
            result = evaluate(model, shard, dump=dump, watch=watch).checked(options.file)
    output.say(str(result))
    if beside is not None:
        output.say(str(beside))
    more = {} if beside is None else beside.result()
    output.result({**dataclasses.asdict(result), **more})
