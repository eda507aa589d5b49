"""The notebook as a page of the site, with the output its cells print when they are run.

``python docs/site/notebook.py NOTEBOOK`` runs one and writes what it printed into it; as a hook of
MkDocs this file shows it.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"
PAGE = "first-steps.md"


def run(cells: list[dict[str, Any]]) -> list[str]:
    """Runs the code of a notebook from the first cell to the last; gives what each cell printed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for cell in cells:
        said = io.StringIO()
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(said):
                exec("".join(cell["source"]), names)
        printed.append(said.getvalue())
    return printed


def as_markdown(cells: list[dict[str, Any]]) -> str:
    """The notebook as a page."""
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("](../docs/", "]("))  # as it is from docs/
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def on_files(files: Any, config: Any) -> Any:
    """Adds the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=as_markdown(read(NOTEBOOK)["cells"])))
    return files


def main(path: Path) -> None:
    """Runs a notebook and keeps its output in it."""
    notebook = read(path)
    number = 0
    for cell, printed in zip(notebook["cells"], run(notebook["cells"]), strict=True):
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"] = number
            lines = printed.splitlines(keepends=True)
            output = {"name": "stdout", "output_type": "stream", "text": lines}
            cell["outputs"] = [output] if printed else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
