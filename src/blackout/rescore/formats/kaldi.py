"""Kaldi text archives: the words, the acoustic costs and the language model's costs.

The keys are ``utterance-N``, N the number of the hypothesis, as ``lattice-to-nbest`` makes them;
a cost is a negated log-probability. A folder has them as ``text`` (or ``words_text``), ``ac_cost``
(or ``acwt``) and ``lm_cost`` (or ``lmwt.lmonly``). Archives of costs may be missing: 0.
"""

from __future__ import annotations

from pathlib import Path

from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.rescore.formats.lines import finite, format_score, read_table, write_lines
from blackout.rescore.nbest import Hypothesis, NBest, Utterance, parse_words

TEXT = ("text", "words_text")
ACOUSTIC = ("ac_cost", "acwt")
LM = ("lm_cost", "lmwt.lmonly")


def read(path: Path, unit: float, acoustic: Path | None = None, lm: Path | None = None) -> NBest:
    """From a folder, or from the archive of words and those of the costs."""
    text = path
    if path.is_dir():
        found = find(path, TEXT)
        if found is None:
            raise UserError(f"{path}: has no file {' or '.join(TEXT)}")
        text, acoustic, lm = found, acoustic or find(path, ACOUSTIC), lm or find(path, LM)
    table = read_table(text)
    acoustic_costs, lm_costs = _costs(acoustic, text, table), _costs(lm, text, table)
    utterances: dict[str, list[Hypothesis]] = {}
    for key, (line, words) in table.items():
        name, dash, number = key.rpartition("-")
        if not (name and dash and number.isascii() and number.isdigit()):
            raise UserError(f"{text}: line {line}: the key {key!r} is not like utterance-1")
        utterances.setdefault(name, []).append(
            Hypothesis(
                words,
                parse_words(words, f"{text}: line {line}"),
                -unit * acoustic_costs.get(key, 0.0),
                -unit * lm_costs.get(key, 0.0),
                extra={"number": number},
            )
        )
    for hypotheses in utterances.values():  # a sorted archive has -10 before -2
        hypotheses.sort(key=lambda h: int(h.extra["number"]))
    return NBest("kaldi", unit, [Utterance(*item) for item in utterances.items()])


def find(folder: Path, names: tuple[str, ...]) -> Path | None:
    """The first of these files that is there."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _costs(path: Path | None, text: Path, table: dict[str, tuple[int, str]]) -> dict[str, float]:
    """The numbers of an archive, which must have the same keys as the text."""
    if path is None:
        return {}
    costs = read_table(path)
    for key, (line, _) in costs.items():
        if key not in table:
            raise UserError(f"{path}: line {line}: {key} is not in {text}")
    for key, (line, _) in table.items():
        if key not in costs:
            raise UserError(f"{text}: line {line}: {key} is not in {path}")
    return {key: finite(cost, path, line, "the cost") for key, (line, cost) in costs.items()}


def write(nbest: NBest, path: Path) -> None:
    """A folder with text, ac_cost, lm_cost and total_cost."""
    make_folder(path)
    pairs = [
        (f"{utterance.name}-{hypothesis.extra.get('number', number)}", hypothesis)
        for utterance in nbest.utterances
        for number, hypothesis in enumerate(utterance.hypotheses, 1)
    ]
    write_lines(path / "text", (f"{key} {h.text}".rstrip() for key, h in pairs))
    for name, field in (("ac_cost", "acoustic"), ("lm_cost", "lm"), ("total_cost", "total")):
        scores = ((key, -getattr(h, field) / nbest.unit) for key, h in pairs)
        write_lines(path / name, (f"{key} {format_score(score)}" for key, score in scores))
