"""Faults at every boundary: each work, going wrong at its n-th operation, for every n.

    python -m tests.faults.sweep                     # all: hours
    python -m tests.faults.sweep --only tuning --faults dies --every 7 --first 3

Prints a line of JSON for each work and fault, and adds it to build/sweep/tally.jsonl: how many
cases were tried, and what was found. The exit status says whether anything was.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.system import DISK, MEMORY, Shim, is_under_shim, run_under_shim

if TYPE_CHECKING:
    from tests.faults.works import Work

TALLY = Path(__file__).parents[2] / "build" / "sweep" / "tally.jsonl"
_LIMIT = 120  # seconds; who takes longer hangs


@dataclass
class Swept:
    """What came of one work with one fault."""

    work: str
    fault: str
    whole: bool
    """Whether every operation was tried, those of every rank."""
    cases: int = 0
    """Runs in which there was an n-th operation."""
    failed: int = 0
    """Those of them that ended with an error or a kill; the others could do without."""
    found: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    status: int
    errors: str
    seen: int


class Sweep:
    """Children of this process, one after another, each with a fault of its own."""

    def __init__(self, folder: Path, least: int) -> None:
        self.folder, self.least, self.shim = folder, least, Shim()

    def run(self, work: Work, fault: str, first: int, every: int) -> Swept:
        swept = Swept(work.name, fault, whole=first == every == 1)
        for victim in range(work.ranks):
            n = first
            while self.nth(work, fault, victim, n, swept):
                n += every
        return swept

    def nth(self, work: Work, fault: str, victim: int, n: int, swept: Swept) -> bool:
        """Tries one; False when that rank has no n-th operation."""
        work.begin()
        ended = self.together(work, fault, {victim: n})
        if ended[victim].status >= 0 and ended[victim].seen < n:
            return False
        swept.cases += 1
        swept.failed += any(one.status for one in ended)
        if wrong := self.judge(work, fault, victim, ended):
            of = f" of rank {victim}" if work.ranks > 1 else ""
            swept.found.append(f"operation {n}{of}: {wrong}")
        return True

    def together(self, work: Work, fault: str, when: Mapping[int, int]) -> list[Ended]:
        """All ranks do it, some of them with a fault at their n-th operation; how they ended."""

        def armed(rank: int) -> Callable[[], int]:
            def do() -> int:
                if rank in when:
                    self.shim.arm(fault, when[rank], self.least)
                return int(work.do(rank))

            return do

        work.ready()
        children = [self.child(armed(rank), fault, rank) for rank in range(work.ranks)]
        return [self.wait(child, rank) for rank, child in enumerate(children)]

    def child(self, do: Callable[[], int], fault: str, rank: int) -> int:
        process = os.fork()
        if process:
            return process
        status = 99
        try:
            signal.alarm(_LIMIT)
            out = os.open(os.devnull, os.O_WRONLY)
            errors = os.open(self.folder / f"errors-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(errors, 2)
            status = do()
        except BaseException as error:
            os.write(2, f"Traceback: {type(error).__name__}: {error}\n".encode())
        finally:
            seen = self.shim.seen(fault)
            self.shim.disarm()
            (self.folder / f"seen-{rank}").write_text(str(seen))
            os._exit(status)

    def wait(self, process: int, rank: int) -> Ended:
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        errors = (self.folder / f"errors-{rank}").read_text(errors="replace")
        seen = self.folder / f"seen-{rank}"
        counted = int(seen.read_text()) if seen.exists() else 0
        seen.unlink(missing_ok=True)
        return Ended(status, errors, counted if status >= 0 else sys.maxsize)

    def judge(self, work: Work, fault: str, victim: int, ended: list[Ended]) -> str | None:
        """What is wrong with the ends of the children, or with what they left."""
        failed = any(one.status for one in ended)
        said: list[str] = []
        for rank, one in enumerate(ended):
            killed = fault == "dies" and rank == victim and one.status == -signal.SIGKILL
            if one.status not in (0, 1) and not killed:
                return f"it ended with {one.status}: {one.errors[-300:]!r}"
            if "Traceback" in one.errors:
                return f"a traceback: {one.errors[-300:]!r}"
            said += _said(one.errors)
        told = any(one.status == 1 for one in ended)  # who is killed says nothing
        if told and (wrong := self.judge_line(fault, said)):
            return wrong
        if wrong := work.fault():
            return f"{'failed' if failed else 'went well'}: {wrong}"
        # who is killed cannot clear up behind itself
        if failed and fault != "dies" and (left := work.left_over()):
            return f"left over: {left}"
        if not failed and not work.is_new():
            return "all seemed well, but it is not the new state"
        return self.done_again(work)

    def judge_line(self, fault: str, said: list[str]) -> str | None:
        """Of a failure: one line, said once by whoever it is, that tells what it was."""
        if fault == "short":
            return f"half a write is no error: {said!r}"
        lines = [line for line in said if line.startswith("blackout ")]
        if len(lines) != 1 or said[-1] != lines[0]:
            return f"not one line: {said[-5:]!r}"
        if fault in DISK and "--debug" in lines[0]:
            return f"an error that was not expected: {lines[0]!r}"
        if fault in MEMORY and "memory" not in lines[0]:
            return f"it does not speak of memory: {lines[0]!r}"
        return None

    def done_again(self, work: Work) -> str | None:
        """Without a fault it comes to the new state, and nothing is left of the old."""
        ended = self.together(work, "fails", {})
        if any(one.status for one in ended):
            return f"cannot be done again: {ended}"
        if wrong := work.fault():
            return f"done again: {wrong}"
        if not work.is_new():
            return "done again it is not the new state"
        if left := work.left_over():
            return f"done again, left over: {left}"
        return None


def _said(errors: str) -> list[str]:
    """The lines of the package; PyTorch reports a lost connection in its own way."""
    return [line for line in errors.splitlines() if not re.match(r"\[[WE]\d{4} |\[rank\d", line)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="works whose names have this in them")
    parser.add_argument("--faults", nargs="+", choices=[*DISK, *MEMORY], default=[*DISK, *MEMORY])
    parser.add_argument("--every", type=int, default=1, help="leave out all but each such n")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="blackout-sweep-"))
    try:
        if not is_under_shim():
            return run_under_shim("tests.faults.sweep", sys.argv[1:], folder)
        return sweep(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tell(swept: Swept) -> None:
    """On standard output, and for the tally."""
    print(json.dumps(vars(swept)), flush=True)
    TALLY.parent.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    with TALLY.open("a") as tally:
        tally.write(json.dumps({"date": today, **vars(swept)}) + "\n")


@contextmanager
def silence() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def sweep(options: argparse.Namespace, folder: Path) -> int:
    import torch
    from tests.faults.hungry import LEAST, hungry_works
    from tests.faults.works import works

    from blackout.pages import mixture_report, report
    from blackout.ranks import launch

    torch.set_num_threads(1)
    report.write_report = lambda out: None  # takes longer than the runs
    launch.PATIENCE = 1.0  # they are on one machine
    if options.quick:
        mixture_report.write_mix_report = lambda *_: None
    runner, found = Sweep(folder, LEAST), False
    for kind, make in ((DISK, works), (MEMORY, hungry_works)):
        faults = [fault for fault in options.faults if fault in kind]
        if not faults:
            continue
        (folder / make.__name__).mkdir()
        with silence():
            every_work = list(make(folder / make.__name__, options.quick))
        for work in every_work:
            if options.only not in work.name or (options.quick and work.takes_long):
                continue
            with (
                open(os.devnull, "w") as nowhere,
                redirect_stdout(nowhere),
                redirect_stderr(nowhere),
            ):
                work.set_up()
            for fault in faults:
                swept = runner.run(work, fault, options.first, options.every)
                found = found or bool(swept.found)
                tell(swept)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
