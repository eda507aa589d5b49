"""A Lightning module with clipping and checkpoints."""

import ast
import re

import pytest

pytest.importorskip("lightning")


def test_it_learns_clips_and_loads(run_example, tmp_path):
    options = ("--classes", "1000", "--steps", "100", "--folder", str(tmp_path))
    printed = run_example("with_lightning.py", *options)
    found = ast.literal_eval(re.search(r"\{.*\}", printed)[0])
    assert found["accuracy"] > 0.4
    assert found["norm"] > 0  # the hook was called with gradients that are row-sparse
    assert "it predicts the same: True" in printed
