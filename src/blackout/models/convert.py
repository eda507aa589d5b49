"""Model files of the paper's own program, rnnlm, as a model folder.

That program writes text: four lines "name: number" (input size, hidden size, output size, size of
the vocabulary), then blocks under their names. ``Vocabulary:`` has a line "number<TAB>word" for
each word but the last: the last number is its unknown word, which is not listed. ``Win:`` and
``Wout:`` have a row of weights for each word, ``Wr:`` a row for each unit, and three blocks
``RmsProps-…`` the second moments in the same shapes. Its network is ours with the settings
``cell = "sigmoid"``, ``bias = false``, ``context = "sentence"``: s_t = σ(Win[x_t] + Wr s_{t−1}),
softmax(Wout s_t); only the order of the words differs. Weights have six digits in the file, as
they have for that program when it reads them back.

There are no word counts in such a file. They do not matter to evaluation, mixing or generation,
only to the proposal of further training; :func:`convert_rnnlm` takes them from the training text
if it is given, and otherwise counts each word once.

Not carried over: the second moments, since a model folder has weights only (they are read and
checked), and the floor of 1e-7 under every probability that the program evaluates with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from blackout.config import Config
from blackout.errors import UserError
from blackout.models.cells import SimpleLayer
from blackout.models.language_model import LanguageModel
from blackout.models.saved import new_model, save_weights
from blackout.output import FlatSoftmax
from blackout.run_folder import RunFolder
from blackout.text.corpus import count_words
from blackout.text.source import Progress
from blackout.text.vocab import EOS_WORD, UNK_WORD, Vocab

__all__ = ["OOV_WORD", "Converted", "convert_rnnlm"]

OOV_WORD = "<oov>"
"""The program's unknown word, where its training text had a literal ``<unk>`` of its own."""

_SIZES = ("input", "hidden", "output", "vocabulary")
_ROW_LIMIT = 1 << 22  # bytes of a line: 200,000 units


@dataclass(frozen=True)
class Converted:
    """What was converted."""

    vocab_size: int
    hidden: int
    parameters: int
    literal_unk: bool
    """Whether the program's training text had ``<unk>`` as an ordinary word."""


def convert_rnnlm(
    file: str | Path,
    out: str | Path,
    *,
    train: str | Path | None = None,
    progress: Progress | None = None,
) -> Converted:
    """Reads a model file of the program and writes the model folder ``out``.

    ``train``: the text the model was trained on, to count its words. Tables are read row by row
    into the new model; nothing else is held in memory.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: is there already; choose another folder")
    with _Lines(Path(file), progress) as lines:
        sizes = _read_sizes(lines)
        words = _read_words(lines, sizes["vocabulary"])
        vocab, ours = _our_vocab(words, train)
        config = Config.from_dict(
            {
                "text": {"vocab_size": len(vocab)},
                "model": {"cell": "sigmoid", "hidden": sizes["hidden"]},
            },
            str(file),
        )
        model = new_model(config, vocab)
        _read_weights(lines, model, ours, sizes["hidden"])
    folder = RunFolder(out)
    with folder.held():
        save_weights(folder, model, folder.describe(config, vocab))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Converted(len(vocab), sizes["hidden"], parameters, OOV_WORD in words)


class _Lines:
    """The lines of a file with their numbers, for messages that name the place."""

    def __init__(self, path: Path, progress: Progress | None) -> None:
        self.path, self.number, self._progress = path, 0, progress
        try:
            self._file = path.open("rb")
            self.size = path.stat().st_size
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def next(self, what: str) -> bytes:
        """The next line without its end; ``what`` should stand there."""
        self.number += 1
        try:
            line = self._file.readline(_ROW_LIMIT)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror}") from None
        if not line:
            raise UserError(f"{self.path}: ends after line {self.number - 1}: {what} is missing")
        if not line.endswith(b"\n"):
            raise self.fault(f"the file is cut off, or this is not {what}")
        if self._progress is not None and self.number % 4096 == 0:
            self._progress(self._file.tell(), self.size)
        return line.rstrip(b"\r\n")

    def heading(self, name: str) -> None:
        """An empty line and a block's name."""
        what = f"the block {name}"
        for wanted in ("", name):
            found = self.next(what)
            if found.strip() != wanted.encode():
                raise self.fault(f"{what} should begin here, not {_shown(found)}")

    def expect_end(self) -> None:
        while line := self._file.readline(_ROW_LIMIT):
            self.number += 1
            if line.strip():
                raise self.fault(f"nothing should follow the last block, not {_shown(line)}")

    def fault(self, text: str) -> UserError:
        return UserError(f"{self.path}: line {self.number}: {text}")


