"""Docstrings as Markdown: references of Sphinx become code, doctests become code blocks.

Layers hand on their ``**options`` to the class above; shown are all that arrive, with all that is
said about them.

>>> print(as_markdown("<a, b> is ``a``, see :meth:`Table.forward`"))
&lt;a, b> is ``a``, see `Table.forward`
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

_SPECIAL = re.compile(
    r"(?P<example>^>>>.*(?:\n(?!\s*$).+)*)"
    r"|:(?:class|func|meth|mod|data|attr):`~?(?P<role>[^`]+)`"
    r"|(?P<code>``[^`]+``|`[^`]+`)"
    r"|(?P<bracket><)",
    re.MULTILINE,
)

_OPTION = re.compile(r"^ *(?=``\w+``(?:, ``\w+``)*(?::| \())", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is shown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        init = cls.members.get("__init__")
        if isinstance(init, griffe.Function) and "options" in init.parameters:
            show_all_options(cls.path, init)


def show_all_options(path: str, init: griffe.Function) -> None:
    """Gives a constructor the signature and the words of all classes that its options go to."""
    described: type = griffe.dynamic_import(path)
    signature = inspect.signature(described.__init__)  # type: ignore[misc]
    kinds = list(griffe.ParameterKind)
    init.parameters = griffe.Parameters(
        *(
            griffe.Parameter(
                name,
                annotation=None if one.annotation is one.empty else str(one.annotation),
                kind=kinds[one.kind],
                default=None if one.default is one.empty else repr(one.default),
            )
            for name, one in signature.parameters.items()
        )
    )
    words = inspect.cleandoc(described.__init__.__doc__ or "")  # type: ignore[misc]
    items = _OPTION.sub("- ", words.replace("\n", "\n  ")) if words else ""
    init.docstring = griffe.Docstring(as_markdown(items), parent=init)


def as_markdown(text: str) -> str:
    """The docstring as Markdown."""

    def shown(found: re.Match[str]) -> str:
        if found["example"]:
            return f"```pycon\n{found['example']}\n```"
        if found["role"]:
            return f"`{found['role']}`"
        return found["code"] or "&lt;"

    return _SPECIAL.sub(shown, text)
