"""Interpolated modified Kneser-Ney, the estimates of KenLM's ``lmplz``.

The stages are native code (``csrc/ngram``), sorted outside memory: how much memory they take is
a setting, and the text may be far larger. Whatever the memory and the number of threads, the
same text gives the same file, byte for byte.

A literal ``<unk>`` in the text is the unknown word and is counted like any other word. Without
one, the unknown word has the mass that interpolation with the uniform distribution gives a word
that was never seen.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from blackout import _native
from blackout.config import ReadingConfig
from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.memory import total_memory
from blackout.ngram.gzip_writer import GzipWriter
from blackout.ngram.model import NGram
from blackout.text.source import scan, thread_count

__all__ = ["FALLBACK", "MAX_ORDER", "Estimate", "parse_size", "train"]

MAX_ORDER = 6
FALLBACK = (0.5, 1.0, 1.5)
_SMALLEST_MEMORY = 4096
_USUAL_MEMORY = 4 << 30

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Estimate:
    """What came out of an estimation."""

    ngrams: tuple[int, ...]
    """n-grams of each order in the model."""
    discounts: tuple[tuple[float, float, float], ...]
    """Of each order: what is taken from counts of 1, 2 and 3 or more."""
    warnings: tuple[str, ...]
    """One line for each order whose discounts had to be replaced."""
    words: int
    """Words of the text, sentence ends not counted."""
    sentences: int


def train(
    text: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    order: int = 5,
    prune: Sequence[int] = (),
    vocab: str | Path | None = None,
    discount_fallback: Sequence[float] | None = FALLBACK,
    memory: int | str | None = None,
    threads: int = 0,
    temp_dir: str | Path | None = None,
    config: ReadingConfig | None = None,
    progress: Progress | None = None,
) -> Estimate:
    """Estimates a model from one or more text files and writes it to ``out``.

    ``out`` is ARPA text, packed when its name ends in ``.gz``; or the binary form when it ends
    in ``.bin``. ``prune`` drops n-grams whose count is not above the threshold of their order
    (the last one stands for all higher orders). ``vocab`` is a file with one word a line, a tab
    and more behind it ignored: the model has exactly these words, all others are ``<unk>``.
    Discounts that the data is too small for are replaced by ``discount_fallback`` with a
    warning; None makes that an error. ``memory`` bounds the sorting, which continues in
    ``temp_dir``; by default 4 GiB, or half of the machine's memory where that is less.

    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "text").write_text("the cat sat\\nthe cat ran\\nthe end\\n")
    >>> estimate = train(folder / "text", folder / "model.arpa", order=2)
    >>> estimate.ngrams
    (8, 8)
    """
    paths = [Path(text)] if isinstance(text, str | Path) else [Path(path) for path in text]
    folder = Path(temp_dir if temp_dir is not None else tempfile.gettempdir())
    config = config or ReadingConfig()
    estimator = _native.NGramEstimator(
        order=_check_order(order),
        memory=_check_memory(memory),
        threads=thread_count(threads),
        folder=str(folder),
        prune=_check_prune(prune, order),
        fallback=_check_fallback(discount_fallback),
        **config.reading(),
    )
    if vocab is not None:
        for word in _read_vocab(Path(vocab)):
            estimator.announce(word)
    _count(estimator, paths, progress)
    with _replacing_model(Path(out), folder) as write, _native_errors(paths):
        result = estimator.estimate(write, progress)
    return Estimate(
        ngrams=tuple(result["ngrams"]),
        discounts=tuple(result["discounts"]),
        warnings=tuple(_warnings(result["failed"], discount_fallback)),
        words=estimator.tokens - estimator.sentences,
        sentences=estimator.sentences,
    )


def parse_size(text: str) -> int:
    """Bytes from a size such as ``800M`` or ``1.5G`` (powers of 1024).

    >>> parse_size("2K"), parse_size("1.5G"), parse_size("4096")
    (2048, 1610612736, 4096)
    """
    units = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    plain = text.strip().upper().removesuffix("IB")
    number = plain.rstrip("BKMGT")
    try:
        return int(float(number) * units[plain[len(number) :]])
    except (ValueError, KeyError, OverflowError):
        raise UserError(f"memory {text!r} is not a size such as 800M or 4G") from None


def _count(
    estimator: _native.NGramEstimator, paths: Sequence[Path], progress: Progress | None
) -> None:
    def report(done: int, total: int) -> None:
        if progress is not None:
            progress("counting", done, total)

    for path in paths:
        estimator.next_file()
        with _native_errors([path]):
            scan(path, estimator, progress=report)
    if estimator.sentences == 0:
        raise UserError(f"{', '.join(map(str, paths))}: no sentences in it")


@contextlib.contextmanager
def _native_errors(paths: Sequence[Path]) -> Iterator[None]:
    """Errors of the native stages as a user sees them."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{', '.join(map(str, paths))}: {error}") from None
    except RuntimeError as error:  # a full or missing temporary folder, too many n-grams
        raise UserError(str(error)) from None


