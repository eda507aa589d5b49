"""One list of options for all layers: a subclass writes down its own, ``help`` shows them all.

>>> class Base:
...     def __init__(self, size: int, *, colour: str = "red") -> None:
...         '''``colour``: of the paint.'''
>>> class Derived(Base):
...     @takes_options_of(Base)
...     def __init__(self, size: int, *, legs: int = 4, **options: Any) -> None:
...         '''``legs``: how many.'''
>>> import inspect
>>> inspect.signature(Derived)
<Signature (size: 'int', *, legs: 'int' = 4, colour: 'str' = 'red') -> 'None'>
>>> print(inspect.getdoc(Derived.__init__))
``legs``: how many.
``colour``: of the paint.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from operator import index
from typing import SupportsFloat, SupportsIndex, TypeVar

from blackout.errors import UserError

_Method = TypeVar("_Method", bound=Callable[..., None])


def takes_options_of(base: type) -> Callable[[_Method], _Method]:
    """For an ``__init__`` whose ``**options`` go to that of ``base``: it shows them as its own."""

    def show(method: _Method) -> _Method:
        mine = inspect.signature(method)
        inherited = inspect.signature(base.__init__)  # type: ignore[misc]
        named = [p for p in mine.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [
            p
            for p in inherited.parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.name not in mine.parameters
        ]
        method.__signature__ = mine.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
        texts = (inspect.getdoc(method), inspect.getdoc(base.__init__))  # type: ignore[misc]
        method.__doc__ = "\n".join(text for text in texts if text)
        return method

    return show


def require_whole(name: str, value: object, least: int) -> None:
    """Refuses an option that is no whole number, or a smaller one."""
    if not isinstance(value, SupportsIndex):
        raise UserError(f"{name} is {value!r}, must be a whole number")
    if index(value) < least:
        raise UserError(f"{name} is {value!r}, must be at least {least}")


def require_number(name: str, value: object, fits: Callable[[float], bool], expected: str) -> None:
    """Refuses an option that is no number, or one that does not fit."""
    if not isinstance(value, SupportsFloat) or not fits(float(value)):
        raise UserError(f"{name} is {value!r}, must be {expected}")


def require_one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Refuses an option that is none of those known."""
    if value not in (names := list(known)):
        raise UserError(f"{name} is {value!r}, must be one of {', '.join(names)}")
