"""JSON that every reader accepts, and JSON from anybody.

Written: an infinity or a NaN, which JSON has not, is null; half a character (of a name that is not
UTF-8), which strict readers refuse, is U+FFFD. Read: whatever is wrong is a ValueError.
"""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

R = TypeVar("R")

_HALF = re.compile("[\ud800-\udfff]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE_BYTES = re.compile(_SURROGATE.pattern.encode())


def to_json(values: Mapping[str, Any]) -> str:
    """One line of JSON.

    >>> to_json({"words": 3, "perplexity": math.inf, "rows": [{"speed": math.nan}]})
    '{"words": 3, "perplexity": null, "rows": [{"speed": null}]}'
    >>> print(json.loads(to_json({"name": "caf\\udce9"}))["name"])
    caf�
    """
    return json.dumps(_plain(values), allow_nan=False)


def from_json(text: str | bytes) -> Any:
    """The value of a JSON text; a ValueError if it is none, nests too deep or has half a character.

    >>> from_json(b'{"words": 3}')
    {'words': 3}
    >>> from_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: brackets inside brackets inside brackets without end
    """
    try:
        value = json.loads(text)
        if _mentions_half(text):
            _require_whole(value)
    except RecursionError:
        raise ValueError("brackets inside brackets inside brackets without end") from None
    return value


def record(cls: type[R], values: Any) -> R:
    """A dataclass from the fields of a JSON object; a ValueError where one does not fit its type.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     x: int
    ...     name: str | None = None
    >>> record(Point, {"x": 3})
    Point(x=3, name=None)
    >>> record(Point, {"x": "three"})
    Traceback (most recent call last):
    ValueError: x is 'three'
    """
    if not isinstance(values, dict):
        raise ValueError("not an object")
    hints = typing.get_type_hints(cls)
    for name, value in values.items():
        if name not in hints or not _fits(value, hints[name]):
            raise ValueError(f"{name} is {value!r}"[:80])
    try:
        return cls(**values)
    except TypeError as error:  # one is missing
        raise ValueError(str(error)) from None


def _fits(value: object, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if hint is float:
        return type(value) in (int, float)
    return type(value) is (origin or hint)


def _mentions_half(text: str | bytes) -> bool:
    """Whether there is any surrogate in it; pairs of them, which are whole, are rare too."""
    found = _SURROGATE.search(text) if isinstance(text, str) else _SURROGATE_BYTES.search(text)
    return found is not None


def _require_whole(value: Any) -> None:
    if isinstance(value, str) and _HALF.search(value):
        raise ValueError("half a character (a lone surrogate) in a text")
    if isinstance(value, Mapping):
        for item in (*value.keys(), *value.values()):
            _require_whole(item)
    elif isinstance(value, list):
        for item in value:
            _require_whole(item)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