@contextlib.contextmanager
def _replacing_model(out: Path, folder: Path) -> Iterator[Callable[[bytes], object]]:
    """Takes ARPA text and leaves, if all goes well, a model of the right kind at ``out``."""
    if out.suffix == ".bin":
        # without a name, so that nothing of it is left whatever ends this process
        try:
            with tempfile.TemporaryFile(dir=folder) as text:
                yield text.write
                text.seek(0)
                NGram.load(f"/dev/fd/{text.fileno()}").save(out)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"temporary folder {folder}: cannot be written: {reason}") from None
    elif out.suffix == ".gz":
        with replacing(out) as file, GzipWriter(file) as packed:
            yield packed.write
    else:
        with replacing(out) as file:
            yield file.write


def _check_order(order: int) -> int:
    if not 1 <= order <= MAX_ORDER:
        raise UserError(f"order is {order}, must be 1 to {MAX_ORDER}")
    return order


def _check_memory(memory: int | str | None) -> int:
    most = total_memory()
    if memory is None:
        return _USUAL_MEMORY if most is None else min(_USUAL_MEMORY, most // 2)
    size = parse_size(memory) if isinstance(memory, str) else memory
    if most is not None and size > most:
        raise UserError(f"memory is {memory}, but the machine has {most / 2**30:.1f}G")
    if size < _SMALLEST_MEMORY:
        raise UserError(f"memory is {memory}, must be at least {_SMALLEST_MEMORY} bytes")
    return size


def _check_prune(prune: Sequence[int], order: int) -> list[int]:
    thresholds = list(prune) or [0]
    if len(thresholds) > order:
        raise UserError(f"prune has {len(thresholds)} thresholds, but the order is {order}")
    if min(thresholds) < 0 or max(thresholds) >= 2**63 or thresholds != sorted(thresholds):
        shown = " ".join(map(str, thresholds))
        raise UserError(
            f"prune thresholds {shown} must be 0 or more, below 2**63, and must not fall"
        )
    return thresholds + thresholds[-1:] * (order - len(thresholds))


def _check_fallback(discounts: Sequence[float] | None) -> tuple[float, float, float] | None:
    if discounts is None:
        return None
    values = [float(value) for value in discounts]
    if len(values) != 3 or not all(0 <= d <= count for count, d in enumerate(values, 1)):
        shown = " ".join(map(str, discounts))
        raise UserError(f"discount fallback {shown} must be three numbers up to 1, 2 and 3")
    return values[0], values[1], values[2]


def _read_vocab(path: Path) -> list[bytes]:
    try:
        text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    words = []
    for number, line in enumerate(text.split(b"\n"), 1):
        fields = line.split(b"\t")[0].split()
        if len(fields) > 1:
            raise UserError(f"{path}: line {number}: more than one word")
        try:
            [field.decode() for field in fields]
        except UnicodeDecodeError:
            raise UserError(f"{path}: line {number}: invalid UTF-8") from None
        words += [word for word in fields if word not in (b"<s>", b"</s>", b"<unk>")]
    if not words:
        raise UserError(f"{path}: no words in it")
    return words


def _warnings(failed: Sequence[str], fallback: Sequence[float] | None) -> Iterator[str]:
    for order, why in enumerate(failed, 1):
        if why:
            shown = " ".join(f"{d:g}" for d in fallback or ())
            yield f"discounts of {order}-grams replaced by {shown}: {why}"
