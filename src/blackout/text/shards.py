"""Token shards: a text as word numbers in one file that is mapped into memory, not read.

==============  =====================================================================
bytes           content
==============  =====================================================================
0 … 7           ``BLKOUTSH``
8 … 11          version, unsigned, little-endian
12 … 15         length of the description
16 … 4087       the description as JSON, then zeros: vocabulary hash, numbers of tokens,
                sentences and unknown words, XXH64 of the payload, what the source file
                was, the settings it was read with
4088 … 4095     XXH64 of everything before
4096 …          payload: the tokens, 32 bits each, zeros up to a multiple of 8 bytes,
                then 64 bits a sentence and one more: where each sentence begins
==============  =====================================================================

Sentence i is ``tokens[offsets[i]:offsets[i + 1]]`` and ends in ``</s>``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from blackout import _native
from blackout.config import ReadingConfig, TextConfig
from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.files.plain_json import from_json
from blackout.text.source import SourceId
from blackout.text.vocab import Vocab

__all__ = ["Shard", "ShardWriter"]

MAGIC = b"BLKOUTSH"
VERSION = 1
HEADER_BYTES = 4096

_TOKEN = np.dtype("<u4")
_OFFSET = np.dtype("<u8")
_COPY_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Shard:
    """An encoded text; ``tokens`` and ``offsets`` are views of the file."""

    path: Path
    tokens: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.uint64]
    unknown: int
    vocab_hash: str
    source: SourceId
    options: TextConfig
    types: int | None
    checksum: str = ""
    """XXH64 of the payload."""

    @property
    def sentences(self) -> int:
        return len(self.offsets) - 1

    @property
    def words(self) -> int:
        """Words without the sentence ends."""
        return len(self.tokens) - self.sentences

    @classmethod
    def open(cls, path: str | Path, vocab: Vocab | None = None, *, verify: bool = True) -> Shard:
        """Opens a shard; refuses it, by name, when it is damaged or of another vocabulary.

        ``verify=False`` leaves out the one pass over the payload.
        """
        path = Path(path)
        try:
            return cls._open(path, _read_header(path), vocab, verify)
        except UserError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError):
            raise UserError(f"{path}: damaged: its header lacks what a shard has") from None

    @classmethod
    def _open(cls, path: Path, about: dict[str, Any], vocab: Vocab | None, verify: bool) -> Shard:
        if vocab is not None and about["vocab_hash"] != vocab.hash:
            raise UserError(
                f"{path}: made with another vocabulary"
                f" ({about['vocab_hash'][:12]} instead of {vocab.hash[:12]})"
            )
        n_tokens, n_sentences = _whole(about, "tokens"), _whole(about, "sentences")
        begin = HEADER_BYTES + _padded(n_tokens * _TOKEN.itemsize)
        expected = begin + (n_sentences + 1) * _OFFSET.itemsize
        found = path.stat().st_size
        if found != expected:
            raise UserError(f"{path}: truncated or damaged: {found} bytes instead of {expected}")
        if verify and _checksum(path) != about["checksum"]:
            raise UserError(f"{path}: damaged: the checksum of its content does not match")
        tokens = np.memmap(path, _TOKEN, "r", HEADER_BYTES, (n_tokens,))
        offsets = np.memmap(path, _OFFSET, "r", begin, (n_sentences + 1,))
        if verify and not _is_sound(tokens, offsets, vocab):
            raise UserError(f"{path}: damaged: it has words or sentence ends that are none")
        return cls(
            path=path,
            tokens=tokens,
            offsets=offsets,
            unknown=_whole(about, "unknown"),
            vocab_hash=about["vocab_hash"],
            source=SourceId(**about["source"]),
            options=TextConfig(**about["options"]),
            types=None if about["types"] is None else _whole(about, "types"),
            checksum=about["checksum"],
        )


class ShardWriter:
    """Writes a shard piece by piece; it appears at ``path`` when it is complete."""

    def __init__(self, path: str | Path, vocab: Vocab) -> None:
        self._path, self._vocab_hash = Path(path), vocab.hash
        self._tokens = self._sentences = 0
        self._checksum = _native.Checksum()
        self._finished = False

    def __enter__(self) -> ShardWriter:
        with ExitStack() as stack:
            self._file: IO[bytes] = stack.enter_context(replacing(self._path))
            # The offsets come behind the tokens, whose number is not known yet.
            self._later: IO[bytes] = stack.enter_context(
                tempfile.TemporaryFile(dir=self._path.parent)
            )
            self._file.write(bytes(HEADER_BYTES))
            self._later.write(np.zeros(1, _OFFSET).tobytes())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None and not self._finished:
            unfinished = ValueError(f"{self._path}: the shard was not finished")
            self._stack.__exit__(ValueError, unfinished, None)
            raise unfinished
        self._stack.__exit__(*error)

    def add(self, tokens: npt.NDArray[np.uint32], ends: npt.NDArray[np.uint64]) -> None:
        """Appends tokens; ``ends`` says where sentences end, counted from the text's beginning."""
        self._payload(tokens.astype(_TOKEN, copy=False))
        self._later.write(memoryview(ends.astype(_OFFSET, copy=False)))  # type: ignore[arg-type]
        self._tokens += len(tokens)
        self._sentences += len(ends)

    def finish(
        self, *, unknown: int, source: SourceId, options: ReadingConfig, types: int | None = None
    ) -> None:
        """Appends the offsets and fills in the header."""
        payload = self._tokens * _TOKEN.itemsize
        self._payload(np.zeros(_padded(payload) - payload, np.uint8))
        self._later.seek(0)
        while piece := self._later.read(_COPY_BYTES):
            self._payload(np.frombuffer(piece, np.uint8))
        about = {
            "vocab_hash": self._vocab_hash,
            "tokens": self._tokens,
            "sentences": self._sentences,
            "unknown": unknown,
            "types": types,
            "checksum": f"{self._checksum.value():016x}",
            "source": source.to_dict(),
            "options": asdict(options),
        }
        self._file.seek(0)
        self._file.write(_header(about))
        self._finished = True

    def _payload(self, data: np.ndarray) -> None:
        self._checksum.update(data.view(np.uint8))
        self._file.write(memoryview(data))  # type: ignore[arg-type]


