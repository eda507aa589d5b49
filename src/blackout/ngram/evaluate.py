"""Perplexity of a text under an n-gram model, with and without its unknown words."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from blackout import _native
from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.ngram.model import NGram
from blackout.text.source import Progress, scan, thread_count

__all__ = ["Perplexity", "evaluate"]


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-probability over all words and sentence ends of a text."""

    perplexity: float
    perplexity_without_unk: float
    words: int
    """Words, unknown ones among them, sentence ends not."""
    sentence_ends: int
    unknown: int
    words_per_second: float
    """Scored words and sentence ends, a second."""


def evaluate(
    model: NGram,
    text: str | Path,
    config: TextConfig | None = None,
    *,
    dump: str | Path | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Perplexity:
    """Scores a text file; ``dump`` gets a line ``word<TAB>log10-probability`` for each word.

    Sentence ends have a line each, ``</s>``; a word the model does not know appears as
    ``<unk>``.

    >>> import tempfile
    >>> from blackout.ngram import train
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "text").write_text("the cat sat\\nthe cat ran\\nthe end\\n")
    >>> _ = train(folder / "text", folder / "model.arpa", order=2)
    >>> result = evaluate(NGram.load(folder / "model.arpa"), folder / "text")
    >>> result.words, result.sentence_ends, result.unknown
    (8, 3, 0)
    """
    started = time.perf_counter()
    config = config or TextConfig()
    evaluator = _native.NGramEvaluator(
        model._native,
        keep_empty=config.keep_empty,
        skip_markers=config.skip_markers,
        replace_invalid=config.replace_invalid,
        threads=thread_count(threads),
        dump=dump is not None,
    )
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_open(Path(dump))) if dump is not None else None

        def write() -> None:
            if file is not None:
                file.write(evaluator.take_lines())

        scan(text, evaluator, used=write, progress=progress)
    tokens, sentences, unknown, log10, log10_unknown = evaluator.totals()
    if sentences == 0:
        raise UserError(f"{text}: no sentences in it")
    return Perplexity(
        perplexity=_perplexity(log10, tokens),
        perplexity_without_unk=_perplexity(log10 - log10_unknown, tokens - unknown),
        words=tokens - sentences,
        sentence_ends=sentences,
        unknown=unknown,
        words_per_second=tokens / max(time.perf_counter() - started, 1e-9),
    )


def _perplexity(log10: float, count: int) -> float:
    mean = -log10 / count if count else math.nan
    return 10.0**mean if mean < 300 else math.inf


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("wb")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