def _read_sizes(lines: _Lines) -> dict[str, int]:
    sizes = {}
    for name in _SIZES:
        what = f"{name} layer size: number" if name != "vocabulary" else "vocabulary size: number"
        match = re.fullmatch(
            rb"%s\b[^:]*size[^:]*: *(\d{1,9})\s*" % name.encode(), lines.next(what)
        )
        if match is None:
            raise lines.fault(f'is not "{what}": not a model file of rnnlm')
        sizes[name] = int(match[1])
    if sizes["hidden"] < 1:
        raise lines.fault("the hidden layer has no units")
    if sizes["vocabulary"] < 3:
        raise lines.fault(f"a vocabulary of {sizes['vocabulary']}, must be at least 3")
    if 2 * sizes["hidden"] * (2 * sizes["vocabulary"] + sizes["hidden"]) > lines.size:
        raise lines.fault("the file is too small for a model of these sizes")
    for name in ("input", "output"):
        if sizes[name] != sizes["vocabulary"]:
            raise lines.fault(
                f"the {name} layer has {sizes[name]} words, the vocabulary {sizes['vocabulary']}"
            )
    return sizes


def _read_words(lines: _Lines, size: int) -> list[str]:
    """The words by the program's numbers; its unknown word, which is not listed, is the last."""
    lines.heading("Vocabulary:")
    words: list[str | None] = [None] * (size - 1)
    seen: set[str] = set()
    for _ in range(size - 1):
        number, word = _parse_word(lines)
        if number >= size - 1:
            raise lines.fault(f"number {number}, but only 0 to {size - 2} have a word")
        if words[number] is not None:
            raise lines.fault(f"number {number} stands there twice")
        if (number == 0) != (word == EOS_WORD):
            raise lines.fault(f"{EOS_WORD} and nothing else must have number 0")
        if word in seen:
            raise lines.fault(f"the word {word!r} stands there twice")
        seen.add(word)
        words[number] = word
    last = OOV_WORD if UNK_WORD in seen else UNK_WORD
    if last in seen:
        raise lines.fault(f"the vocabulary has both {UNK_WORD} and {OOV_WORD}")
    return [word for word in words if word is not None] + [last]


def _parse_word(lines: _Lines) -> tuple[int, str]:
    match = re.fullmatch(rb" *(\d{1,9})\t([^\s\0]+)", lines.next("a word of the vocabulary"))
    if match is None:
        raise lines.fault("is not a number, a tab and a word")
    try:
        return int(match[1]), match[2].decode()
    except UnicodeDecodeError:
        raise lines.fault("invalid UTF-8") from None


def _our_vocab(words: list[str], train: str | Path | None) -> tuple[Vocab, npt.NDArray[np.int64]]:
    """Our vocabulary of these words, and the number there of each of the program's numbers."""
    listed = set(words)
    counts = dict.fromkeys(words, 1)
    if train is not None:
        found = count_words(train).to_dict()
        # words that the program dropped are its unknown word
        dropped = sum(count for word, count in found.items() if word not in listed)
        counts = {word: max(1, found.get(word, 0)) for word in words}
        counts[words[-1]] = max(1, dropped + (found[UNK_WORD] if words[-1] == UNK_WORD else 0))
    vocab = Vocab.from_counts(counts)
    place = {word: i for i, word in enumerate(vocab.words)}
    return vocab, np.array([place[word] for word in words])


def _read_weights(
    lines: _Lines, model: LanguageModel, ours: npt.NDArray[np.int64], hidden: int
) -> None:
    """Fills the model's tables, row by row; reads the second moments and lets them go."""
    output, layer = model.output, model.layers[0]
    assert isinstance(output, FlatSoftmax)
    assert isinstance(layer, SimpleLayer)
    rows = {"Win:": len(ours), "Wout:": len(ours), "Wr:": hidden}
    for name, table in (("Win:", model.embedding), ("Wout:", output.table)):
        for place, row in zip(ours, _rows(lines, name, rows[name], hidden), strict=True):
            table.set_row(int(place), row)
    matrix = layer.recurrent.detach().numpy()
    for i, row in enumerate(_rows(lines, "Wr:", hidden, hidden)):
        matrix[i] = row
    for name, count in rows.items():
        for row in _rows(lines, f"RmsProps-{name}", count, hidden):
            if row.min() < 0:
                raise lines.fault("a second moment below 0")
    lines.expect_end()


def _rows(lines: _Lines, name: str, count: int, width: int) -> Iterator[npt.NDArray[np.float32]]:
    lines.heading(name)
    for i in range(count):
        what = f"row {i + 1} of {count} of the block {name}"
        line = lines.next(what)
        fields = line.split()
        if len(fields) != width:
            raise lines.fault(f"{len(fields)} numbers instead of {width} in {what}")
        try:
            if b"_" in line:
                raise ValueError("Python would read 1_0 as ten")
            with np.errstate(over="ignore"):
                row = np.array(fields, np.float64).astype(np.float32)
        except ValueError:
            raise lines.fault(f"{_shown(_first_bad(fields))} is not a number") from None
        if not np.isfinite(row).all():
            raise lines.fault(f"{_shown(fields[int(np.argmin(np.isfinite(row)))])} is no weight")
        yield row


def _first_bad(fields: list[bytes]) -> bytes:
    for field in fields:
        try:
            float(field)
        except ValueError:
            return field
        if b"_" in field:
            return field
    raise AssertionError("all are numbers")


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))
