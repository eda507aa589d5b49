"""N-best lists: for each utterance the recogniser's hypotheses and their scores.

Scores are natural logarithms here, the higher the better, whatever the file they came from says;
:mod:`blackout.rescore.formats` translates.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from blackout.errors import UserError

__all__ = ["Format", "Hypothesis", "NBest", "Utterance", "parse_words", "split_words"]

Format = Literal["kaldi", "srilm", "espnet", "jsonl"]

_WORD = re.compile(r"[^ \t\n\v\f\r]+")  # as in text files: no other space separates words


@dataclass
class Hypothesis:
    """One hypothesis: its text as the list has it, and its scores."""

    text: str
    words: tuple[str, ...]
    """Its words, without sentence marks at either end."""
    acoustic: float = 0.0
    lm: float = 0.0
    """The language model's score: the recogniser's, or after rescoring the new one."""
    total: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)
    """What only the list's own format knows."""


@dataclass
class Utterance:
    """An utterance and at least one hypothesis."""

    name: str
    hypotheses: list[Hypothesis]
    source: str = ""
    """The name of its file, where each utterance has one."""


@dataclass
class NBest:
    """The lists of many utterances, and the format they came in."""

    format: Format
    unit: float
    """The natural logarithm of the base of the file's scores."""
    utterances: list[Utterance]
    single: bool = False
    """Whether it was one file where the format also has folders."""

    @property
    def hypotheses(self) -> Iterable[Hypothesis]:
        """All hypotheses, utterance by utterance."""
        return (h for utterance in self.utterances for h in utterance.hypotheses)


def split_words(text: str) -> tuple[str, ...]:
    """The words of a line; equal words are one string, since lists repeat themselves."""
    return tuple(map(sys.intern, _WORD.findall(text)))


def parse_words(text: str, path: Path, line: int) -> tuple[str, ...]:
    """The words of a hypothesis or a reference, without the sentence marks around them."""
    words = split_words(text)
    if words and words[0] == "<s>":
        words = words[1:]
    if words and words[-1] == "</s>":
        words = words[:-1]
    for mark in ("<s>", "</s>"):
        if mark in words:
            raise UserError(f"{path}: line {line}: a literal {mark} between the words")
    return words
