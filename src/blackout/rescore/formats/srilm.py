"""SRILM's own n-best lists: lines ``ascore lscore nwords w1 w2 …``, one file an utterance.

Scores are log-probabilities, base 10 unless told otherwise. The utterance is named as its file,
without .gz or .xz and without .nbest, .score or .txt. A path may be one list, a folder of them,
or a file that names one list a line. The Decipher formats (``NBestList1.0`` and ``2.0``), whose
scores are bytelogs, are refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.rescore.formats.lines import finite, format_score, read_lines, write_lines
from blackout.rescore.nbest import Hypothesis, NBest, Utterance, parse_words, split_words

_SPACE = re.compile(r"[ \t\v\f\r]+")
_PACKED = (".gz", ".xz")
_SUFFIXES = (".nbest", ".score", ".txt")


def read(path: Path, unit: float) -> NBest:
    files = list_files(path)
    utterances = []
    seen: dict[str, Path] = {}
    for file in files:
        utterance = _read_utterance(file, unit)
        if utterance.name in seen:
            raise UserError(f"{file}: {seen[utterance.name]} is the same utterance by its name")
        seen[utterance.name] = file
        utterances.append(utterance)
    return NBest("srilm", unit, utterances, single=files == [path])


def list_files(path: Path) -> list[Path]:
    """The lists that a path names."""
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))
        if not files:
            raise UserError(f"{path}: no n-best lists in this folder")
        return files
    lines = list(read_lines(path))
    if lines and len(split_words(lines[0][1])) < 3:
        return [_existing(path, number, line) for number, line in lines]
    return [path]


def _existing(path: Path, number: int, line: str) -> Path:
    file = listed(path, line)
    if file is None:
        raise UserError(f"{path}: line {number}: neither three scores and words nor a file: {line}")
    return file


def listed(path: Path, line: str) -> Path | None:
    """The file that a line of a file of names means, from here or from beside that file."""
    places = (Path(line), path.parent / line)
    try:
        return next((place for place in places if place.is_file()), None)
    except OSError:  # longer than any name can be
        return None


def _read_utterance(file: Path, unit: float) -> Utterance:
    hypotheses = []
    for number, line in read_lines(file):
        if line.startswith("NBestList"):
            raise UserError(
                f"{file}: line {number}: Decipher's {line} is not read, only SRILM's own "
                "ascore lscore nwords w1 w2 …"
            )
        fields = _SPACE.split(line, maxsplit=3)
        if len(fields) < 3:
            raise UserError(f"{file}: line {number}: needs ascore, lscore and nwords")
        acoustic = finite(fields[0], file, number, "ascore")
        lm = finite(fields[1], file, number, "lscore")
        if not (fields[2].isascii() and fields[2].isdigit()):
            raise UserError(f"{file}: line {number}: nwords {fields[2]!r} is not a whole number")
        text = fields[3] if len(fields) > 3 else ""
        words = parse_words(text, f"{file}: line {number}")
        extra = {"nwords": fields[2]}
        hypotheses.append(Hypothesis(text, words, unit * acoustic, unit * lm, extra=extra))
    if not hypotheses:
        raise UserError(f"{file}: no hypotheses in it")
    return Utterance(_name(file), hypotheses, file.name)


def _name(file: Path) -> str:
    stem = file.name
    for suffixes in (_PACKED, _SUFFIXES):
        stem = next((stem.removesuffix(s) for s in suffixes if stem.endswith(s)), stem)
    return stem


def write(nbest: NBest, path: Path) -> None:
    """One file when one was read, else a folder of files with the names they had."""
    if nbest.single:
        _write_utterance(nbest.utterances[0], path, nbest.unit)
        return
    make_folder(path)
    for utterance in nbest.utterances:
        _write_utterance(utterance, path / (utterance.source or utterance.name), nbest.unit)


def _write_utterance(utterance: Utterance, path: Path, unit: float) -> None:
    def line(h: Hypothesis) -> str:
        scores = f"{format_score(h.acoustic / unit)} {format_score(h.lm / unit)}"
        return f"{scores} {h.extra.get('nwords', len(h.words))} {h.text}".rstrip()

    write_lines(path, map(line, utterance.hypotheses))
