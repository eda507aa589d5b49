"""Extreme multi-label classification, trained in four ways."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from documents import NONE, Documents


def test_all_ways_learn_from_made_up_documents(run_example):
    options = ("--labels", "200", "--documents", "3000", "--seconds", "0.5", "--lr", "0.01")
    printed = run_example("many_labels.py", *options, "--samples", "50")
    assert "2,700 documents, 200 labels" in printed
    found = dict(re.findall(r"^(\S.*?) {2,}.* ([\d.]+) +[\d.]+ +[\d.]+$", printed, re.MULTILINE))
    assert len(found) == 4
    assert all(float(first) > 0.1 for first in found.values()), found  # the most popular: 0.05
    assert float(found["BlackOut"]) > 0.3


def test_documents_of_a_file(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("3 9 5\n4,0 1:0.5 8:1\n 2:1\n3 0:1 1:2 7:0.1\n")
    documents = Documents.read(path)
    assert (len(documents), documents.n_words, documents.n_labels) == (3, 9, 5)
    assert documents.counts().tolist() == [1, 1, 1, 1, 1]
    batch = documents.batch(np.array([2, 0, 1]))
    assert batch.words.tolist() == [0, 1, 7, 1, 8, 2]
    assert batch.offsets.tolist() == [0, 3, 5]
    assert batch.labels.tolist() == [[3, NONE], [4, 0], [NONE, NONE]]
    path.write_text("4 9 5\n4 1:1\n")
    with pytest.raises(AssertionError, match=r"train\.txt: 1 documents, not 4"):
        Documents.read(path)


def test_what_is_held_out_is_not_trained_on():
    documents = Documents.made_up(100, 50)
    first, last = documents.parted(10)
    assert (len(first), len(last)) == (40, 10)
    assert np.array_equal(last.words[0], documents.words[40])
    other = Documents.made_up(100, 50, seed=1)
    assert not all(map(np.array_equal, documents.labels, other.labels))
