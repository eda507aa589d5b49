"""A stranger's model takes no more memory than a stated multiple of its files, taken or refused."""

from __future__ import annotations

import itertools
import math
import string
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.fuzz.peak import watched

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.tensors import save_tensors
from blackout.models.saved import load, new_model
from blackout.ngram import NGram
from blackout.run_folder import RunFolder
from blackout.text.vocab import Vocab

SMALL = 64 << 20


def most_of_a_network(size: int, words: int) -> int:
    """Bytes: three times the files, a little, and what Python needs for each word."""
    return 3 * size + 300 * words + SMALL


def most_of_an_arpa(size: int) -> int:
    """Bytes: a line of six, a short word, becomes an entry of several tables."""
    return 50 * size + SMALL


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def saved(folder: Path, vocab: Vocab, hidden: int, last: float) -> None:
    """A network whose last number is ``last``."""
    config = Config.from_dict({"model": {"hidden": hidden}, "loss": {"samples": 3}})
    place = RunFolder(folder)
    fields = {"vocab_hash": vocab.hash, "config_hash": place.describe(config, vocab)}
    model = new_model(config, vocab)
    model.output.weight.data[-1, -1] = last
    save_tensors(place.weights, model.state_dict(), fields)


@pytest.mark.parametrize(("words", "hidden"), [(60_000, 128), (200_000, 1)])
@pytest.mark.parametrize("last", [0.5, math.inf])
def test_a_network(tmp_path, words, hidden, last):
    """Read whole, and refused at its last number; of large tables, and nearly all vocabulary."""
    vocab = Vocab.from_counts({"</s>": 1, **dict.fromkeys(short_words(words), 1)})
    saved(tmp_path, vocab, hidden, last)
    del vocab
    with watched() as spent, pytest.raises(UserError) if math.isinf(last) else nullcontext():
        load(tmp_path)
    assert spent.bytes <= most_of_a_network(size_of(tmp_path), words)


def short_words(count: int) -> list[str]:
    letters = string.ascii_letters + string.digits
    every = (itertools.product(letters, repeat=length) for length in itertools.count(1))
    return ["".join(word) for word in itertools.islice(itertools.chain.from_iterable(every), count)]


@pytest.mark.parametrize("end", ["\\end\\", ""])
def test_an_ngram_as_text(tmp_path, end):
    """Shortest words, one more than a table has room for; whole, and cut off at the end."""
    words = short_words(2**19 + 1)
    path = tmp_path / "model.arpa"
    lines = "".join(f"0\t{word}\n" for word in words)
    path.write_text(f"\\data\\\nngram 1={len(words)}\n\\1-grams:\n{lines}{end}\n")
    del words, lines
    with watched() as spent, nullcontext() if end else pytest.raises(UserError):
        NGram.load(path)
    assert spent.bytes <= most_of_an_arpa(path.stat().st_size)


def test_a_binary_ngram(tmp_path):
    words = short_words(2**19 + 1)
    lines = "".join(f"0\t{word}\n" for word in words)
    path = tmp_path / "model.arpa"
    path.write_text(f"\\data\\\nngram 1={len(words)}\n\\1-grams:\n{lines}\\end\\\n")
    NGram.load(path).save(tmp_path / "model.bin")
    with watched() as spent:
        model = NGram.load(tmp_path / "model.bin")
        assert len(model.vocab) >= len(words)
    assert spent.bytes <= 3 * (tmp_path / "model.bin").stat().st_size + SMALL
