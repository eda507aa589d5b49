"""Perplexity of a text under an n-gram model, with and without its unknown words."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

from blackout import _native
from blackout.config import ReadingConfig
from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.ngram.model import NGram, refusing
from blackout.perplexity import Perplexity
from blackout.text.source import Progress, scan, thread_count

__all__ = ["Perplexity", "evaluate"]


def evaluate(
    model: NGram,
    text: str | Path,
    config: ReadingConfig | None = None,
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
    config = config or ReadingConfig()
    evaluator = _native.NGramEvaluator(
        model._native,
        **config.reading(),
        threads=thread_count(threads),
        dump=dump is not None,
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(refusing(model.path))
        file = stack.enter_context(replacing(dump)) if dump is not None else None

        def write() -> None:
            if file is not None:
                file.write(evaluator.take_lines())

        scan(text, evaluator, used=write, progress=progress)
    tokens, sentences, unknown, log10, log10_unknown = evaluator.totals()
    if sentences == 0:
        raise UserError(f"{text}: no sentences in it")
    total, unknown_total = (value * math.log(10) for value in (log10, log10_unknown))
    seconds = time.perf_counter() - started
    return Perplexity.of(total, unknown_total, tokens, sentences, unknown, seconds)
