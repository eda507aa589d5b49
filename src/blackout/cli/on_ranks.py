"""Verbs under ``torchrun``: the processes of a command find each other, and one of them talks.

A process that is alone imports nothing for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Literal

from blackout.errors import UserError

if TYPE_CHECKING:
    from blackout.ranks import Ranks
    from blackout.ranks.launch import Launch

__all__ = ["VERBS", "is_alone", "is_first", "join", "leave", "session", "tell"]

VERBS = ("train", "eval", "generate", "mix", "rescore", "bench train")
"""Those that several ranks do together."""


class _Session:
    """What the command under way has joined."""

    def __init__(self, launch: Launch | None = None, stack: ExitStack | None = None) -> None:
        self.launch, self.stack = launch, stack
        self.ranks: Ranks | None = None


_now = _Session()


@contextmanager
def session(verb: str) -> Iterator[None]:
    """Around a verb: ranks that were started together find each other; all but one are silent."""
    global _now
    _now = _Session()
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield
        return
    if verb not in VERBS:
        raise UserError(f"runs in one process; several ranks can do {', '.join(VERBS)}")

    from blackout.ranks.launch import Launch

    with ExitStack() as stack:
        launch = Launch()
        _now = _Session(launch, stack)
        if launch.rank > 0:
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


def join(
    device: Literal["auto", "cpu", "cuda"] = "cpu", timeout: float | None = None
) -> tuple[Launch, Ranks]:
    """The launch that this process is part of, and its ranks as a group; PyTorch comes with it."""
    from blackout.ranks import Ranks
    from blackout.ranks.launch import DEFAULT_TIMEOUT, Launch

    if _now.launch is None or _now.stack is None:
        return Launch(), Ranks.alone()
    if _now.ranks is None:
        group = _now.launch.group(device, DEFAULT_TIMEOUT if timeout is None else timeout)
        _now.ranks = _now.stack.enter_context(group)
    return _now.launch, _now.ranks


def is_alone() -> bool:
    """Whether a command is run by one process."""
    return _now.launch is None


def is_first() -> bool:
    """Whether this process writes what a command writes."""
    return _now.launch is None or _now.launch.rank == 0


def tell(who: str, text: str) -> None:
    """What ended a command, in one line: said by one of its ranks."""
    launch = _now.launch
    if launch is None:
        if os.environ.get("RANK", "0") in ("", "0"):  # else they have not found each other
            print(who, text, file=sys.stderr)
        return
    if launch.speaks():
        if launch.rank > 0 and not text.startswith("rank"):
            text = f"rank {launch.rank}: {text}"
        print(who, text, file=sys.stderr)
    launch.linger()


def leave(status: int) -> None:
    """Ends a rank at once.

    Threads of a broken group would wait for others; those of a whole one may still hold tensors,
    and an interpreter that comes to its end meanwhile aborts the process.
    """
    if _now.launch is not None:
        from blackout.ranks.launch import leave_at_once

        leave_at_once(status)
