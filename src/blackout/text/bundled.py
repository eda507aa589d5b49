"""A small English text that every Python has: the language reference in ``pydoc_data.topics``.

Some 90,000 words and punctuation marks, enough to see a language model learn, without a download.
The topics quote each other at length: nearly a third of a held-out part would also stand in the
training part. So every sentence is taken once, where it first occurs, which leaves 76,000 words
(Python 3.11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from blackout.errors import UserError
from blackout.files.atomic import replacing

__all__ = ["bundled_sentences", "bundled_text"]

_BLOCK = 10  # sentences that stay together in one part
_TOKEN = re.compile(r"[a-z0-9_]+(?:['-][a-z0-9_]+)*|[^\sa-z0-9_]")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"*`(])")
_RULE = re.compile(r"^[\s*=\-~^\"+|]*$")


def bundled_text(folder: str | Path) -> dict[str, Path]:
    """Writes ``train``, ``valid`` and ``test`` into the folder and gives their paths.

    Eight of ten blocks of neighbouring sentences are for training, one each for the others;
    the same Python gives the same files.

    >>> import tempfile
    >>> sorted(bundled_text(tempfile.mkdtemp()))
    ['test', 'train', 'valid']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for i, sentence in enumerate(bundled_sentences()):
        turn = i // _BLOCK % 10
        parts["valid" if turn == 4 else "test" if turn == 9 else "train"].append(sentence)
    paths = {}
    for part, sentences in parts.items():
        paths[part] = folder / f"{part}.txt"
        with replacing(paths[part]) as file:
            file.write("".join(f"{sentence}\n" for sentence in sentences).encode())
    return paths


def bundled_sentences() -> Iterator[str]:
    """The distinct sentences of the text: lower-case words and punctuation, between spaces."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise UserError("this Python lacks pydoc_data.topics, the bundled text") from None
    seen = {""}
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            text = " ".join(line for line in paragraph.split("\n") if not _RULE.match(line))
            for raw in _SENTENCE_END.split(text):
                sentence = " ".join(_TOKEN.findall(raw.lower()))
                if sentence not in seen:
                    seen.add(sentence)
                    yield sentence
