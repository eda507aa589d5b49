"""A sequential recommender, trained in five ways."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from sessions import Sessions


def test_all_ways_learn_from_made_up_sessions(run_example):
    options = ("--items", "300", "--users", "2000", "--seconds", "0.8", "--lr", "0.01")
    printed = run_example("recommender.py", *options, "--samples", "50", "--eval-users", "500")
    assert "2,000 users, 300 items" in printed
    found = dict(re.findall(r"^(\S.*?) {2,}.* ([\d.]+) +[\d.]+$", printed, re.MULTILINE))
    assert len(found) == 5
    assert all(float(recall) > 20 / 300 for recall in found.values()), found  # a guess
    assert float(found["BlackOut"]) > 0.2


def test_interactions_of_a_file(tmp_path):
    path = tmp_path / "interactions"
    path.write_text("2 5\n1 3\n1 4\n1 2\n1 1\n2 4\n3 1\n2 3\n")
    sessions = Sessions.read(path)
    assert [history.tolist() for history in sessions.histories] == [[3, 4, 2, 1], [5, 4, 3]]
    assert sessions.n_items == 5
    assert sessions.counts().tolist() == [1, 1, 1, 1, 1, 1]
    items, following = sessions.batch(np.array([0, 1]))  # the last two items are held out
    assert items.tolist() == [[3], [0]]
    assert following.tolist() == [[4], [0]]
    known, target = sessions.held_out(np.array([0, 1]), "test")
    assert known.tolist() == [[3, 4, 2], [5, 4, 0]]
    assert torch.equal(target, torch.tensor([1, 3]))


@pytest.mark.parametrize("part", ["valid", "test"])
def test_what_is_held_out_is_not_trained_on(part):
    sessions = Sessions.made_up(100, 50)
    users = np.arange(50)
    _, target = sessions.held_out(users, part)
    place = {"valid": 18, "test": 19}[part]
    assert torch.equal(target, torch.tensor([history[place] for history in sessions.histories]))
    items, following = sessions.batch(users)
    assert items.shape == (50, 17)
    assert torch.equal(items[:, 1:], following[:, :-1])
