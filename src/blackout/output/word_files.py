"""Files in which a user gives a tree or classes of words, one word a line.

A tree: the word and its path from the root, the numbers of the children joined by dots. A path may
end anywhere but inside another one's. Classes: the word and the name of its class, any text.

    the     0.1.1               the     DET
    cat     0.1.0               cat     ANIMAL

Word and the rest are separated by a tab or spaces. Words that a vocabulary does not have are left
out; one that it has must be there, and once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blackout.errors import UserError
from blackout.ops.tree import Tree
from blackout.output.trees import NO_NODE, tree_above

_MOST_CHOICES = 10_000  # on a path: more is a mistake or a trap


def read_classes(path: str | Path, words: Sequence[str]) -> np.ndarray:
    """The class (V,) of each word, numbered as they come in the file."""
    numbers: dict[str, int] = {}
    given = _read(path, words, "class")
    by_line = sorted(range(len(words)), key=lambda word: given[word][1])
    found = np.empty(len(words), np.int64)
    for word in by_line:
        found[word] = numbers.setdefault(given[word][0], len(numbers))
    return found


def read_tree(path: str | Path, words: Sequence[str], counts: np.ndarray) -> Tree:
    """The tree over these words."""
    nodes: dict[tuple[int, int], int] = {}  # (node, child) → node
    leaves: dict[tuple[int, int], int] = {}  # (node, child) → word
    up_nodes, up_words = [NO_NODE], np.empty(len(words), np.int64)
    for word, (text, line) in enumerate(_read(path, words, "path")):
        *above, last = _choices(text, f"{path}:{line}")
        node = 0
        for choice in above:
            step = (node, choice)
            if step in leaves:
                raise _clash(path, line, words[word], words[leaves[step]], "goes on from")
            if step not in nodes:
                nodes[step] = len(up_nodes)
                up_nodes.append(node)
            node = nodes[step]
        if (node, last) in leaves:
            raise _clash(path, line, words[word], words[leaves[node, last]], "is")
        if (node, last) in nodes:
            about = f"the path of {words[word]!r} is the beginning of another"
            raise UserError(f"{path}:{line}: {about}")
        leaves[node, last] = word
        up_words[word] = node
    return tree_above(up_words, np.array(up_nodes), counts)


def _clash(path: str | Path, line: int, word: str, other: str, how: str) -> UserError:
    return UserError(f"{path}:{line}: the path of {word!r} {how} that of {other!r}")


def _choices(text: str, where: str) -> list[int]:
    parts = text.split(".")
    if len(parts) > _MOST_CHOICES:
        raise UserError(f"{where}: a path of {len(parts):,} choices is too long")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UserError(f"{where}: {text[:40]!r} is no path: numbers joined by dots, such as 0.1.1")
    return [int(part) for part in parts]


def _read(path: str | Path, words: Sequence[str], what: str) -> list[tuple[str, int]]:
    """What is said of each word, and in which line."""
    number = {word: i for i, word in enumerate(words)}
    found: list[tuple[str, int] | None] = [None] * len(words)
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            for line, text in enumerate(file, 1):
                parts = text.split()
                if not parts:
                    continue
                if len(parts) != 2:
                    raise UserError(f"{path}:{line}: must be a word and its {what}")
                if (word := number.get(parts[0])) is None:
                    continue
                if (before := found[word]) is not None:
                    raise UserError(
                        f"{path}:{line}: {parts[0]!r} is there twice, first in line {before[1]}"
                    )
                found[word] = (parts[1], line)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not valid UTF-8") from None
    complete = [one for one in found if one is not None]
    if len(complete) < len(words):
        missing = [word for word, one in zip(words, found, strict=True) if one is None]
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise UserError(f"{path}: has no {what} for {missing[0]!r}{more}: words of the vocabulary")
    return complete
