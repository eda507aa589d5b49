"""``blackout reproduce``: a figure, table or claim of the paper, run again."""

from __future__ import annotations

import math
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from blackout.cli.common import Output, parse
from blackout.config import Cell
from blackout.errors import UserError
from blackout.paper.studies import STUDIES
from blackout.presets import Preset

OPEN_ENDED = ("table1", "table2", "fig4a", "fig4b")
BY_ROW = (*OPEN_ENDED, "defaults", "widths")


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
    """Hidden sizes, for table1 and table2; the first, for fig4a and fig4b."""
    cell: tuple[Cell, ...] = ()
    """Cells, for table1 and table2; by default sigmoid, the paper's, and lstm."""
    dropout: tuple[float, ...] = ()
    """Chances to try for each network, for table1 and table2: validation text chooses."""
    seeds: tuple[int, ...] = ()
    """For fig4a and fig4b, instead of 1, 2 and 3."""
    epochs: int | Literal["auto"] | None = None
    """Passes over the training text, instead of the study's own number; auto, for table1, table2,
    fig4a and fig4b: until validation stops improving."""
    preset: Preset | None = None
    """For table1, table2, fig4a and fig4b: these settings instead of the defaults."""
    only: tuple[str, ...] = ()
    """Run only the rows whose names have one of these words in them, for defaults, widths, choose,
    table1, table2, fig4a and fig4b; the table shows them and those that were run before."""
    known: bool = False
    """Run nothing: the table of the rows that were run before, also on another machine whose
    OUT/cache was copied here; for the same studies without choose."""
    runs_only: bool = False
    """Do the runs and leave the table, the picture and the 5-gram to a later command, perhaps on
    another machine, with --known; for the same studies without choose."""
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
    check(options)

    # PyTorch comes with these
    from blackout.paper.finding import as_json, text_table, write_finding
    from blackout.paper.lab import Lab, RunsDone
    from blackout.paper.studies import run_study

    output = options.output
    lab = Lab(
        options.out,
        options.data,
        quick=options.quick,
        workers=options.workers,
        hidden=options.hidden,
        cells=options.cell,
        dropouts=options.dropout,
        seeds=options.seeds,
        epochs=options.epochs,
        preset=options.preset,
        only=options.only,
        known=options.known,
        runs_only=options.runs_only,
        minutes=options.minutes,
        tries=options.tries,
        threads=options.threads,
        vocab_size=options.vocab_size,
        peers=options.peer,
    )
    try:
        with _stopped_in_good_order():
            finding = run_study(options.name, lab)
    except RunsDone:
        output.say(f"the runs are in {options.out / 'cache'}; the table: --known")
        return
    paths = write_finding(finding, options.name, command_line(options), options.out)
    output.say(f"\n{finding.title}\n")
    for line in text_table(finding.rows):
        output.say(line)
    for line in ("", *text_table(finding.tries)) if finding.tries else ():
        output.say(line)
    output.say(f"\n{finding.setting}\nThe paper: {finding.claim}\n")
    output.say(f"picture   {paths[0]}\ntable     {paths[1]}")
    output.result(as_json(finding, options.name) | {"picture": str(paths[0])})


@contextmanager
def _stopped_in_good_order() -> Iterator[None]:
    """SIGTERM as Ctrl-C: children and programs of others that were started end with us."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise UserError("stopped; run the same command again: finished runs are kept") from None
    finally:
        signal.signal(signal.SIGTERM, before)


def check(options: ReproduceOptions) -> None:
    """Refuses what no study can make sense of."""
    if options.name not in STUDIES:
        raise UserError(f"there is no {options.name!r}; there are {', '.join(STUDIES)}")
    for name, value in [*(("hidden", h) for h in options.hidden), ("epochs", options.epochs)]:
        if isinstance(value, int) and value < 1:
            raise UserError(f"{name} is {value}, must be at least 1")
    if options.epochs == "auto" and options.name not in OPEN_ENDED:
        raise UserError(f"epochs is auto, which is for {', '.join(OPEN_ENDED)}")
    for name in ("known", "runs_only"):
        if getattr(options, name) and options.name not in BY_ROW:
            option, studies = name.replace("_", "-"), ", ".join(BY_ROW)
            raise UserError(f"--{option} is for {studies}, whose rows are run one by one")

    for name in ("tries", "threads", "vocab_size"):
        if (number := getattr(options, name)) < 0:
            raise UserError(f"{name} is {number}, must be 0 or more")
    if any(not 0 < each < math.inf for each in options.minutes):
        raise UserError(f"minutes is {options.minutes}, must be numbers above 0")


def command_line(options: ReproduceOptions) -> str:
    """The command that gives this finding, without the places of one machine."""
    words = ["blackout", "reproduce", options.name]
    words += ["--quick"] if options.quick else ["--data", "data"]
    for name in ("hidden", "cell", "dropout", "seeds"):
        if given := getattr(options, name):
            words += [f"--{name}", *map(str, given)]
    for name in ("epochs", "preset"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name}", str(value)]
    for name in ("minutes", "tries", "threads", "vocab_size"):
        if value := getattr(options, name):
            shown = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')}", *(f"{each:g}" for each in shown)]
    if options.peer:  # without the places of one machine
        words += ["--peer", *(f"{given.partition('=')[0]}=PATH" for given in options.peer)]
    return shlex.join(words)
