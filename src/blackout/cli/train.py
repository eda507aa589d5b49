"""``blackout train``: a text file in, a language model and its exact perplexity out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from blackout.cli.common import Output, Settings, parse
from blackout.cli.on_ranks import is_alone, join
from blackout.config import Config, DataConfig
from blackout.errors import UserError
from blackout.presets import Preset
from blackout.run_folder import RunFolder
from blackout.text.prepared import Prepared, open_prepared, prepare

if TYPE_CHECKING:
    from blackout.ranks import Ranks
    from blackout.train import TrainResult


@dataclass
class TrainOptions:
    """Train a language model: blackout train --train FILE --valid FILE [--test FILE] --out DIR

    A stopped or killed run goes on with: blackout train --out DIR --resume
    """

    out: Path
    """Folder of the run: model, metrics, checkpoints, report."""
    resume: bool = False
    """Go on with the run in --out, with its settings."""
    config: Path | None = None
    """Settings from a TOML file, such as the run.toml of another run; options here win over it."""
    preset: Preset | None = None
    """Settings to begin with instead of the defaults; paper: those of the paper."""
    settings: Settings = field(default_factory=Config)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = read_options(arguments)
    output, config = options.output, options.settings
    if config.warning:
        print(f"warning: {config.warning}", file=sys.stderr)
    folder = RunFolder(options.out)
    result = run(config, folder, options.resume)
    test = result.test
    output.say(f"validation perplexity  {result.valid_perplexity:.2f}")
    if test is not None:
        output.say(f"test perplexity        {test.perplexity:.2f}")
        output.say(f"  without <unk>        {test.perplexity_without_unk:.2f}")
    output.say(f"training speed         {result.words_per_second:,.0f} words/s")
    output.say(f"model                  {result.model}")
    output.say(f"report                 {folder.report}")
    output.result(
        {
            "valid_perplexity": result.valid_perplexity,
            "test_perplexity": test.perplexity if test else None,
            "test_perplexity_without_unk": test.perplexity_without_unk if test else None,
            "words_per_second": result.words_per_second,
            "epochs": result.epochs,
            "diverged": bool(result.diverged),
            "model": str(result.model),
            "report": str(folder.report),
        }
    )
    if result.diverged and not config.run.keep_going:
        raise UserError(f"training diverged: {result.diverged}; the best model is kept")


def run(config: Config, folder: RunFolder, resume: bool) -> TrainResult:
    """Reads the text and trains; of several ranks the first prepares the text for all."""
    if not is_alone() or "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun may start one again
        return _run_on_ranks(config, folder, resume)
    with folder.held():
        if not resume and folder.newest_checkpoint() is not None:
            # Said before the text is read: that would replace the other run's data.
            raise UserError(f"{folder}: holds a run already; --resume goes on with it")
        return _train(config, find_data(config, folder.data), folder, resume)


def _run_on_ranks(config: Config, folder: RunFolder, resume: bool) -> TrainResult:
    from blackout.train.checkpoint import was_launched_as
    from blackout.train.on_ranks import require_same_settings

    launch, ranks = join(config.run.device, config.run.rank_timeout)
    require_same_settings(ranks, config)
    with ExitStack() as stack:

        def prepare_text() -> None:
            stack.enter_context(folder.held())
            ours = resume or was_launched_as(folder, launch.name)
            if not ours and folder.newest_checkpoint() is not None:
                raise UserError(f"{folder}: holds a run already; --resume goes on with it")
            find_data(config, folder.data)

        launch.first_alone(prepare_text)
        data = find_data(config, folder.data, prepared=launch.rank > 0)
        return _train(config, data, folder, resume, ranks, launch.name)


def _train(
    config: Config,
    data: Prepared,
    folder: RunFolder,
    resume: bool,
    ranks: Ranks | None = None,
    launch: str = "",
) -> TrainResult:
    from blackout.pages.report import write_report  # PyTorch comes with it
    from blackout.train import train
    from blackout.train.progress import make_progress

    return train(
        config,
        data,
        folder,
        resume=resume,
        progress=make_progress(config),
        report=write_report,
        process_group=ranks,
        launch=launch,
    )


def read_options(arguments: Sequence[str]) -> TrainOptions:
    """Command line over config file over preset; --resume takes the run's own config file."""
    plain = parse(TrainOptions, "train", arguments)
    path = plain.config or (RunFolder(plain.out).settings if plain.resume else None)
    if path is None and plain.preset is None:
        return plain
    if plain.resume and plain.config is None and path is not None and not path.is_file():
        raise UserError(f"{plain.out}: no run to resume: it has no {path.name}")
    settings = base_settings(path, plain.preset)
    if plain.resume and plain.config is None:
        settings = _beyond_its_stop(settings, RunFolder(plain.out))
    default = TrainOptions(out=tyro.MISSING, settings=settings)
    return parse(TrainOptions, "train", arguments, default)


def _beyond_its_stop(config: Config, folder: RunFolder) -> Config:
    """A run's settings, without a --stop-after that it has come to: the other epochs come now."""
    if config.run.stop_after is None:
        return config

    from blackout.train.metrics import read_metrics  # PyTorch comes with it

    done = sum(event["event"] == "epoch" for event in read_metrics(folder.metrics))
    if done < config.run.stop_after:
        return config
    return replace(config, run=replace(config.run, stop_after=None))


def base_settings(path: Path | None, preset: Preset | None) -> Config:
    """What the command line stands on: a file's settings, over those of a preset."""
    if path is None:
        return Config.from_dict({} if preset is None else {"preset": preset})
    return Config.from_file(path, preset)


def find_data(config: Config, folder: Path, *, prepared: bool = False) -> Prepared:
    """The text of a run: a prepared folder, or files that are prepared in ``folder``.

    ``prepared``: another process has done that already.
    """
    data: DataConfig = config.data
    if data.prepared:
        if data.train or data.valid or data.test:
            raise UserError("--prepared stands instead of --train, --valid and --test, not beside")
        return open_prepared(data.prepared)
    if not data.train or not data.valid:
        raise UserError("--train and --valid name the text, or --prepared a prepared folder")
    if prepared:
        if not folder.is_dir():
            raise UserError(
                f"{folder}: is not there, though rank 0 has made it: "
                "--out must be a folder that all ranks share"
            )
        parts = [name for name in ("train", "valid", "test") if getattr(data, name)]
        return open_prepared(folder, parts)
    return prepare(
        data.train,
        folder,
        config.text,
        valid=data.valid,
        test=data.test,
        threads=config.run.threads,
    )
