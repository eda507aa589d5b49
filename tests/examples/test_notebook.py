"""The notebook runs from its first cell to its last, and shows what its words say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_notebook_runs_and_shows_what_it_says() -> None:
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs/site/notebook.py")
    assert spec is not None
    assert spec.loader is not None
    notebook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebook)
    cells = notebook.read(notebook.NOTEBOOK)["cells"]
    printed = notebook.run(cells)
    code = [text for cell, text in zip(cells, printed, strict=True) if cell["cell_type"] == "code"]
    assert all(code)  # every cell shows something
    for cell in cells:  # and what it showed is kept
        assert cell["cell_type"] == "markdown" or cell["outputs"]
    perplexities = re.findall(r"^(network|5-gram|mixture) +([\d.]+)", "\n".join(code), re.MULTILINE)
    values = {name: float(value) for name, value in perplexities}
    assert values["mixture"] < values["5-gram"] < values["network"]
    assert re.search(r"the name of the class is a string\n.*the list of the clash", code[-1])
