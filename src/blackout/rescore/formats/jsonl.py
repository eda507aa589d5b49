"""JSON lines: one object for each utterance.

    {"utt": "id", "hyps": [{"text": "the words", "am": -12.3, "lm": -4.5}, …]}

``am`` and ``lm`` are log-probabilities, the higher the better, and 0 when they are missing. Other
keys are kept. Rescored hypotheses have the new ``lm``, the former one as ``old_lm``, and
``total``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from blackout.errors import UserError
from blackout.files.plain_json import from_json
from blackout.rescore.formats.lines import read_lines, write_lines
from blackout.rescore.nbest import Hypothesis, NBest, Utterance, parse_words

_NAMES = {str: "text", list: "a list", dict: "an object", float: "a number"}


def read(path: Path, unit: float) -> NBest:
    records = []
    for number, line in read_lines(path):
        try:
            records.append((f"line {number}", from_json(line)))
        except ValueError as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise UserError(f"{path}: line {number}: not JSON: {reason}") from None
    try:
        return from_records(records, unit)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def from_records(records: Iterable[tuple[str, Any]], unit: float = 1.0) -> NBest:
    """Lists from (place, object) each; the place is named where something is wrong with it."""
    utterances: list[Utterance] = []
    seen: dict[str, str] = {}
    for where, record in records:
        if not isinstance(record, dict):
            raise UserError(f"{where}: not a JSON object")
        name = _get(record, "utt", str, where)
        if name.split() != [name]:
            raise UserError(f"{where}: utt {name!r} is not one word")
        if name in seen:
            raise UserError(f"{where}: {name} is also on {seen[name]}")
        seen[name] = where
        items = _get(record, "hyps", list, where)
        if not items:
            raise UserError(f"{where}: {name} has no hypotheses")
        hypotheses = [_hypothesis(item, where, unit) for item in items]
        rest = {key: value for key, value in record.items() if key != "hyps"}
        hypotheses[0].extra["record"] = rest
        utterances.append(Utterance(name, hypotheses))
    return NBest("jsonl", unit, utterances)


def _hypothesis(item: Any, where: str, unit: float) -> Hypothesis:
    if not isinstance(item, dict):
        raise UserError(f"{where}: a hypothesis is not a JSON object")
    text = _get(item, "text", str, where)
    acoustic, lm = (_get(item, key, float, where) if key in item else 0.0 for key in ("am", "lm"))
    words = parse_words(text, where)
    return Hypothesis(text, words, unit * acoustic, unit * lm, extra={"item": item})


def _get(record: dict[str, Any], key: str, kind: type, where: str) -> Any:
    if key not in record:
        raise UserError(f"{where}: has no {key!r}")
    value = record[key]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if not isinstance(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
        raise UserError(f"{where}: {key!r} is not {_NAMES[kind]}")
    return value


def write(nbest: NBest, path: Path) -> None:
    write_lines(path, (json.dumps(item, ensure_ascii=False) for item in to_records(nbest)))


def to_records(nbest: NBest) -> Iterator[dict[str, Any]]:
    """The objects of lists, one for each utterance."""
    for utterance in nbest.utterances:
        rest = utterance.hypotheses[0].extra.get("record", {"utt": utterance.name})
        yield {**rest, "hyps": [_item(h, nbest.unit) for h in utterance.hypotheses]}


def _item(hypothesis: Hypothesis, unit: float) -> dict[str, Any]:
    item = hypothesis.extra.get("item", {"text": hypothesis.text, "am": hypothesis.acoustic / unit})
    old = {"old_lm": item["lm"]} if "lm" in item else {}
    return {**item, "lm": hypothesis.lm / unit, **old, "total": hypothesis.total / unit}
