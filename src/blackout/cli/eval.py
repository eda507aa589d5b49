"""``blackout eval MODEL FILE``: exact perplexity of a text."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from blackout.cli.common import Output, parse
from blackout.config import TextConfig
from blackout.errors import UserError
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
    last: bool = False
    """Take the weights of the newest checkpoint instead of the best."""
    keep_empty: bool | None = None
    """Count empty lines as empty sentences; by default as in training."""
    skip_markers: bool | None = None
    """Drop literal sentence marks; by default as in training."""
    replace_invalid: bool | None = None
    """Read invalid UTF-8 as U+FFFD; by default as in training."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    device: str = "auto"
    """auto, cpu or cuda."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(EvalOptions, "eval", arguments)
    output = options.output
    if not options.model.is_dir():
        raise UserError(f"{options.model}: no such model folder")

    from blackout.evaluate.perplexity import evaluate  # PyTorch comes with it
    from blackout.models.saved import load, read_description
    from blackout.train.setup import choose_device, set_threads

    set_threads(options.threads)
    device = choose_device(options.device)
    config, vocab = read_description(options.model)
    with tempfile.TemporaryDirectory() as folder:
        text = text_config(config.text, options)
        shard = encode_file(options.file, vocab, text, Path(folder) / "text.shard", options.threads)
        model = load(options.model, which="last" if options.last else "best", device=str(device))
        with contextlib.ExitStack() as stack:
            dump = None
            if options.probs is not None:
                dump = stack.enter_context(_open_for_writing(options.probs))
            result = evaluate(model, shard, dump=dump)
    output.say(f"perplexity      {result.perplexity:.2f}")
    output.say(f"  without <unk> {result.perplexity_without_unk:.2f}")
    output.say(
        f"words           {result.words:,} ({result.unknown:,} unknown), "
        f"{result.sentence_ends:,} sentence ends"
    )
    output.say(f"speed           {result.words_per_second:,.0f} words/s")
    output.result(dataclasses.asdict(result))


def text_config(trained: TextConfig, options: EvalOptions) -> TextConfig:
    """How the model's training text was read, with what the command line says instead."""
    names = ("keep_empty", "skip_markers", "replace_invalid")
    given = {name: getattr(options, name) for name in names}
    return dataclasses.replace(trained, **{k: v for k, v in given.items() if v is not None})


def _open_for_writing(path: Path):  # type: ignore[no-untyped-def]
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
