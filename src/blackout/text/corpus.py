"""Counting the words of text files, and encoding a text file as a shard of word numbers.

One sentence per line, UTF-8. Words are separated by spaces, tabs, carriage returns, vertical
tabs and form feeds (bytes 20, 09, 0D, 0B, 0C hex), and by nothing else: a no-break space or
another separator of Unicode is part of a word. A line ends at a line feed; the last one may lack
it. A byte-order mark at the beginning is dropped. Each line with a word is a sentence and ends in
``</s>``; empty lines are skipped, or are empty sentences with ``keep_empty``. Invalid UTF-8, a
NUL byte, a literal ``<s>`` or ``</s>`` and a word of more than 64 KiB are errors with file and
line; ``replace_invalid`` and ``skip_markers`` read on instead. Names that end in ``.gz`` or
``.xz`` are unpacked on the way. Memory stays bounded whatever the length of the file or of a
line; only the distinct words are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from blackout import _native
from blackout.config import ReadingConfig
from blackout.errors import UserError
from blackout.text.shards import Shard, ShardWriter
from blackout.text.source import CHUNK_BYTES, Progress, SourceId, scan, thread_count
from blackout.text.vocab import EOS_WORD, UNK_WORD, Vocab

__all__ = ["WordCounts", "count_words", "encode_file"]


@dataclass(frozen=True, eq=False)
class WordCounts:
    """How often each word occurs, the most frequent first, ties by their bytes."""

    sentences: int
    unknown: int
    """How often the text has a literal ``<unk>``."""
    counts: npt.NDArray[np.uint64]
    """Of the words other than ``<unk>``, falling."""
    sources: tuple[SourceId, ...]
    _joined: bytes
    _ends: npt.NDArray[np.uint64]

    @property
    def types(self) -> int:
        """Distinct words, ``<unk>`` and ``</s>`` left out."""
        return len(self.counts)

    @property
    def tokens(self) -> int:
        """All words and sentence ends."""
        return int(self.counts.sum()) + self.unknown + self.sentences

    def top(self, n: int) -> list[str]:
        """The n most frequent words."""
        return self._joined[: int(self._ends[n - 1])].decode().split("\n") if n else []

    def to_dict(self) -> dict[str, int]:
        """All counts by word, the sentences under ``</s>``."""
        counts = dict(zip(self.top(self.types), self.counts.tolist(), strict=True))
        return {EOS_WORD: self.sentences, UNK_WORD: self.unknown, **counts}


def count_words(
    paths: str | Path | Sequence[str | Path],
    config: ReadingConfig | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> WordCounts:
    """Counts the words of one or more text files, with all cores when ``threads`` is 0.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "text"
    >>> _ = path.write_text("the cat sat\\nthe end\\n")
    >>> counts = count_words(path)
    >>> counts.to_dict()
    {'</s>': 2, '<unk>': 0, 'the': 2, 'cat': 1, 'end': 1, 'sat': 1}
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    config = config or ReadingConfig()
    counter = _native.WordCounter(**config.reading(), threads=thread_count(threads))
    sources = []
    for path in paths:
        counter.next_file()
        sources.append(scan(path, counter, progress=progress, chunk_bytes=chunk_bytes))
    joined, ends, counts, sentences = counter.result()
    if sentences == 0:
        raise UserError(f"{', '.join(map(str, paths))}: no sentences in it")
    joined, ends, counts, unknown = _without_unk(joined, ends, counts)
    return WordCounts(sentences, unknown, counts, tuple(sources), joined, ends)


def encode_file(
    path: str | Path,
    vocab: Vocab,
    config: ReadingConfig | None,
    shard_path: str | Path,
    threads: int = 0,
    progress: Progress | None = None,
    *,
    types: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Shard:
    """Encodes a text file with a vocabulary; writes the shard and opens it.

    ``types`` is kept in the shard for whoever asks how many distinct words the text has.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "text").write_text("the cat sat\\nthe end\\n")
    >>> vocab = Vocab.from_counts({"</s>": 2, "the": 2, "end": 1})
    >>> shard = encode_file(folder / "text", vocab, None, folder / "text.shard")
    >>> shard.tokens.tolist(), shard.offsets.tolist(), shard.unknown
    ([2, 1, 1, 0, 2, 3, 0], [0, 4, 7], 2)
    """
    config = config or ReadingConfig()
    encoder = _native.Encoder(vocab.word_map, **config.reading(), threads=thread_count(threads))
    with ShardWriter(shard_path, vocab) as writer:
        source = scan(
            path,
            encoder,
            used=lambda: writer.add(*encoder.take()),
            progress=progress,
            chunk_bytes=chunk_bytes,
        )
        if encoder.sentences == 0:
            raise UserError(f"{path}: no sentences in it")
        writer.finish(unknown=encoder.unknown, source=source, options=config, types=types)
    return Shard.open(shard_path, vocab, verify=False)


def _without_unk(
    joined: bytes, ends: npt.NDArray[np.uint64], counts: npt.NDArray[np.uint64]
) -> tuple[bytes, npt.NDArray[np.uint64], npt.NDArray[np.uint64], int]:
    """A literal <unk> is the unknown word, not a word of its own: takes it out of the list."""
    line = UNK_WORD.encode() + b"\n"
    begin = 0 if joined.startswith(line) else joined.find(b"\n" + line) + 1
    if begin == 0 and not joined.startswith(line):
        return joined, ends, counts, 0
    i = int(np.searchsorted(ends, begin))
    unknown = int(counts[i])
    ends = np.concatenate([ends[:i], ends[i + 1 :] - np.uint64(len(line))])
    return joined[:begin] + joined[begin + len(line) :], ends, np.delete(counts, i), unknown
