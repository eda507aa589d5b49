"""What the verbs share: options, output, reading command lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import tyro

from blackout.plain_json import to_json

T = TypeVar("T")


@dataclass
class Output:
    """How a verb talks."""

    json: bool = False
    """Print one JSON object as the last line on standard output; text goes to standard error."""
    debug: bool = False
    """Show the traceback of an error."""

    def say(self, text: str = "") -> None:
        """Text for people."""
        print(text, file=sys.stderr if self.json else sys.stdout, flush=True)

    def result(self, values: Mapping[str, Any]) -> None:
        """The result for programs; only with ``--json``."""
        if self.json:
            print(to_json(values), flush=True)


def parse(cls: type[T], verb: str, arguments: Sequence[str], default: T | None = None) -> T:
    """The options of a verb; wrong usage ends the program with status 2."""
    options: Any = tyro.cli(
        cls,
        prog=f"blackout {verb}",
        args=list(arguments),
        default=default,
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return cast(T, options)
