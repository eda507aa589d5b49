"""Each promise names the tests that hold it, and they exist, as many as it says."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = [
    line
    for line in (ROOT / "docs" / "promises.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("- ")
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[2:50])
def test_a_promise_is_held_by_tests_that_exist(line: str) -> None:
    named = NAMED.findall(line)
    assert named, "a promise without a test"
    assert line.count("`tests/") == len(named)
    for path, name in named:
        assert (ROOT / path).is_file(), path
        assert name.startswith("test_")
        assert name in functions_of(ROOT / path), f"{path}::{name}"


def test_there_are_as_many_cases_as_it_says(request: pytest.FixtureRequest) -> None:
    """Of promises all of whose tests are in this run; tests/docs/tried.py writes the figures."""
    options = request.config.option
    if options.keyword or options.markexpr or any("::" in name for name in request.config.args):
        pytest.skip("a part of the tests")
    found: Counter[tuple[str, str]] = Counter()
    for item in request.session.items:
        path = Path(item.path).relative_to(ROOT).as_posix()
        found[path, item.name.partition("[")[0]] += 1
    for line in LINES:
        figure = re.search(r"\(([\d,]+) cases?, \d{4}-\d\d-\d\d\)$", line)
        assert figure or line.endswith("(not tried)"), f"no figure: {line}"
        named = NAMED.findall(line)
        if figure and all(found[test] for test in named):
            assert sum(found[test] for test in named) >= int(figure[1].replace(",", "")), line


def test_there_are_promises() -> None:
    assert len(LINES) > 20
