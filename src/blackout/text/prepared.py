"""A folder with a vocabulary and token shards: text prepared once for many runs.

``vocab.txt``, ``train.shard`` and, where given, ``valid.shard`` and ``test.shard``. What is there
already is used again when it still belongs to the same text, settings and vocabulary; anything
else is made anew. The training shard is written before the vocabulary: so a ``vocab.txt`` without
a ``train.shard`` beside it is not ours, and is never overwritten.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> _ = (folder / "text").write_text("the cat sat\\nthe end\\n")
>>> prepared = prepare(folder / "text", folder / "data", TextConfig(min_count=2))
>>> prepared.vocab.words, prepared.shard("train").tokens.tolist()
(['</s>', '<unk>', 'the'], [2, 1, 1, 0, 2, 1, 0])
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.files.atomic import make_folder, remove_leftovers
from blackout.text.corpus import count_words, encode_file
from blackout.text.shards import Shard
from blackout.text.source import Progress, check_file
from blackout.text.vocab import Vocab

__all__ = ["Prepared", "open_prepared", "prepare"]

PARTS = ("train", "valid", "test")

_LEAST_KNOWN = 0.25
"""Least share of known words in held-out text, as a fraction of the training text's own share.

Measured on English Wikipedia, held-out text keeps 0.77 of it with as little as 2,000 training
sentences, and languages with many word forms keep less; text in the wrong case keeps 0.17 to
0.22, little more than its punctuation. It is a fraction of the training text's share because a
vocabulary of ten words knows little of any text."""


@dataclass(frozen=True)
class Prepared:
    """A prepared folder, opened."""

    folder: Path
    vocab: Vocab
    shards: dict[str, Shard]

    def shard(self, part: str) -> Shard:
        """The shard of "train", "valid" or "test"."""
        if part not in self.shards:
            raise UserError(f"{self.folder}: has no {part} text")
        return self.shards[part]


def prepare(
    train: str | Path,
    out: str | Path,
    config: TextConfig | None = None,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Prepared:
    """Makes, or finds made, the vocabulary of ``train`` and the shards of all three texts."""
    train, out, config = Path(train), Path(out), config or TextConfig()
    texts = {"valid": valid, "test": test}
    for text in (train, valid, test):
        if text is not None:
            check_file(text)  # now, not after an hour of counting the first
    make_folder(out)
    for name in ("vocab.txt", *(f"{part}.shard" for part in PARTS)):
        remove_leftovers(out / name)  # of killed processes, perhaps gigabytes
    found = _find_train(train, out, config)
    vocab, shard = found or _make_train(train, out, config, threads, progress)
    shards = {"train": shard}
    for part, text in texts.items():
        if text is not None:
            path = out / f"{part}.shard"
            shards[part] = _find(text, path, vocab, config) or encode_file(
                text, vocab, config, path, threads, progress
            )
            _check_shares_words(Path(text), shards[part], shard)
    return Prepared(out, vocab, shards)


def open_prepared(
    out: str | Path, parts: Collection[str] = PARTS, *, verify: bool = True
) -> Prepared:
    """Opens what :func:`prepare` made; a missing or damaged file is refused by name.

    Of ``parts`` those that are there; the others are not looked at. ``verify=False`` leaves out
    the one pass over each shard's content.
    """
    out = Path(out)
    vocab = Vocab.load(out / "vocab.txt")
    paths = {part: out / f"{part}.shard" for part in PARTS if part in parts}
    shards = {
        part: Shard.open(path, vocab, verify=verify)
        for part, path in paths.items()
        if part == "train" or path.exists()
    }
    return Prepared(out, vocab, shards)


def _find_train(text: Path, out: Path, config: TextConfig) -> tuple[Vocab, Shard] | None:
    if not (out / "vocab.txt").exists():
        return None
    if not (out / "train.shard").exists():
        raise UserError(f"{out / 'vocab.txt'}: not made by prepare; choose another folder")
    try:
        vocab = Vocab.load(out / "vocab.txt")
    except UserError:
        return None  # damaged; the text is here to make it again
    shard = _find(text, out / "train.shard", vocab, config)
    return (vocab, shard) if shard and shard.options == config else None


def _find(text: str | Path, path: Path, vocab: Vocab, config: TextConfig) -> Shard | None:
    """The shard at ``path`` if it is whole and what encoding ``text`` would give."""
    try:
        shard = Shard.open(path, vocab)
    except UserError:
        return None
    same = shard.options.reading() == config.reading()
    return shard if same and shard.source.still(text) else None


def _make_train(
    text: Path, out: Path, config: TextConfig, threads: int, progress: Progress | None
) -> tuple[Vocab, Shard]:
    def half(first: bool) -> Progress | None:
        """Counting is the first half of the way, encoding the second."""
        if progress is None:
            return None
        return lambda done, total: progress(done if first else total + done, 2 * total)

    counts = count_words(text, config, threads, half(True))
    vocab = Vocab.from_counts(counts, config.vocab_size, config.min_count)
    if len(vocab) == 2:
        raise UserError(
            f"{text}: no word is left for the vocabulary"
            f" ({counts.types} distinct words, min_count {config.min_count})"
        )
    path = out / "train.shard"
    shard = encode_file(text, vocab, config, path, threads, half(False), types=counts.types)
    if shard.source.checksum != counts.sources[0].checksum:
        raise UserError(f"{text}: changed while it was read")
    vocab.save(out / "vocab.txt")
    return vocab, shard


def _check_shares_words(text: Path, shard: Shard, train: Shard) -> None:
    known, known_in_train = (1 - s.unknown / max(s.words, 1) for s in (shard, train))
    if shard.words and known < _LEAST_KNOWN * known_in_train:
        raise UserError(
            f"{text}: shares almost no words with the training text:"
            f" {shard.unknown} of its {shard.words} words are unknown"
        )
