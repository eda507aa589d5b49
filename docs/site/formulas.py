r"""Formulas as MathML, which browsers draw themselves: no script, nothing fetched.

>>> print(on_page_content(r'<span class="arithmatex">\(a &lt; b\)</span>'))
<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow>...</mrow></math>
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\(?:\((?P<inline>.*?)\\\)|\[(?P<block>.*?)\\\])</\1>',
    re.DOTALL,
)


def on_page_content(content: str, **_: Any) -> str:
    """Replaces what pymdownx.arithmatex has marked."""

    def drawn(found: re.Match[str]) -> str:
        block = found["block"] is not None
        formula = html.unescape(found["block"] if block else found["inline"])
        return convert(formula, display="block" if block else "inline")

    return _FORMULA.sub(drawn, content)
