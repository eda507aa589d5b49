"""The documentation's site: whole, without warnings, and with nothing fetched from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mkdocstrings import Inventory

import blackout
import blackout.optim
import blackout.output
import blackout.proposals

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?([^\" >]+)", text)
        assert fetched
        assert not [link for link in fetched if link.startswith(("http", "//"))], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:http|//)", style.read_text())


def test_formulas_are_drawn(site: Path) -> None:
    text = (site / "method.html").read_text(encoding="utf-8")
    assert text.count("<math ") > 20
    assert "arithmatex" not in text


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    with (site / "objects.inv").open("rb") as file:
        described = {name.rsplit(".", 1)[-1] for name in Inventory.parse_sphinx(file)}
    made_by_name = {"PROPOSALS", "make_proposal", "Schedule"}
    for module in (blackout, blackout.output, blackout.optim, blackout.proposals):
        assert set(module.__all__) - made_by_name <= described


def test_it_can_be_searched(site: Path) -> None:
    assert "row-sparse" in (site / "search" / "search_index.json").read_text(encoding="utf-8")
