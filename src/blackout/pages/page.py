"""The parts of a report page: one static HTML file, everything in it, nothing fetched.

Every function takes plain text and gives HTML; all text is escaped here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from blackout.files.atomic import replacing
from blackout.pages.palette import DARK, LIGHT
from blackout.pages.plots import Plot, draw

__all__ = ["cards", "page", "plots", "prose", "sample", "section", "settings", "table", "write"]


def write(path: Path, html: str) -> Path:
    """Puts a page at ``path``, complete or not at all."""
    with replacing(path) as file:
        # a word that was not valid UTF-8 must not cost the page
        file.write(html.encode("utf-8", "replace"))
    return path


def page(title: str, subtitle: str, sections: Sequence[str]) -> str:
    """A whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(title)}</h1>\n<p>{escape(subtitle)}</p></header>\n"
        + "\n".join(sections)
        + "\n<footer>Written by BlackOut.</footer>\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A part of the page under a heading."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def prose(text: str) -> str:
    """A paragraph."""
    return f'<p class="note">{escape(text)}</p>'


def cards(figures: Sequence[tuple[str, str, str]]) -> str:
    """Figures to see first: (name, value, remark) each."""
    parts = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><small>{escape(remark)}</small></div>"
        for name, value, remark in figures
    ]
    return '<dl class="cards">' + "".join(parts) + "</dl>"


def plots(pictures: Sequence[Plot]) -> str:
    """Plots side by side, where the window is wide enough."""
    wide = len(pictures) == 1
    size = {"width": 9.4, "height": 3.6} if wide else {}
    parts = [
        f"<figure><figcaption>{escape(plot.title)}</figcaption>"
        f"{draw(plot, f'plot{i}-{_name(plot.title)}', **size)}</figure>"
        for i, plot in enumerate(pictures)
    ]
    return f'<div class="plots{" wide" if wide else ""}">' + "\n".join(parts) + "</div>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is names and whose others are figures."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def settings(groups: Mapping[str, Sequence[tuple[str, str, bool]]]) -> str:
    """Settings in groups: (name, value, differs from the default) each."""
    parts = []
    for group, values in groups.items():
        lines = "".join(
            f"<div{' class=changed' if changed else ''}><dt>{escape(name)}</dt>"
            f"<dd>{escape(value)}</dd></div>"
            for name, value, changed in values
        )
        parts.append(f"<div><h3>{escape(group)}</h3><dl>{lines}</dl></div>")
    return '<div class="settings">' + "".join(parts) + "</div>"


def sample(text: str) -> str:
    """Generated text, a sentence a line."""
    lines = "".join(f"<p>{escape(line) or '&nbsp;'}</p>" for line in text.split("\n"))
    return f"<blockquote>{lines}</blockquote>"


def _name(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())


def _series(colours: Sequence[str]) -> str:
    return " ".join(f"--series-{i}: {colour};" for i, colour in enumerate(colours))


_STYLE = (
    f"""
:root {{ --paper: #fff; --ink: #22262b; --soft: #646c76; --grid: #e3e6ea; --panel: #f6f7f9;
  --accent: {LIGHT[0]}; --accent-soft: #e4f0f8; {_series(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #16191d; --ink: #e4e7eb; --soft: #9aa3ae;
  --grid: #333a42; --panel: #1f2429; --accent: {DARK[0]}; --accent-soft: #1b3345;
  {_series(DARK)} }} }}
"""
    + """\
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
  sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.015em;
  overflow-wrap: anywhere; }
header p { margin: 0; color: var(--soft); }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .9rem; padding-bottom: .35rem;
  border-bottom: 1px solid var(--grid); }
h3 { font-size: .8rem; margin: 0 0 .4rem; color: var(--soft); text-transform: uppercase;
  letter-spacing: .07em; }
.note { color: var(--soft); margin: 0 0 1rem; font-size: .93rem; }
dl, dd, dt { margin: 0; }
.cards { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(12rem, 1fr)); }
.cards > div { background: var(--panel); border-radius: .6rem; padding: .8rem 1rem; }
.cards dt { font-size: .85rem; color: var(--soft); }
.cards dd { font-size: 1.65rem; font-weight: 600; line-height: 1.3; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; }
.cards > div:first-child { background: var(--accent-soft); }
.cards > div:first-child dd { color: var(--accent); }
small { color: var(--soft); font-size: .82rem; }
.plots { display: grid; gap: 1.6rem 2rem; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 23rem), 1fr)); }
.plots.wide { grid-template-columns: 1fr; }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .2rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .8rem; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; }
thead th { font-size: .82rem; color: var(--soft); font-weight: 500; vertical-align: bottom; }
tbody th { font-weight: 600; }
.settings { columns: 17rem; column-gap: 2rem; }
.settings > div { break-inside: avoid; margin-bottom: 1.5rem; }
.settings dl > div { display: flex; justify-content: space-between; gap: 1rem;
  padding: .12rem .5rem; border-radius: .3rem; font-size: .9rem; }
.settings h3 { padding-left: .5rem; }
.settings dt { color: var(--soft); white-space: nowrap; }
.settings dd { overflow-wrap: anywhere; text-align: right; font-variant-numeric: tabular-nums; }
.settings .changed { background: var(--accent-soft); }
.settings .changed dt { color: inherit; }
.settings .changed dd { font-weight: 650; color: var(--accent); }
blockquote { margin: 0; padding: .9rem 1.2rem; background: var(--panel); border-radius: .6rem;
  columns: 22rem 2; column-gap: 2.5rem; column-rule: 1px solid var(--grid);
  font: 1.02rem/1.6 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; }
blockquote p { margin: 0 0 .3rem; padding-left: 1.2rem; text-indent: -1.2rem;
  overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--soft); font-size: .82rem; }
@media print { main { max-width: none; padding: 0; } section { break-inside: avoid; } }
"""
)
