"""Programs of others, called by a path that the user gives, on the same text for the same time.

Each is started on files with the words of our vocabulary, the others written as ``<unk>``, and
stopped when it has trained long enough; what it prints of validation text on the way is its curve.
Nothing of theirs is here but the options they are called with.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from blackout.errors import UserError
from blackout.text.vocab import UNK, Vocab


class Point(NamedTuple):
    """How a program stood."""

    seconds: float
    """Of training."""
    perplexity: float
    """Of validation text."""
    words_per_second: float
    scored_per_second: float = 0.0
    """Words of validation text; 0 where it cannot be known."""
    peak_bytes: int = 0


@dataclass(frozen=True)
class Texts:
    """What a program is trained on."""

    train: Path
    valid: Path
    words: int
    """Words and sentence ends of the training text."""
    valid_words: int = 0


@dataclass(frozen=True)
class Run:
    """A program's run: where it is, its text, the folder it works in, and how long."""

    path: Path
    texts: Texts
    folder: Path
    threads: int
    rate: str
    marks: Sequence[float]
    """Seconds of training after which it is to be seen; the last ends the run."""


@dataclass(frozen=True)
class Peer:
    """A program with some options."""

    program: str
    title: str
    options: tuple[str, ...]
    rates: tuple[str, ...]
    """Learning rates to be tried."""
    curve: Callable[[Peer, Run], list[Point]]
    """Runs it; ends with a point at the last mark or behind it, unless the program ends before."""


class TooEarly(Exception):
    """A program that had not said anything by that time."""


def run_peer(peer: Peer, run: Run) -> list[Point]:
    """Its curve."""
    found = peer.curve(peer, run)
    if not found:
        raise UserError(f"{run.path}: printed no perplexity in {run.marks[-1]:g} s of training")
    return found


def at_time(points: Sequence[Point], seconds: float) -> Point:
    """How a program stood at a time, on a straight line in logarithms between its points.

    >>> at_time([Point(10, 400.0, 7.0), Point(40, 100.0, 8.0)], 20)[:3]
    (20, 200.0, 7.0)
    """
    if seconds < 0.95 * points[0].seconds:
        raise TooEarly
    if seconds <= points[0].seconds:
        return points[0]
    for before, after in pairwise(points):
        if before.seconds <= seconds < after.seconds:
            way = math.log(seconds / before.seconds) / math.log(after.seconds / before.seconds)
            ratio = after.perplexity / before.perplexity
            return before._replace(seconds=seconds, perplexity=before.perplexity * ratio**way)
    return points[-1]


class _Clock:
    """Processor time of a program's training, its main thread's, and the memory it has had."""

    def __init__(self, pid: int) -> None:
        self._all, self._main = Path(f"/proc/{pid}/stat"), Path(f"/proc/{pid}/task/{pid}/stat")
        self._status = Path(f"/proc/{pid}/status")
        self._peak = 0

    def whole(self) -> float:
        """Of all its threads, past ones too."""
        return _seconds(self._all)

    def main(self) -> float:
        """Of the thread it began with."""
        return _seconds(self._main)

    def peak_bytes(self) -> int:
        with contextlib.suppress(OSError):
            for line in self._status.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self._peak = 1024 * int(line.split()[1])
        return self._peak


