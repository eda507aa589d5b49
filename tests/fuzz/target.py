"""What a target is: bytes of anybody's go in, and come to nothing worse than a line.

A target takes bytes, lets the parser read them as a file, and uses what it made of them. A
:class:`~blackout.errors.UserError` is the answer to a bad file; any other exception, a figure that
is none, a crash, a hang or an absurd allocation is a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.mutate import Form
from tests.fuzz.workshop import Workshop

from blackout.errors import UserError


@dataclass(frozen=True)
class Target:
    """A parser with what it is shown: some good files, and what to do with bytes."""

    name: str
    seeds: Callable[[Workshop], list[bytes]]
    use: Callable[[Workshop, bytes], object]
    tokens: tuple[str, ...] = ()
    """Words of the format, for the fuzzer's dictionary."""
    form: Form = ""
    """Where it has JSON, whose values the fuzzer changes one by one."""


TARGETS: dict[str, Target] = {}


def target(
    name: str, seeds: Callable[[Workshop], list[bytes]], tokens: str = "", form: Form = ""
) -> Callable[[Callable[[Workshop, bytes], object]], Callable[[Workshop, bytes], object]]:
    """Makes a function a target."""

    def register(use: Callable[[Workshop, bytes], object]) -> Callable[[Workshop, bytes], object]:
        TARGETS[name] = Target(name, seeds, use, tuple(tokens.split()), form)
        return use

    return register


def attempt(workshop: Workshop, chosen: Target, data: bytes) -> bool:
    """Whether a file was taken; a refusal must be one line that people can read."""
    try:
        chosen.use(workshop, data)
    except UserError as error:
        text = str(error)
        assert text, "a refusal without a word"
        assert "\n" not in text, f"a refusal of several lines: {text!r}"
        return False
    return True
