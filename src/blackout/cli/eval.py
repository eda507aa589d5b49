"""``blackout eval MODEL FILE``: exact perplexity of a text."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Literal

import tyro

from blackout.cli.common import Output, parse
from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.text.corpus import encode_file

_TEXT_OPTIONS = ("keep_empty", "skip_markers", "replace_invalid")


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
    keep_empty: bool = False
    """Count empty lines as empty sentences; by default as in training."""
    skip_markers: bool = False
    """Drop literal sentence marks; by default as in training."""
    replace_invalid: bool = False
    """Read invalid UTF-8 as U+FFFD; by default as in training."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(EvalOptions, "eval", arguments)
    if not options.model.is_dir():
        raise UserError(f"{options.model}: no such model folder")

    from blackout.evaluate.perplexity import evaluate  # PyTorch comes with it
    from blackout.models.saved import load, read_description
    from blackout.train.setup import choose_device, set_threads

    config, vocab = read_description(options.model)
    options = parse(EvalOptions, "eval", arguments, default=_as_in_training(config.text))
    output = options.output
    set_threads(options.threads)
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        text = dataclasses.replace(
            config.text, **{name: getattr(options, name) for name in _TEXT_OPTIONS}
        )
        shard = encode_file(options.file, vocab, text, Path(folder) / "text.shard", options.threads)
        model = load(options.model, which="last" if options.last else "best", device=str(device))
        with _open_for_writing(options.probs) as dump:
            result = evaluate(model, shard, dump=dump)
    output.say(f"perplexity      {result.perplexity:.2f}")
    output.say(f"  without <unk> {result.perplexity_without_unk:.2f}")
    output.say(
        f"words           {result.words:,} ({result.unknown:,} unknown), "
        f"{result.sentence_ends:,} sentence ends"
    )
    output.say(f"speed           {result.words_per_second:,.0f} words/s")
    output.result(dataclasses.asdict(result))


def _as_in_training(text: TextConfig) -> EvalOptions:
    """Options whose defaults say how the model's training text was read."""
    read = {name: getattr(text, name) for name in _TEXT_OPTIONS}
    return EvalOptions(model=tyro.MISSING, file=tyro.MISSING, **read)


@contextlib.contextmanager
def _open_for_writing(path: Path | None) -> Iterator[IO[str] | None]:
    if path is None:
        yield None
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
