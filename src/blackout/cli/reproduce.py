"""``blackout reproduce``: a figure, table or claim of the paper, run again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from blackout.cli.common import Output, parse
from blackout.errors import UserError
from blackout.paper.studies import STUDIES


@dataclass
class ReproduceOptions:
    """Rerun a figure, table or claim of the paper: blackout reproduce NAME --data DIR

    NAME is one of fig2a, fig2b, fig3a, fig3b, fig4a, fig4b, fig5, table1, table2, footnote1,
    appendix-a, appendix-c, speedup, beyond, choose, defaults, widths, schedules, cells. Finished
    runs are kept below --out: a study that was stopped goes on with the same command.
    """

    name: tyro.conf.Positional[str]
    """What to rerun."""
    data: Path | None = None
    """Folder with the corpora: rnnlm-small/, enwiki/ and, for defaults, wikitext-2/, each with
    train, valid and test, also .txt, .gz or .xz."""
    out: Path = Path("runs/paper")
    """Folder for the table, the picture and the runs behind them."""
    quick: bool = False
    """A miniature on text that ships with Python, in less than a minute."""
    hidden: tuple[int, ...] = ()
    """Hidden sizes, for table1 and table2."""
    epochs: int | None = None
    """Passes over the training text, instead of the study's own number."""
    only: tuple[str, ...] = ()
    """Run only the rows whose names have one of these words in them, for defaults, widths, table1
    and table2; the table shows them and those that were run before."""
    workers: int = 0
    """Runs at a time; 0 for one a core."""
    minutes: tuple[float, ...] = ()
    """For choose and cells: how long each row is trained; by default 1, 3 and 9 minutes, and half
    a minute, 1 and 2."""
    tries: int = 0
    """For choose: learning rates tried for each row, in runs of the least time; 0 for three."""
    threads: int = 0
    """For choose and cells: threads of a run; of one, the clock is processor time."""
    vocab_size: int = 0
    """For choose: words of the vocabulary; 0 for 64,000."""
    peer: tuple[str, ...] = ()
    """For choose: programs of others, faster-rnnlm=PATH and authors=PATH."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(ReproduceOptions, "reproduce", arguments)
    if options.name not in STUDIES:
        raise UserError(f"there is no {options.name!r}; there are {', '.join(STUDIES)}")
    for name, value in [*(("hidden", h) for h in options.hidden), ("epochs", options.epochs)]:
        if value is not None and value < 1:
            raise UserError(f"{name} is {value}, must be at least 1")

    for name in ("tries", "threads", "vocab_size"):
        if (number := getattr(options, name)) < 0:
            raise UserError(f"{name} is {number}, must be 0 or more")
    if any(not 0 < each < math.inf for each in options.minutes):
        raise UserError(f"minutes is {options.minutes}, must be numbers above 0")

    from blackout.paper.finding import text_table, write_finding  # PyTorch comes with the others
    from blackout.paper.lab import Lab
    from blackout.paper.studies import run_study

    output = options.output
    lab = Lab(
        options.out,
        options.data,
        quick=options.quick,
        workers=options.workers,
        hidden=options.hidden,
        epochs=options.epochs,
        only=options.only,
        minutes=options.minutes,
        tries=options.tries,
        threads=options.threads,
        vocab_size=options.vocab_size,
        peers=options.peer,
    )
    finding = run_study(options.name, lab)
    paths = write_finding(finding, options.name, command_line(options), options.out)
    output.say(f"\n{finding.title}\n")
    for line in text_table(finding.rows):
        output.say(line)
    output.say(f"\n{finding.setting}\nThe paper: {finding.claim}\n")
    output.say(f"picture   {paths[0]}\ntable     {paths[1]}")
    output.result({"name": options.name, "rows": list(finding.rows), "picture": str(paths[0])})


def command_line(options: ReproduceOptions) -> str:
    """The command that gives this finding, without the places of one machine."""
    words = ["blackout", "reproduce", options.name]
    words += ["--quick"] if options.quick else ["--data", "data"]
    if options.hidden:
        words += ["--hidden", *map(str, options.hidden)]
    if options.epochs is not None:
        words += ["--epochs", str(options.epochs)]
    for name in ("minutes", "tries", "threads", "vocab_size"):
        if value := getattr(options, name):
            shown = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')}", *(f"{each:g}" for each in shown)]
    if options.peer:  # without the places of one machine
        words += ["--peer", *(f"{given.partition('=')[0]}=PATH" for given in options.peer)]
    return shlex.join(words)
