"""What a study found: a table and a picture, beside what the paper says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackout.files.atomic import make_folder, replacing
from blackout.pages.picture import Panel, draw_panels

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """The result of a study."""

    title: str
    claim: str
    """What the paper says."""
    setting: str
    """What was run here."""
    rows: Sequence[Row]
    """The table; the keys of the first row are its columns."""
    panels: Sequence[Panel]
    """The picture."""
    tries: Sequence[Row] = ()
    """A second table: what the rows were chosen from."""


def counted(number: int, thing: str) -> str:
    """A number of things, in words.

    >>> counted(1, "epoch"), counted(3, "epoch")
    ('1 epoch', '3 epochs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def write_finding(finding: Finding, name: str, command: str, out: Path) -> list[Path]:
    """Writes NAME.svg, NAME.md and NAME.json into ``out``; gives their paths."""
    make_folder(out)
    texts = {
        f"{name}.svg": draw_panels(finding.panels, name),
        f"{name}.md": markdown(finding, name, command),
        f"{name}.json": json.dumps(as_json(finding, name), indent=1) + "\n",
    }
    for file_name, text in texts.items():
        with replacing(out / file_name) as file:
            file.write(text.encode())
    return [out / file_name for file_name in texts]


def as_json(finding: Finding, name: str) -> dict[str, Any]:
    """The finding as plain values."""
    tries = {"tries": list(finding.tries)} if finding.tries else {}
    return {"name": name, "rows": list(finding.rows)} | tries


def markdown(finding: Finding, name: str, command: str) -> str:
    """The finding as a section of a document."""
    lines = [f"## {finding.title}", "", f"    {command}", "", f"![{finding.title}]({name}.svg)", ""]
    lines += [finding.setting, "", *table_lines(finding.rows), ""]
    lines += [*table_lines(finding.tries), ""] if finding.tries else []
    lines += [f"The paper: {finding.claim}"]
    return "\n".join(lines) + "\n"


def table_lines(rows: Sequence[Row]) -> list[str]:
    """The rows as a Markdown table.

    >>> print(*table_lines([{"K": 2, "test": 93.25}, {"K": 10, "test": None}]), sep="\\n")
    | K | test |
    |---:|---:|
    | 2 | 93.2 |
    | 10 | – |
    """
    columns = list(rows[0])
    numeric = [all(not isinstance(row[c], str) for row in rows) for c in columns]
    marks = ["---:" if right else "---" for right in numeric]
    body = ["| " + " | ".join(show(row[column]) for column in columns) + " |" for row in rows]
    return ["| " + " | ".join(columns) + " |", "|" + "|".join(marks) + "|", *body]


def text_table(rows: Sequence[Row]) -> list[str]:
    """The rows for a terminal.

    >>> print(*text_table([{"K": 2, "test": 93.25}, {"K": 10, "test": None}]), sep="\\n")
     K  test
     2  93.2
    10     –
    """
    columns = list(rows[0])
    cells = [[show(row[column]) for column in columns] for row in rows]
    lines = [columns, *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    left = [any(isinstance(row[column], str) for row in rows) for column in columns]
    return [
        "  ".join(
            cell.ljust(width) if is_text else cell.rjust(width)
            for cell, width, is_text in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in lines
    ]


def show(value: object) -> str:
    """A value for a table.

    >>> show(93.25), show(0.4), show(12345), show(None), show(0.00123), show("x")
    ('93.2', '0.4', '12,345', '–', '0.00123', 'x')
    """
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if abs(value) >= 10_000:
            return f"{value:,.0f}"
        return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return str(value)
