"""The weights of rescoring, and the file they are kept in from one set of lists to the next."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path

from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.files.plain_json import from_json

__all__ = ["Weights", "load_weights", "save_weights"]


@dataclass(frozen=True)
class Weights:
    """How the scores of a hypothesis make its total."""

    am_weight: float = 1.0
    """Of the acoustic score."""
    lm_weight: float = 1.0
    """Of the new language model score."""
    old_lm_weight: float = 0.0
    """Of the language model score in the list."""
    word_penalty: float = 0.0
    """Taken off the total for each word, a natural logarithm."""
    oov_penalty: float = 0.0
    """Taken off the new language model score for each unknown word, a natural logarithm."""
    weight: float = 0.5
    """Of the network in the mixture with the n-gram; counts only where there is one."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"{item.name} is {value!r}, must be a number")
            if not _is_finite(value):
                raise UserError(f"{item.name} is {value}, must be finite")
        if not 0 <= self.weight <= 1:
            raise UserError(f"weight is {self.weight}, must be from 0 to 1")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def save_weights(weights: Weights, path: Path) -> None:
    """Writes weights as JSON."""
    with replacing(path) as file:
        file.write(json.dumps(dataclasses.asdict(weights), indent=1).encode() + b"\n")


def load_weights(path: Path) -> Weights:
    """Reads what :func:`save_weights` wrote."""
    try:
        values = from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path}: is not JSON") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: is not an object of weights")
    known = {item.name for item in dataclasses.fields(Weights)}
    for name in values:
        if name not in known:
            raise UserError(f"{path}: {name!r} is none of the weights {', '.join(sorted(known))}")
    try:
        return Weights(**values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
