"""The colours of all our pictures.

The series are Okabe and Ito's, which people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = PRINT = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
)  # fmt: skip
GREY, INK, GRID = "#999999", "#222222", "#dddddd"

# On a page the thin lines of the lighter series need more contrast with its background.
LIGHT = (BLUE, VERMILION, GREEN, "#b8558f", "#b07800", "#3a9fd8")
DARK = ("#63b8ea", "#f08c4a", "#35c79d", "#dd92bf", "#eab640", "#9ad4f5")