def _whole(about: dict[str, Any], name: str) -> int:
    """A number of things; a ValueError where it is none."""
    value = about[name]
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError
    return value


def _is_sound(tokens: np.ndarray, offsets: np.ndarray, vocab: Vocab | None) -> bool:
    """Whether words are words of the vocabulary, and sentences lie one behind another."""
    if vocab is not None and len(tokens) and int(tokens.max()) >= len(vocab):
        return False
    ends_right = int(offsets[0]) == 0 and int(offsets[-1]) == len(tokens)
    return ends_right and bool((offsets[1:] >= offsets[:-1]).all())


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _sum(pieces: Iterator[np.ndarray]) -> str:
    checksum = _native.Checksum()
    for piece in pieces:
        checksum.update(piece)
    return f"{checksum.value():016x}"


def _checksum(path: Path) -> str:
    payload = np.memmap(path, np.uint8, "r", HEADER_BYTES)
    return _sum(payload[i : i + _COPY_BYTES] for i in range(0, len(payload), _COPY_BYTES))


def _header(about: dict[str, Any]) -> bytes:
    description = json.dumps(about).encode()
    start = MAGIC + VERSION.to_bytes(4, "little") + len(description).to_bytes(4, "little")
    head = (start + description).ljust(HEADER_BYTES - 8, b"\0")
    if len(head) > HEADER_BYTES - 8:
        raise ValueError("the description does not fit into the header")
    return head + bytes.fromhex(_sum(iter([np.frombuffer(head, np.uint8)])))


def _read_header(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if header[:8] != MAGIC:
        raise UserError(f"{path}: not a token shard")
    if len(header) < HEADER_BYTES:
        raise UserError(f"{path}: truncated: the file ends inside the header")
    if (version := int.from_bytes(header[8:12], "little")) != VERSION:
        raise UserError(f"{path}: shard version {version}, this program reads version {VERSION}")
    if header[-8:].hex() != _sum(iter([np.frombuffer(header[:-8], np.uint8)])):
        raise UserError(f"{path}: damaged: the checksum of its header does not match")
    length = int.from_bytes(header[12:16], "little")
    about: dict[str, Any] = from_json(header[16 : 16 + length])
    return about
