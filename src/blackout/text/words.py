"""The words of text that did not come from a file: the same as the native reader finds in one."""

from __future__ import annotations

import re
import sys

from blackout.errors import UserError
from blackout.text.vocab import EOS_WORD

__all__ = ["split_sentences", "split_words"]

_WORD = re.compile(r"[^ \t\n\v\f\r]+")  # as in text files: no other space separates words
_MARKS = ("<s>", EOS_WORD)


def split_words(text: str) -> tuple[str, ...]:
    """The words of a line; equal words are one string, since lists repeat themselves."""
    return tuple(map(sys.intern, _WORD.findall(text)))


def split_sentences(text: str, *, open_end: bool = False) -> list[str]:
    """The words of a text, ``</s>`` behind each line that has words.

    ``open_end``: the last line goes on, so nothing ends it. A literal mark of a sentence's
    beginning or end and a NUL byte are refused, as in files.

    >>> split_sentences("the cat\\n\\nthe  end")
    ['the', 'cat', '</s>', 'the', 'end', '</s>']
    >>> split_sentences("the cat\\nthe", open_end=True)
    ['the', 'cat', '</s>', 'the']
    """
    words: list[str] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        found = split_words(line)
        if "\0" in line:
            raise UserError(f"line {number}: a NUL byte")
        for mark in _MARKS:
            if mark in found:
                raise UserError(f"line {number}: a literal {mark} between the words")
        words += found
        if found and not (open_end and number == len(lines)):
            words.append(EOS_WORD)
    return words
