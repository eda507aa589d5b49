"""N-best lists: for each utterance the recogniser's hypotheses and their scores.

Scores are natural logarithms here, the higher the better, whatever the file they came from says;
:mod:`blackout.rescore.formats` translates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from blackout.errors import UserError
from blackout.text.words import split_words

__all__ = ["Format", "Hypothesis", "NBest", "Utterance", "parse_words", "split_words"]

Format = Literal["kaldi", "srilm", "espnet", "jsonl"]


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


def parse_words(text: str, where: str) -> tuple[str, ...]:
    """The words of a hypothesis or a reference, without the sentence marks around them."""
    words = split_words(text)
    if words and words[0] == "<s>":
        words = words[1:]
    if words and words[-1] == "</s>":
        words = words[:-1]
    for mark in ("<s>", "</s>"):
        if mark in words:
            raise UserError(f"{where}: a literal {mark} between the words")
    return words
