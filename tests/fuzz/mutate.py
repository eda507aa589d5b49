"""Changes that leave the frame of a file whole: one value of the JSON inside becomes another.

Bytes that are changed blindly seldom leave JSON behind, and what is no JSON is refused at once, so
a fuzzer would hardly ever get past that. Where JSON lies in a file is its target's ``form``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Literal

from blackout.text.shards import HEADER_BYTES

__all__ = ["Form", "with_another_value"]

Form = Literal["", "json", "lines", "question", "tensors", "shard"]
"""Nowhere; the whole file; each line; behind the first byte; the header of a tensor file; that of a
shard."""

_INSIDE = object()
"""In a path to a value: the JSON that a string holds."""

_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63),
    10**30, 10**400, -(10**400), 0.5, -0.0, 1e-320, 1e300, float("inf"), float("nan"), "", "0", "x",
    "null", "\0", "\ud800", "é", "../x", "x" * 300, [], {}, [[]], [None], {"": 0}, [0, 0], [-1],
)  # fmt: skip


def with_another_value(form: Form, data: bytes, rng: random.Random) -> bytes | None:
    """The file with one value changed; None where there is no JSON to change."""
    try:
        if form == "lines":
            lines = data.split(b"\n")
            places = [n for n, line in enumerate(lines) if line]
            if not places:
                return None
            place = rng.choice(places)
            lines[place] = _changed(lines[place], rng)
            return b"\n".join(lines)
        begin, end = _where(form, data)
        text = _changed(data[begin:end], rng)
    except (ValueError, OverflowError, RecursionError):  # half of 10**400 is no number of Python's
        return None
    if form == "tensors":
        return len(text).to_bytes(8, "little") + text + data[end:]
    if form == "shard":
        head = data[:12] + len(text).to_bytes(4, "little") + text
        return head.ljust(HEADER_BYTES, b"\0") + data[HEADER_BYTES:]
    return data[:begin] + text


def _where(form: Form, data: bytes) -> tuple[int, int]:
    """From where to where the JSON goes."""
    if form == "tensors":
        return 8, 8 + int.from_bytes(data[:8], "little")
    if form == "shard":
        return 16, 16 + int.from_bytes(data[12:16], "little")
    return (1 if form == "question" else 0), len(data)


def _changed(text: bytes, rng: random.Random) -> bytes:
    values = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = rng.choice(list(_paths(values)))
        values = _replaced(values, path, rng)
    return json.dumps(values).encode()


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values in a value."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value[:50]):
            yield from _paths(inner, (*path, place))
    elif isinstance(value, str) and value[:1] in ("{", "["):
        try:
            yield from _paths(json.loads(value), (*path, _INSIDE))
        except (ValueError, RecursionError):
            return


def _replaced(value: Any, path: tuple[Any, ...], rng: random.Random) -> Any:
    if not path:
        return _another(value, rng)
    if path[0] is _INSIDE:
        return json.dumps(_replaced(json.loads(value), path[1:], rng))
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], rng)
    return copy


def _another(value: Any, rng: random.Random) -> Any:
    """Something odd, or something near it."""
    if rng.random() < 0.5:
        return rng.choice(_ODD)
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, -value, value * 2, value / 2, str(value), [value]))
    if isinstance(value, str):
        place = rng.randint(0, len(value))
        return rng.choice((value[:place], value[place:], value + value, f"{value[:place]}\t"))
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return rng.choice(_ODD)
    one, other = rng.choice(keys), rng.choice(keys)
    copy = value.copy()
    match rng.randrange(3):
        case 0:
            del copy[one]
        case 1:
            copy[one] = value[other]
        case _ if isinstance(copy, dict):
            copy[f"{other}x"] = value[one]
        case _:
            copy.append(value[one])
    return copy
