"""A trial: a training run that is asked for, what it came to, and the names both are kept under.

A trial's result is found again by its key: a hash of everything that decides the result, which is
the settings but for those that only say where and how fast (threads, device), and the text itself.
A run is found again, by a trial with more epochs, under a key that leaves out their number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.files.plain_json import from_json
from blackout.perplexity import Perplexity
from blackout.run_folder import RunFolder
from blackout.text.prepared import Prepared, open_prepared
from blackout.train.checkpoint import MAY_CHANGE
from blackout.trials.words import words_file
from blackout.work import scoring_flops, training_flops

FORMAT = 4  # to be raised with every change of what the same settings compute
_AUTO_EPOCHS = 20  # a guess at how many epochs "auto" takes
_OVERHEAD = 50_000  # what a word costs besides arithmetic, in operations that take as long


@dataclass(frozen=True)
class Trial:
    """A training run to be done."""

    config: Config
    """Its settings; ``config.data`` is ignored."""
    data: Path
    """A folder of ``blackout prepare``."""
    measure: tuple[str, ...] = ("test",)
    """Texts, "train" or "test", whose perplexity the best model gets, where the folder has them."""
    keep_model: bool = False
    """Leave the best model as a folder."""
    keep_words: bool = False
    """Leave what the best model makes of each word of "valid" and of the texts measured."""
    may_diverge: bool = False
    """A run whose numbers become infinite is an outcome with a failure, not an error."""


@dataclass(frozen=True)
class Epoch:
    """How a run stood after an epoch."""

    epoch: int
    words: int
    """Words trained since the beginning."""
    seconds: float
    """Time spent training since the beginning."""
    lr: float
    train_loss: float
    valid_perplexity: float


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    curve: tuple[Epoch, ...]
    perplexity: dict[str, Perplexity]
    """Of the best model, for each text measured."""
    words_per_second: float
    """Training words a second."""
    parameters: int
    """Weights of the model."""
    model: Path | None = None
    """Folder of the best model, where it was to be kept."""
    words: Path | None = None
    """File of the words' log-probabilities, where they were to be kept; see
    :func:`blackout.trials.words.read_words`."""
    failure: str = ""
    """What became infinite or NaN; the curve ends there, and nothing was measured."""

    @property
    def valid_perplexity(self) -> float:
        """The best of the curve."""
        return min((epoch.valid_perplexity for epoch in self.curve), default=float("inf"))


@dataclass(frozen=True)
class Job:
    """A trial with its names and its size."""

    trial: Trial
    key: str
    """Of its result."""
    run_key: str
    """Of its run, whatever the number of epochs."""
    work: float
    """About how much it is to compute."""

    @property
    def epochs(self) -> int:
        return self.trial.config.run.last_epoch

    @property
    def keeps(self) -> bool:
        """Whether anything is to be left besides the outcome."""
        return self.trial.keep_model or self.trial.keep_words


def make_job(trial: Trial, data: Prepared) -> Job:
    """Finds a trial's names; ``data`` is its folder opened."""
    config = Config.from_dict(trial.config.to_dict())  # so that alpha 0 and 0.0 have one name
    sums = {part: shard.checksum for part, shard in data.shards.items()}
    text = {"vocabulary": data.vocab.hash, "train": sums["train"], "valid": sums.get("valid")}
    run = {"format": FORMAT, "settings": lasting_settings(config), "text": text}
    if config.schedule in ("linear", "cosine"):  # what a shorter run does is not its beginning
        run["planned epochs"] = config.run.planned_epochs
    measured = {part: sums[part] for part in sorted(set(trial.measure)) if part in sums}
    result = {"run": run, "epochs": _ending(config), "measured": measured}
    return Job(trial, key=_hash(result), run_key=_hash(run), work=_work(config, data))


def open_for_names(folder: Path) -> Prepared:
    """A prepared folder, for its names and sizes; the runs themselves verify its content."""
    return open_prepared(folder, verify=False)


def lasting_settings(config: Config) -> dict[str, Any]:
    """The settings that decide what a run computes, by table."""
    return {
        table: {k: v for k, v in values.items() if f"{table}.{k}" not in MAY_CHANGE}
        for table, values in config.to_dict().items()
        if table not in MAY_CHANGE
    }


def _work(config: Config, data: Prepared) -> float:
    size = len(data.vocab)
    training = len(data.shard("train").tokens) * (_OVERHEAD + training_flops(config, size))
    validation = len(data.shard("valid").tokens) * scoring_flops(config, size)
    return float(min(config.run.last_epoch, _AUTO_EPOCHS) * (training + validation))


def _ending(config: Config) -> object:
    """What decides when a run ends."""
    run = config.run
    return [run.epochs, run.patience, run.stop_after] if run.epochs == "auto" else run.last_epoch


def _hash(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:20]


# ---------------------------------------------------------------------- results on disk


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    values = asdict(outcome)
    del values["model"], values["words"]  # the folder may have been moved when the result is read
    return values


def outcome_from_dict(values: Mapping[str, Any]) -> Outcome:
    return Outcome(
        curve=tuple(Epoch(**epoch) for epoch in values["curve"]),
        perplexity={part: Perplexity(**found) for part, found in values["perplexity"].items()},
        words_per_second=values["words_per_second"],
        parameters=values["parameters"],
        failure=values["failure"],
    )


def write_result(path: Path, config: Config, outcome: Outcome) -> None:
    """Keeps an outcome, with the settings for people who look into the file."""
    values = {"settings": config.to_dict(), "outcome": outcome_to_dict(outcome)}
    with replacing(path) as file:
        file.write(json.dumps(values | {"sha256": _hash(values)}, indent=1).encode() + b"\n")


def read_result(path: Path) -> Outcome | None:
    """The outcome kept at ``path``, None where there is none; a damaged file is refused."""
    try:
        values = from_json(path.read_bytes())
        stated = values.pop("sha256")
        if stated != _hash(values):
            raise ValueError
        return outcome_from_dict(values["outcome"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{path}: damaged") from None


def files_kept(folder: Path, key: str, keep_model: bool, keep_words: bool) -> list[Path]:
    """What there is of a trial besides its result, in the folder of all trials."""
    model = [RunFolder(folder / "models" / key).weights] if keep_model else []
    return [*model, words_file(folder, key)] if keep_words else model


def answers(known: Outcome, kept: Sequence[Path], may_diverge: bool) -> bool:
    """Whether a known outcome is all that a trial asks for; ``kept``: files that belong to it."""
    if known.failure:
        return may_diverge
    return all(path.is_file() for path in kept)


# ---------------------------------------------------------------------- trials in words


def label_trials(trials: Sequence[Trial]) -> list[str]:
    """What tells these trials apart, in words; of a single one, what is not the default.

    >>> trials = [Trial(Config.from_dict({"loss": {"alpha": a}}), Path("data")) for a in (0, 0.4)]
    >>> label_trials(trials), label_trials(trials[:1])
    (['alpha 0.0', 'alpha 0.4'], ['alpha 0.0'])
    """
    flat = [_flat(trial) for trial in trials]
    others = [_flat(Trial(Config(), trials[0].data))] if len(trials) == 1 else []
    names = [name for name in flat[0] if len({str(f[name]) for f in [*flat, *others]}) > 1]
    return [", ".join(f"{name} {f[name]}" for name in names) or "the defaults" for f in flat]


def _flat(trial: Trial) -> dict[str, object]:
    tables = lasting_settings(trial.config)
    settings = {name: value for values in tables.values() for name, value in values.items()}
    return settings | {"epochs": trial.config.run.last_epoch, "data": trial.data}
