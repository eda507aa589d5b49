"""Reading and writing n-best lists, one file for each format; recognising the format."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from blackout.errors import UserError
from blackout.rescore.formats import espnet, jsonl, kaldi, srilm
from blackout.rescore.formats.lines import read_lines, write_lines
from blackout.rescore.nbest import Format, NBest, split_words

__all__ = ["LogBase", "detect_format", "read_nbest", "write_best", "write_nbest"]

LogBase = Literal["e", "10"]
_UNITS: dict[LogBase, float] = {"e": 1.0, "10": math.log(10)}


def read_nbest(
    path: str | Path,
    format: Format | None = None,
    *,
    log_base: LogBase | None = None,
    acoustic: Path | None = None,
    lm: Path | None = None,
) -> NBest:
    """The lists in a file or folder.

    ``log_base`` is that of the scores: 10 for SRILM, else e, unless given. ``acoustic`` and
    ``lm`` are Kaldi's archives of costs beside that of the words.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lists.jsonl"
    >>> _ = path.write_text('{"utt": "a", "hyps": [{"text": "hello world", "am": -3}]}')
    >>> read_nbest(path).utterances[0].hypotheses[0].words
    ('hello', 'world')
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    format = format or ("kaldi" if acoustic or lm else detect_format(path))
    if (acoustic or lm) and format != "kaldi":
        raise UserError(f"archives of costs belong to the kaldi format, not to {format}")
    unit = _UNITS[log_base or ("10" if format == "srilm" else "e")]
    if format == "kaldi":
        nbest = kaldi.read(path, unit, acoustic, lm)
    elif format == "srilm":
        nbest = srilm.read(path, unit)
    elif format == "espnet":
        nbest = espnet.read(path, unit)
    else:
        nbest = jsonl.read(path, unit)
    if not nbest.utterances:
        raise UserError(f"{path}: no hypotheses in it")
    return nbest


def detect_format(path: Path) -> Format:
    """The format, where the files leave no doubt."""
    if path.is_dir():
        if espnet.parts(path):
            return "espnet"
        if kaldi.find(path, kaldi.TEXT):
            return "kaldi"
        files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))
        if files and _has_three_scores(files[0]):
            return "srilm"
    elif path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")):
        return "jsonl"
    else:
        first = next(read_lines(path), (0, ""))[1]
        if not first:
            raise UserError(f"{path}: no hypotheses in it")
        if first.startswith("{"):
            return "jsonl"
        if _has_three_scores(path) or srilm.listed(path, first):
            return "srilm"
    raise UserError(f"{path}: cannot tell the format of these n-best lists: say --format")


def _has_three_scores(path: Path) -> bool:
    fields = split_words(next(read_lines(path), (0, ""))[1])[:3]
    try:
        return (
            len(fields) == 3
            and fields[2].isdigit()
            and all(math.isfinite(float(x)) for x in fields[:2])
        )
    except ValueError:
        return False


def write_nbest(nbest: NBest, path: str | Path) -> None:
    """Writes lists in the format they were read in, with the scores they have now."""
    modules = {"kaldi": kaldi, "srilm": srilm, "espnet": espnet, "jsonl": jsonl}
    modules[nbest.format].write(nbest, Path(path))


def write_best(nbest: NBest, path: str | Path) -> None:
    """Writes ``utterance words…``, the hypothesis with the highest total of each utterance."""
    best = ((u.name, max(u.hypotheses, key=lambda h: h.total)) for u in nbest.utterances)
    write_lines(Path(path), (" ".join((name, *h.words)) for name, h in best))
