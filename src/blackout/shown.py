"""Text from outside that a person is shown: it shows itself and does nothing else.

A file name or a word of somebody's model may hold the escape sequences of a terminal, which can
hide a line, rename the window or type a command. Whatever is said to people goes through here.
"""

from __future__ import annotations

import re

__all__ = ["on_one_line", "visible"]

# C0 without tab and line feed, DEL, C1, and halves of characters (names that are not UTF-8)
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def visible(text: str) -> str:
    r"""The text with control characters written out; line breaks and tabs stay.

    >>> print(visible("\x1b[2Jgone\rback\n\u00e9"))
    \x1b[2Jgone\x0dback
    é
    """
    return _ACTING.sub(_written_out, text)


def on_one_line(error: object) -> str:
    r"""A message as one line, whatever names are in it.

    >>> print(on_one_line("a\n b\x1b[A"))
    a b\x1b[A
    """
    return visible(" ".join(str(error).split()))


def _written_out(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
