"""The page: style and scripts put into one document, which fetches nothing but answers.

Its Content-Security-Policy names the style and the script by their hashes: nothing else runs, even
if a word of somebody's text were taken for HTML.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files

from blackout.pages.palette import DARK, LIGHT

__all__ = ["page"]

_SCRIPTS = ("base.js", "score.js", "write.js", "look.js", "start.js")


@functools.cache
def page() -> tuple[str, str]:
    """The document and its Content-Security-Policy."""
    folder = files("blackout.serve") / "static"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    style = read("style.css")
    for i, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True)):
        style = style.replace(f"LIGHT_{i}", light).replace(f"DARK_{i}", dark)
    script = '"use strict";\n' + "\n".join(map(read, _SCRIPTS))
    text = read("page.html").replace("/* style */", style).replace("/* script */", script)
    policy = (
        f"default-src 'none'; connect-src 'self'; style-src {_hash(style)}; "
        f"script-src {_hash(script)}; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return text, policy


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
