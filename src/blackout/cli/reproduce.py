"""``blackout reproduce``: a figure, table or claim of the paper, run again."""

from __future__ import annotations

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
    appendix-a, appendix-c, speedup, beyond, defaults. Finished runs are kept below --out: a study
    that was stopped goes on with the same command.
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
    workers: int = 0
    """Runs at a time; 0 for one a core."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(ReproduceOptions, "reproduce", arguments)
    if options.name not in STUDIES:
        raise UserError(f"there is no {options.name!r}; there are {', '.join(STUDIES)}")
    for name, value in [*(("hidden", h) for h in options.hidden), ("epochs", options.epochs)]:
        if value is not None and value < 1:
            raise UserError(f"{name} is {value}, must be at least 1")

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
    return shlex.join(words)
