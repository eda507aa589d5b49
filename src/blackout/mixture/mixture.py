"""Models together: loaded, brought over one vocabulary, tuned on one text, measured on another.

    mixture = Mixture([("network", load("run")), ("5-gram", NGram.load("5-gram.arpa"))])
    fit, _ = mixture.tune("valid.txt")
    mixture.evaluate("test.txt", fit.weights).perplexity

The command line, the demo and the studies of the paper all go this way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from blackout.config import ReadingConfig
from blackout.mixture.arithmetic import Fit, Floats
from blackout.mixture.components import (
    NetworkComponent,
    NGramComponent,
    Text,
    Unknown,
    choose_reference,
)
from blackout.mixture.evaluate import Component, Mixed, Part, evaluate, tune
from blackout.models.language_model import LanguageModel
from blackout.ngram import NGram

__all__ = ["Mixture"]


class Mixture:
    """Models with the names that tables and messages call them by.

    ``unknown``: how the ``<unk>`` of a network is spread over the words that it lacks. ``reading``:
    how texts are read. A mixture without models is one of dumps alone.
    """

    def __init__(
        self,
        models: Sequence[tuple[str, LanguageModel | NGram]],
        *,
        unknown: Unknown = "unigram",
        reading: ReadingConfig | None = None,
        threads: int = 0,
    ) -> None:
        self._reading, self._threads = reading, threads
        self.components: list[Component] = []
        if not models:
            return
        self._reference = reference = choose_reference(
            [model for _, model in models if not isinstance(model, NGram)],
            [model for _, model in models if isinstance(model, NGram)],
        )
        self.components = [
            NGramComponent(name, model, reference, unknown)
            if isinstance(model, NGram)
            else NetworkComponent(name, model, reference, unknown)
            for name, model in models
        ]

    def tune(self, text: str | Path | None, dumps: Sequence[Path] = ()) -> tuple[Fit, Floats]:
        """The weights that suit a text best, and the log-probabilities (n, M) they come from.

        ``dumps``: what other models gave the words of the text; further components.
        """
        with self._part(text, dumps) as part:
            return tune(part)

    def evaluate(
        self,
        text: str | Path | None,
        weights: Floats,
        dumps: Sequence[Path] = (),
        dump: IO[str] | None = None,
    ) -> Mixed:
        """Perplexity of a text; ``dump`` takes a line "word<TAB>log10-probability" a word."""
        with self._part(text, dumps) as part:
            return evaluate(part, weights, dump)

    @contextmanager
    def _part(self, text: str | Path | None, dumps: Sequence[Path]) -> Iterator[Part]:
        if text is None or not self.components:
            yield Part([], dumps)
            return
        with tempfile.TemporaryDirectory() as folder:
            encoded = Text(Path(text), Path(folder), self._reference, self._reading, self._threads)
            yield Part(self.components, dumps, encoded)
