"""Pages of the site that lie at the top of the repository: one text, shown in both places."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_LINK.sub(_moved, text)))
    return files


def _moved(link: re.Match[str]) -> str:
    """A link from the top of the repository, as it is from docs/."""
    path, _, place = link[2].partition("#")
    path = PAGES.get(path, path.removeprefix("docs/"))
    return f"{link[1]}{path}{'#' + place if place else ''}{link[3]}"
