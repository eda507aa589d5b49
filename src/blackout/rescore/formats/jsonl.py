"""JSON lines: one object for each utterance.

    {"utt": "id", "hyps": [{"text": "the words", "am": -12.3, "lm": -4.5}, …]}

``am`` and ``lm`` are log-probabilities, the higher the better, and 0 when they are missing. Other
keys are kept. Rescored hypotheses have the new ``lm``, the former one as ``old_lm``, and
``total``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from blackout.errors import UserError
from blackout.files.plain_json import from_json
from blackout.rescore.formats.lines import read_lines, write_lines
from blackout.rescore.nbest import Hypothesis, NBest, Utterance, parse_words

_NAMES = {str: "text", list: "a list", dict: "an object", float: "a number"}


def read(path: Path, unit: float) -> NBest:
    utterances: list[Utterance] = []
    seen: dict[str, int] = {}
    for number, line in read_lines(path):
        where = f"{path}: line {number}"
        try:
            record = from_json(line)
        except ValueError as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise UserError(f"{where}: not JSON: {reason}") from None
        if not isinstance(record, dict):
            raise UserError(f"{where}: not a JSON object")
        name = _get(record, "utt", str, where)
        if name.split() != [name]:
            raise UserError(f"{where}: utt {name!r} is not one word")
        if name in seen:
            raise UserError(f"{where}: {name} is also on line {seen[name]}")
        seen[name] = number
        items = _get(record, "hyps", list, where)
        if not items:
            raise UserError(f"{where}: {name} has no hypotheses")
        hypotheses = [_hypothesis(item, path, number, unit) for item in items]
        rest = {key: value for key, value in record.items() if key != "hyps"}
        hypotheses[0].extra["record"] = rest
        utterances.append(Utterance(name, hypotheses))
    return NBest("jsonl", unit, utterances)


def _hypothesis(item: Any, path: Path, line: int, unit: float) -> Hypothesis:
    where = f"{path}: line {line}"
    if not isinstance(item, dict):
        raise UserError(f"{where}: a hypothesis is not a JSON object")
    text = _get(item, "text", str, where)
    acoustic, lm = (_get(item, key, float, where) if key in item else 0.0 for key in ("am", "lm"))
    words = parse_words(text, path, line)
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
    def record(utterance: Utterance) -> str:
        rest = utterance.hypotheses[0].extra.get("record", {"utt": utterance.name})
        hyps = [_item(hypothesis, nbest.unit) for hypothesis in utterance.hypotheses]
        return json.dumps({**rest, "hyps": hyps}, ensure_ascii=False)

    write_lines(path, map(record, nbest.utterances))


def _item(hypothesis: Hypothesis, unit: float) -> dict[str, Any]:
    item = hypothesis.extra.get("item", {"text": hypothesis.text, "am": hypothesis.acoustic / unit})
    old = {"old_lm": item["lm"]} if "lm" in item else {}
    return {**item, "lm": hypothesis.lm / unit, **old, "total": hypothesis.total / unit}
