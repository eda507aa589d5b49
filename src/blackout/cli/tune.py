"""``blackout tune``: settings by validation perplexity, saved for ``blackout train --config``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from blackout import losses
from blackout.cli.common import Output, Settings, parse
from blackout.cli.train import base_settings, find_data
from blackout.config import Config
from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.files.plain_json import to_json
from blackout.presets import Preset

if TYPE_CHECKING:
    from blackout.trials.tune import Tuned

DEFAULT_GRIDS: dict[str, list[object]] = {
    "alpha": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
    "lr": [0.25, 0.5, 0.7, 1.0, 1.4, 2.0],
}
"""What varies by default: the first of these that the loss looks at."""


@dataclass
class TuneOptions:
    """Choose settings on validation text: blackout tune --train FILE --valid FILE --out DIR

    The options of blackout train are the base; --grid says what varies. The winner is then trained
    with: blackout train --config DIR/best.toml --out RUN
    A stopped study goes on with the same command.
    """

    out: Path
    """Folder of the study: best.toml, trials.jsonl, finished and unfinished runs."""
    grid: Annotated[list[str], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=V,V,…")] = (
        field(default_factory=list)
    )
    """A setting and its values, e.g. lr=0.001,0.003; may be given several times, then every
    combination is tried. By default alpha=0,0.2,0.4,0.6,0.8,1, with a loss that draws no samples
    lr=0.25,0.5,0.7,1,1.4,2."""
    halving: int = 3
    """Of so many runs one goes on after a part of the epochs; 1: all runs train all epochs."""
    workers: int = 0
    """Runs at a time; 0 for one a core."""
    config: Path | None = None
    """Settings from a TOML file, such as the run.toml of a run; options here win over it."""
    preset: Preset | None = None
    """Settings to begin with instead of the defaults; paper: those of the paper."""
    settings: Settings = field(default_factory=Config)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = read_options(arguments)
    output, config = options.output, options.settings

    from blackout.trials.grid import combinations, parse_grid  # PyTorch comes with it
    from blackout.trials.halving import stages
    from blackout.trials.trials import Trials
    from blackout.trials.tune import tune

    grid = parse_grid(options.grid) or default_grid(config)
    if config.run.epochs == "auto":
        raise UserError("tune compares runs of equal length: --epochs must be a number")
    stages(config.run.epochs, len(combinations(config, grid)), options.halving)
    trials = Trials(options.out / "trials", workers=options.workers, say=output.say)
    texts = replace(config, data=replace(config.data, test=None))  # tuning never sees it
    data = find_data(texts, options.out / "data")
    tuned = tune(config, data.folder, grid, trials, options.halving)
    with replacing(options.out / "best.toml") as file:
        file.write(tuned.config.to_toml().encode())
    with replacing(options.out / "trials.jsonl") as file:
        file.writelines(to_json(tried.to_dict()).encode() + b"\n" for tried in tuned.table)
    show(tuned, output)
    output.say(f"best settings   {options.out / 'best.toml'}")
    output.result(
        {
            "alpha": tuned.config.loss.alpha,
            "trials": [tried.to_dict() for tried in tuned.table],
            "best": tuned.best.to_dict(),
            "config": str(options.out / "best.toml"),
        }
    )


def default_grid(config: Config) -> dict[str, list[object]]:
    """What varies where nobody says it."""
    looks_at = {"lr", *losses.find(config.loss.loss).options}
    name = next(name for name in DEFAULT_GRIDS if name in looks_at)
    return {name: DEFAULT_GRIDS[name]}


def read_options(arguments: Sequence[str]) -> TuneOptions:
    """Command line over config file over preset over defaults."""
    plain = parse(TuneOptions, "tune", arguments)
    if plain.config is None and plain.preset is None:
        return plain
    default = TuneOptions(out=tyro.MISSING, settings=base_settings(plain.config, plain.preset))
    return parse(TuneOptions, "tune", arguments, default)


def show(tuned: Tuned, output: Output) -> None:
    """The table of trials, the best first."""
    names = list(tuned.best.values)
    rows = [[*names, "epochs", "validation perplexity"]]
    for tried in tuned.table:
        reached = tried.reached
        found = "diverged" if reached.outcome.failure else f"{reached.valid_perplexity:.2f}"
        rows.append([*(str(tried.values[name]) for name in names), str(reached.epochs), found])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        output.say("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)))
