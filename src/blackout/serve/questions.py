"""What may be asked, as dataclasses: checked when it comes in, described in OpenAPI.

One field of a dataclass is one key of a JSON object; what its value may be stands in the field.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_type_hints

from blackout.errors import UserError
from blackout.files.plain_json import from_json
from blackout.rescore.weights import Weights

__all__ = [
    "GenerateQuestion",
    "NearQuestion",
    "NextQuestion",
    "Refusal",
    "RescoreQuestion",
    "ScoreQuestion",
    "parse",
    "schema",
]

T = TypeVar("T")

MOST_ALTERNATIVES = 50
MOST_GENERATED = 1000


class Refusal(UserError):
    """A question that gets no answer: an HTTP status and a sentence."""

    def __init__(self, status: int, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry_after = status, retry_after


def value(about: str, default: Any = dataclasses.MISSING, **limits: float) -> Any:
    """A field with a sentence for its readers, and its ``least`` and ``most``."""
    return field(default=default, metadata={"about": about, **limits}, kw_only=True)


@dataclass(frozen=True)
class _Question:
    model: str = value("Name of a model, as GET /v1/models lists it; by default the first.", "")
    weight: float | None = value(
        "For a mixture: the network's share, instead of the server's.", None, least=0, most=1
    )


@dataclass(frozen=True)
class ScoreQuestion(_Question):
    """The probability of each word of a text, one sentence a line."""

    text: str = value("The text.")
    top: int = value(
        "How many of the most probable words to list at each place.",
        5,
        least=0,
        most=MOST_ALTERNATIVES,
    )


@dataclass(frozen=True)
class NextQuestion(_Question):
    """The most probable words after a text."""

    text: str = value("The text so far; an empty one is the beginning of a sentence.", "")
    prefix: str = value("Only words that begin like this.", "")
    top: int = value("How many.", 10, least=1, most=MOST_ALTERNATIVES)


@dataclass(frozen=True)
class GenerateQuestion(_Question):
    """Words drawn one after another from the exact softmax, sent as they come."""

    prompt: str = value("The text to go on with.", "")
    words: int = value(
        "How many words to add, sentence ends counted.", 100, least=1, most=MOST_GENERATED
    )
    temperature: float = value(
        "Below 1 safer, above 1 bolder, 0 always the most probable word.", 1.0, least=0, most=1000
    )
    top_k: int = value("Choose among the k most probable words; 0 for all.", 0, least=0, most=10**9)
    seed: int = value("The same seed gives the same text.", 1, least=0, most=2**53)


@dataclass(frozen=True)
class RescoreQuestion(_Question):
    """New language model scores for a recogniser's hypotheses."""

    utterances: list[Any] = value(  # noqa: RUF009
        'Lists as in JSON lines: {"utt": name, "hyps": [{"text": …, "am": …, "lm": …}, …]}.'
    )
    weights: dict[str, Any] = value(  # noqa: RUF009
        "Weights of the total, by the names of blackout rescore's options: am_weight, lm_weight, "
        "old_lm_weight, word_penalty, oov_penalty.",
        None,
    )

    def rescore_weights(self, network_share: float) -> Weights:
        """The weights; that of the mixture is the model's."""
        given = self.weights or {}
        known = {item.name for item in dataclasses.fields(Weights)} - {"weight"}
        for name in given:
            if name not in known:
                raise Refusal(400, f"weights: {name!r} is none of {', '.join(sorted(known))}")
        return Weights(**given, weight=network_share)


@dataclass(frozen=True)
class NearQuestion:
    """Words whose vectors point where a word's vector points, in the network's two tables."""

    model: str = value("Name of a network; by default the first.", "")
    word: str = value("The word.")
    top: int = value("How many.", 10, least=1, most=MOST_ALTERNATIVES)


_JSON_TYPES = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
_NAMES = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "an object"}


def parse(kind: type[T], body: bytes) -> T:
    """The question in the body of a request; anything else is refused with a sentence."""
    try:
        given = from_json(body.decode())
    except UnicodeDecodeError:
        raise Refusal(400, "the body is not UTF-8") from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise Refusal(400, f"the body is not JSON: {reason}") from None
    if not isinstance(given, dict):
        raise Refusal(400, "the body is not a JSON object")
    known = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise Refusal(400, f"{name[:40]!r} is none of {', '.join(known)}")
    hints = get_type_hints(kind)
    for name, item in known.items():
        if name in given:
            given[name] = _checked(name, given[name], hints[name], item)
        elif item.default is dataclasses.MISSING:
            raise Refusal(400, f"{name} is missing")
    return kind(**given)


def _plain(hint: Any) -> type:
    """The type of a field without its None."""
    kinds = [kind for kind in get_args(hint) if isinstance(kind, type) and kind is not type(None)]
    plain = getattr(hint, "__origin__", None) or (kinds[0] if kinds else hint)
    assert isinstance(plain, type)
    return plain


def _checked(name: str, given: Any, hint: Any, item: dataclasses.Field[Any]) -> Any:
    kind = _plain(hint)
    if given is None and item.default is None:
        return None
    if kind is float and isinstance(given, int) and not isinstance(given, bool):
        given = _as_float(given)
    if not isinstance(given, kind) or isinstance(given, bool):
        raise Refusal(400, f"{name} is not {_NAMES[kind]}")
    least, most = item.metadata.get("least", -math.inf), item.metadata.get("most", math.inf)
    if isinstance(given, int | float) and not least <= given <= most:  # NaN is not between them
        raise Refusal(400, f"{name} is {_as_float(given):g}, must be from {least:g} to {most:,}")
    return given


def _as_float(number: float) -> float:
    """Whole numbers of hundreds of digits are no floats: infinity stands for them."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def schema(kind: type[Any]) -> dict[str, Any]:
    """The JSON Schema of a question."""
    hints = get_type_hints(kind)
    properties, required = {}, []
    for item in dataclasses.fields(kind):
        entry: dict[str, Any] = {
            "type": _JSON_TYPES[_plain(hints[item.name])],
            "description": item.metadata["about"],
        }
        if entry["type"] == "array":
            entry["items"] = {"type": "object"}
        if "least" in item.metadata:
            entry |= {"minimum": item.metadata["least"], "maximum": item.metadata["most"]}
        if item.default is dataclasses.MISSING:
            required.append(item.name)
        elif item.default is not None:
            entry["default"] = item.default
        properties[item.name] = entry
    found = {"type": "object", "description": kind.__doc__, "properties": properties}
    return found | {"additionalProperties": False} | ({"required": required} if required else {})
