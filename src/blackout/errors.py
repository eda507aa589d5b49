"""The one exception a user can cause; the command line prints it as a single line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["UserError", "naming"]


class UserError(ValueError):
    """Something outside the program is wrong: a file, a line, an option or a number.

    The message names it in one line, without the reader having to know the code. A ``ValueError``,
    so that programs which expect one of a library need no import of ours.
    """


@contextmanager
def naming(place: str | Path) -> Iterator[None]:
    """What goes wrong inside is said to be so at this place.

    >>> with naming("model.safetensors"):
    ...     raise UserError("no tree")
    Traceback (most recent call last):
    blackout.errors.UserError: model.safetensors: no tree
    """
    try:
        yield
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
