"""Programs of others, called by a path that the user gives, on the same text for the same time.

Each is started on files with the words of our vocabulary, the others written as ``<unk>``, and
stopped when it has trained long enough; what it prints of validation text on the way is its curve.
Nothing of theirs is here but the options they are called with.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from blackout.errors import UserError
from blackout.text.vocab import UNK, Vocab


class Point(NamedTuple):
    """How a program stood: seconds of training, perplexity of validation text, words a second."""

    seconds: float
    perplexity: float
    words_per_second: float


@dataclass(frozen=True)
class Texts:
    """What a program is trained on."""

    train: Path
    valid: Path
    words: int
    """Words and sentence ends of the training text."""


@dataclass(frozen=True)
class Peer:
    """A program with some options."""

    program: str
    title: str
    options: tuple[str, ...]
    rates: tuple[str, ...]
    """Learning rates to be tried."""
    command: Callable[[Peer, Path, Texts, Path, int, str], list[str]]
    points: Callable[[Iterator[str], int, Callable[[], float]], Iterator[Point]]
    """From the lines it prints, the words of the text and its clock."""


def run_peer(
    peer: Peer, path: Path, texts: Texts, folder: Path, threads: int, rate: str, seconds: float
) -> list[Point]:
    """Its curve, as far as it comes in that time of training."""
    command = peer.command(peer, path, texts, folder, threads, rate)
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise UserError(f"{path}: cannot be run: {error.strerror or error}") from None
    found: list[Point] = []
    assert child.stdout is not None
    try:
        for point in peer.points(iter(child.stdout), texts.words, _clock(child.pid, threads)):
            if point.seconds > seconds:
                break
            found.append(point)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        child.stdout.close()
        child.wait()
    if not found:
        raise UserError(f"{path}: printed no perplexity within {seconds:g} s of training")
    return found


def _clock(pid: int, threads: int) -> Callable[[], float]:
    """Processor time of a program on one thread; of one on several, nothing: it says it itself."""
    stat, ticks = Path(f"/proc/{pid}/stat"), os.sysconf("SC_CLK_TCK")

    def spent() -> float:
        if threads > 1:
            return 0.0
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / ticks

    return spent


# ---------------------------------------------------------------------- yandex/faster-rnnlm

_EPOCH = re.compile(r"valid:\s*([0-9.]+).*elapsed:\s*([0-9.]+)([smh])\+([0-9.]+)([smh])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PARTS = 12  # of a pass over the text: so often it looks at validation text


def _faster_command(
    peer: Peer, path: Path, texts: Texts, folder: Path, threads: int, rate: str
) -> list[str]:
    for old in folder.glob("model*"):
        old.unlink()  # it would go on with it
    return [
        *(str(path), "-rnnlm", "model", "-train", str(texts.train), "-valid", str(texts.valid)),
        *("-hidden", "256", "-hidden-type", "sigmoid", "-threads", str(threads)),
        *("-epoch-per-file", str(_PARTS), "-alpha", rate, "-show-progress", "0", *peer.options),
    ]


def _faster_points(lines: Iterator[str], words: int, spent: Callable[[], float]) -> Iterator[Point]:
    """Lines "Epoch 3 … valid: 8.21 elapsed: 5.1s+0.9s": bits a word, training and validation."""
    seconds, before, parts = 0.0, spent(), 0
    for line in lines:
        if (found := _EPOCH.search(line)) is None:
            if "Initial entropy" in line:
                before = spent()  # what it did so far is not training
            continue
        bits, trained, unit, looked, other = found.groups()
        train, look = float(trained) * _UNITS[unit], float(looked) * _UNITS[other]
        now = spent()
        took = (now - before) * train / (train + look) if now > before and train else train
        seconds, before, parts = seconds + took, now, parts + 1
        yield Point(seconds, 2.0 ** float(bits), words / _PARTS * parts / max(seconds, 1e-9))


# ---------------------------------------------------------------------- the authors' program

_ITERATION = re.compile(r"words/sec:\s*([0-9.]+).*validate ppl:\s*([0-9.]+)")


def _authors_command(
    peer: Peer, path: Path, texts: Texts, folder: Path, threads: int, rate: str
) -> list[str]:
    return [
        *(str(path), "--train", str(texts.train), "--valid", str(texts.valid), "--rnnlm", "model"),
        *("--hidden", "256", "--batch-size", "128", "--bptt-block", "20", "--momentum", "0.999"),
        *("--lr", rate, "--lr-decay", "0.999", "--rmsprop-damping", "1e-4", "--max-iter", "100"),
        *("--gradient-cutoff", "1", "--numcores", str(threads), "--min-count", "1", *peer.options),
    ]


def _authors_points(
    lines: Iterator[str], words: int, spent: Callable[[], float]
) -> Iterator[Point]:
    """Lines "iter: 1 … words/sec: 83000.0 validate ppl: 212.4"."""
    seconds = 0.0
    for line in lines:
        if (found := _ITERATION.search(line)) is not None:
            speed, perplexity = (float(part) for part in found.groups())
            seconds += words / speed
            yield Point(seconds, perplexity, speed)


def _faster(title: str, *options: str) -> Peer:
    name = f"faster-rnnlm, {title}"
    return Peer(
        "faster-rnnlm", name, options, ("0.1", "0.05", "0.2"), _faster_command, _faster_points
    )


_DIRECT = ("-direct", "200", "-direct-order", "4")
_NCE = ("-nce", "22", "-nce-accurate-test", "1")
PEERS: Sequence[Peer] = (
    _faster("hierarchical"),
    _faster("hierarchical, direct", *_DIRECT),
    _faster("NCE", *_NCE),
    _faster("NCE, direct", *_NCE, *_DIRECT),
    Peer(
        "authors",
        "the authors' program, BlackOut",
        ("--algo", "blackout", "--alpha", "0.4", "--sample-k", "500"),
        ("0.01", "0.005", "0.02"),
        _authors_command,
        _authors_points,
    ),
)


def paths_of_peers(given: Sequence[str]) -> dict[str, Path]:
    """Programs by name from texts such as ``faster-rnnlm=/opt/rnnlm``."""
    known, found = sorted({peer.program for peer in PEERS}), dict[str, Path]()
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or name not in known:
            raise UserError(f"--peer {text}: must be NAME=PATH with NAME one of {', '.join(known)}")
        found[name] = Path(path).absolute()
        if not found[name].is_file():
            raise UserError(f"--peer {text}: there is no such file")
    return found


def write_known_words(text: Path, out: Path, vocab: Vocab) -> None:
    """A copy of a text in which the words that the vocabulary does not have are ``<unk>``."""
    known, unknown = set(vocab.words), vocab.word(UNK)
    with text.open(encoding="utf-8", errors="replace") as lines, out.open("w") as file:
        for line in lines:
            words = (word if word in known else unknown for word in line.split())
            file.write(" ".join(words) + "\n")
