"""ESPnet's decoding folders: ``1best_recog``, ``2best_recog``, … with ``text`` and ``score``.

``score`` is the beam search's score, a natural log-probability, the higher the better; it counts
as the acoustic one, and there is none of a language model alone. A folder of the parts of a
decoding (``output.1``, ``output.2``, …) is read as one. Rescored, the hypotheses change places:
``1best_recog`` is the best by the total, which is then the ``score``; ``lm_score`` is beside it.
"""

from __future__ import annotations

import re
from pathlib import Path

from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.rescore.formats.lines import finite, format_score, read_table, write_lines
from blackout.rescore.nbest import Hypothesis, NBest, Utterance, parse_words

_RANK = re.compile(r"([1-9][0-9]*)best_recog")
_TENSOR = re.compile(r"tensor\(([^,)]*).*\)")  # how PyTorch prints a number
_CARRIED = ("token", "token_int")  # files that go with their hypothesis


def read(path: Path, unit: float) -> NBest:
    found = parts(path)
    if not found:
        raise UserError(f"{path}: has no folder 1best_recog")
    utterances: dict[str, list[Hypothesis]] = {}
    for part in found:
        before: set[str] | None = None
        for rank, folder in enumerate(_ranks(part), 1):
            before = _read_rank(folder, rank, unit, utterances, before)
    return NBest("espnet", unit, [Utterance(*item) for item in utterances.items()])


def parts(path: Path) -> list[Path]:
    """The folders below ``path``, or itself, that have a 1best_recog."""
    if (path / "1best_recog").is_dir():
        return [path]
    found = [folder.parent for folder in path.glob("output.*/1best_recog") if folder.is_dir()]
    return sorted(found, key=lambda part: (len(part.name), part.name))


def _ranks(part: Path) -> list[Path]:
    """1best_recog, 2best_recog, … without a gap."""
    numbers = [int(m[1]) for f in part.iterdir() if (m := _RANK.fullmatch(f.name)) and f.is_dir()]
    for expected, number in enumerate(sorted(numbers), 1):
        if number != expected:
            raise UserError(f"{part}: has {number}best_recog but no {expected}best_recog")
    return [part / f"{number}best_recog" for number in sorted(numbers)]


def _read_rank(
    folder: Path,
    rank: int,
    unit: float,
    utterances: dict[str, list[Hypothesis]],
    before: set[str] | None,
) -> set[str]:
    """Adds the hypotheses of one rank; gives their utterances. Lists may be of any length."""
    text, score = folder / "text", folder / "score"
    table, scores = read_table(text), read_table(score)
    for key, (line, _) in scores.items():
        if key not in table:
            raise UserError(f"{score}: line {line}: {key} is not in {text}")
    carried = {n: read_table(folder / n) for n in _CARRIED if (folder / n).is_file()}
    for key, (line, words) in table.items():
        where = f"{text}: line {line}: {key}"
        if key not in scores:
            raise UserError(f"{where} is not in {score}")
        if before is None and key in utterances:
            raise UserError(f"{where} is also in another part")
        if before is not None and key not in before:
            raise UserError(f"{where} is not in {rank - 1}best_recog")
        number, value = scores[key]
        if match := _TENSOR.fullmatch(value):
            value = match[1]
        hypothesis = Hypothesis(
            words,
            parse_words(words, f"{text}: line {line}"),
            unit * finite(value, score, number, "the score"),
            extra={name: lines[key][1] for name, lines in carried.items() if key in lines},
        )
        utterances.setdefault(key, []).append(hypothesis)
    return set(table)


def write(nbest: NBest, path: Path) -> None:
    """Folders by rank of the total; equal ones stay in their order."""
    ranked = [
        (utterance.name, sorted(utterance.hypotheses, key=lambda h: -h.total))
        for utterance in nbest.utterances
    ]
    for rank in range(max(len(hypotheses) for _, hypotheses in ranked)):
        folder = path / f"{rank + 1}best_recog"
        make_folder(folder)
        rows = [(name, hyps[rank]) for name, hyps in ranked if rank < len(hyps)]
        write_lines(folder / "text", (f"{name} {h.text}".rstrip() for name, h in rows))
        for file, field in (("score", "total"), ("lm_score", "lm")):
            scores = ((name, getattr(h, field) / nbest.unit) for name, h in rows)
            write_lines(folder / file, (f"{name} {format_score(score)}" for name, score in scores))
        for file in _CARRIED:
            lines = [f"{name} {h.extra[file]}".rstrip() for name, h in rows if file in h.extra]
            if lines:
                write_lines(folder / file, lines)
