"""Each promise names the tests that hold it, and they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = [
    line
    for line in (ROOT / "docs" / "promises.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("- ")
]


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[2:50])
def test_a_promise_is_held_by_tests_that_exist(line: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line)
    assert named, "a promise without a test"
    assert line.count("`tests/") == len(named)
    for path, name in named:
        assert (ROOT / path).is_file(), path
        assert name.startswith("test_")
        assert name in functions_of(ROOT / path), f"{path}::{name}"


def test_there_are_promises() -> None:
    assert len(LINES) > 20