def _seconds(stat: Path) -> float:
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _started(command: Sequence[str], folder: Path) -> Iterator[tuple[Iterator[str], _Clock]]:
    """The lines a program prints, and its clock; the program ends with the block."""
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
        raise UserError(f"{command[0]}: cannot be run: {error.strerror or error}") from None
    assert child.stdout is not None
    try:
        yield iter(child.stdout), _Clock(child.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        child.stdout.close()
        child.wait()


# ---------------------------------------------------------------------- yandex/faster-rnnlm

_EPOCH = re.compile(r"valid:\s*([0-9.]+).*elapsed:\s*([0-9.]+)([smh])\+([0-9.]+)([smh])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PART = 2_000_000  # words between two looks at validation text
_STOP = 1.003  # its own: the rate falls when a pass over the text gains less than this


def _faster_curve(peer: Peer, run: Run) -> list[Point]:
    """Lines "Epoch 3 … valid: 8.21 elapsed: 5.1s+0.9s": bits a word, training and validation."""
    texts = run.texts
    parts = max(1, round(texts.words / _PART))
    for old in run.folder.glob("model*"):
        old.unlink()  # it would go on with it
    command = [
        *(str(run.path), "-rnnlm", "model", "-train", str(texts.train)),
        *("-valid", str(texts.valid), "-hidden", "256", "-hidden-type", "sigmoid"),
        *("-threads", str(run.threads), "-epoch-per-file", str(parts), "-alpha", run.rate),
        *("-stop", f"{_STOP ** (1 / parts):.6f}", "-show-progress", "0", *peer.options),
    ]
    found: list[Point] = []
    with _started(command, run.folder) as (lines, clock):
        said = begun = looked = 0.0
        for line in lines:
            if (match := _EPOCH.search(line)) is None:
                if "Initial entropy" in line:
                    begun = clock.main()
                continue
            bits, train, unit, look, other = match.groups()
            said += float(train) * _UNITS[unit]
            # it trains in threads of their own and validates in the one it began with
            trained = clock.whole() - clock.main() if run.threads == 1 else 0.0
            seconds = trained or said
            if not found:  # later on it has saved the model in between
                looked = clock.main() - begun if run.threads == 1 else 0.0
                looked = looked or float(look) * _UNITS[other]
            scored = texts.valid_words / max(looked, 1e-9)
            words = texts.words / parts * (len(found) + 1)
            found.append(
                Point(
                    seconds,
                    2.0 ** float(bits),
                    words / max(seconds, 1e-9),
                    scored,
                    clock.peak_bytes(),
                )
            )
            if seconds >= run.marks[-1]:
                break
    return found


# ---------------------------------------------------------------------- the authors' program

_PROGRESS = re.compile(r"progress:\s*([0-9.]+)%\s*words/sec:\s*([0-9.]+)")
_DONE = re.compile(r"words/sec:\s*([0-9.]+).*validate ppl:\s*([0-9.]+)")
_ENOUGH = 4  # lines of progress, a hundred blocks each, that tell its speed


def _authors_curve(peer: Peer, run: Run) -> list[Point]:
    """One pass over as much of the text as the time is enough for: it says nothing earlier."""
    speed = _authors_pass(peer, run, run.texts, only_speed=True).words_per_second
    found = []
    for mark in run.marks:
        part = _beginning(run.texts, min(run.texts.words, int(speed * mark)), run.folder)
        found.append(_authors_pass(peer, run, part))
    return found


def _authors_pass(peer: Peer, run: Run, texts: Texts, only_speed: bool = False) -> Point:
    """Lines "iter: 0 … progress: 3.1% words/sec: 83000.0", at last "… validate ppl: 212.4"."""
    lr, _, damping = run.rate.partition("/")
    command = [
        *(str(run.path), "--train", str(texts.train), "--valid", str(texts.valid)),
        *("--rnnlm", "model", "--hidden", "256", "--batch-size", "128", "--bptt-block", "20"),
        *("--momentum", "0.999", "--lr", lr, "--rmsprop-damping", damping, "--max-iter", "1"),
        *("--gradient-cutoff", "1", "--numcores", str(run.threads), "--min-count", "1"),
        *("--eval-unk", *peer.options),
    ]
    seen: list[tuple[float, float]] = []  # processor time and words so far
    speed = perplexity = 0.0
    with _started(command, run.folder) as (lines, clock):
        for line in lines:
            if (match := _PROGRESS.search(line)) is not None:
                said = float(match.group(2))
                # a line is read when the next one begins: the last one only after validation
                speed = speed if run.threads == 1 and len(seen) > 1 else said
                if run.threads == 1 and len(seen) > 1 and seen[-1][0] > seen[0][0]:
                    (before, first), (now, last) = seen[0], seen[-1]
                    speed = (last - first) / (now - before)
                seen.append((clock.whole(), texts.words * float(match.group(1)) / 100))
                if only_speed and len(seen) == _ENOUGH:
                    break
                clock.peak_bytes()
            elif (match := _DONE.search(line)) is not None:
                speed, perplexity = speed or float(match.group(1)), float(match.group(2))
        peak = clock.peak_bytes()
    if not speed or not (perplexity or only_speed):
        raise UserError(f"{run.path}: printed no {'perplexity' if speed else 'speed of training'}")
    return Point(texts.words / speed, perplexity, speed, peak_bytes=peak)


def _beginning(texts: Texts, words: int, folder: Path) -> Texts:
    """As many lines as have so many words and sentence ends."""
    path, found = folder / f"train-{words}", 0
    with texts.train.open() as whole, path.open("w") as part:
        for line in whole:
            if found >= words:
                break
            found += len(line.split()) + 1
            part.write(line)
    return Texts(path, texts.valid, found, texts.valid_words)


def _faster(title: str, *options: str) -> Peer:
    name = f"faster-rnnlm, {title}"
    return Peer("faster-rnnlm", name, options, ("0.1", "0.05", "0.2"), _faster_curve)


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
        ("0.01/1e-4", "0.001/1e-5", "0.001/1e-6"),  # rate and damping
        _authors_curve,
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
