"""report.html: what a run came to, as one page that needs no network and no server.

Learning curves, final figures, settings and a sample of generated text, from what the run's folder
holds: ``run.toml``, ``metrics.jsonl`` and the model. The same parts make a page that compares
several runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackout import losses
from blackout.config import Config
from blackout.files.tensors import open_tensors
from blackout.models.saved import MODEL_PREFIX, load
from blackout.pages import page
from blackout.pages.plots import Plot, Series
from blackout.run_folder import RunFolder
from blackout.score.generate import generate
from blackout.train.metrics import read_metrics
from blackout.train.progress import duration

__all__ = ["Run", "read_run", "write_comparison", "write_report"]

SAMPLE_WORDS = 120
SAMPLE_LINES = 20
SAMPLE_TEMPERATURE = 0.8
SAMPLE_LIMIT = 2 << 30
"""Weights of more bytes are not loaded a second time just for a sample."""

_GROUPS = {
    "model": "Network",
    "loss": "Loss",
    "optim": "Optimiser",
    "run": "Training",
    "text": "Text",
    "data": "Files",
}


@dataclass(frozen=True)
class Run:
    """A run folder, read."""

    folder: Path
    config: Config
    epochs: list[dict[str, Any]]
    """The "epoch" events of metrics.jsonl."""
    test: dict[str, Any] | None
    """Its "test" event."""
    vocab_size: int
    parameters: int
    features: dict[str, Any] | None = None
    """Its "features" event, of hashed n-gram features."""

    @property
    def finished(self) -> bool:
        return self.test is not None or len(self.epochs) >= self.config.run.planned_epochs

    @property
    def diverged(self) -> str:
        """What the latest validation found wrong."""
        return str(self.epochs[-1].get("diverged", "")) if self.epochs else ""

    @property
    def best(self) -> dict[str, Any] | None:
        """The epoch with the lowest validation perplexity."""
        return min(self.epochs, key=lambda e: _or_inf(e["valid_perplexity"]), default=None)

    def curve(self, label: str, key: str) -> Series:
        """A figure of each epoch."""
        return Series(
            label, [e["epoch"] for e in self.epochs], [_or_inf(e[key]) for e in self.epochs]
        )

    def speed_curve(self, label: str) -> Series:
        """Words a second within each epoch; the metrics hold the mean since the start."""
        speeds, words, seconds = [], 0, 0.0
        for event in self.epochs:
            took = event["seconds"] - seconds
            speeds.append((event["words"] - words) / took if took > 0 else math.nan)
            words, seconds = event["words"], event["seconds"]
        return Series(label, [e["epoch"] for e in self.epochs], speeds)


def read_run(folder: Path) -> Run:
    """What a run folder says of the run."""
    place = RunFolder(folder)
    config = Config.from_file(place.settings)
    events = list(read_metrics(place.metrics))
    epochs = [event for event in events if event["event"] == "epoch"]
    tests = [event for event in events if event["event"] == "test"]
    features = [event for event in events if event["event"] == "features"]
    weights = _weights(place)
    parameters, vocab_size = _count(*weights) if weights else (0, 0)
    test = tests[-1] if tests else None
    return Run(
        folder, config, epochs, test, vocab_size, parameters, features[-1] if features else None
    )


def write_report(run_folder: Path) -> Path:
    """Writes ``report.html`` into a run folder, finished or not, and gives its path."""
    run = read_run(run_folder)
    sections = [page.section("Results", page.cards(_figures(run)))]
    if run.epochs:
        sections.append(page.section("Learning curves", page.plots(_curves(run))))
    else:
        sections.append(page.section("Learning curves", page.prose("No epoch is finished yet.")))
    sections.append(_sample_section(run))
    note = "Highlighted: settings that differ from the default."
    sections.append(page.section("Settings", page.prose(note), page.settings(_settings(run))))
    html = page.page(f"Training run “{run_folder.resolve().name}”", _subtitle(run), sections)
    return page.write(RunFolder(run_folder).report, html)


def write_comparison(
    out: Path,
    runs: Mapping[str, Path],
    table_rows: Sequence[Mapping[str, object]] | None = None,
    *,
    title: str = "Comparison",
    subtitle: str = "",
    note: str = "",
    plots: Sequence[Plot] = (),
) -> Path:
    """Writes one page about several runs: a table, their curves together, a sample of each.

    ``runs``: name → run folder. ``table_rows``: one mapping a row, all with the same keys in the
    same order, which are the columns' names; by default a row of figures for each run. ``note``:
    what is to be said below it. ``plots``: further plots. ``out``: the file to write.
    """
    read = {name: read_run(folder) for name, folder in runs.items()}
    rows = table_rows or [_row(name, run) for name, run in read.items()]
    header = list(rows[0])
    cells = [[_cell(row[column]) for column in header] for row in rows]
    below = [page.prose(note)] if note else []
    sections = [page.section("Results", page.table(header, cells), *below)]
    with_epochs = {name: run for name, run in read.items() if run.epochs}
    if with_epochs:
        sections.append(page.section("Learning curves", page.plots(_joint_curves(with_epochs))))
    if plots:
        sections.append(page.section("Further figures", page.plots(plots)))
    sections += [_sample_section(run, f"Text from {name}") for name, run in read.items()]
    return page.write(out, page.page(title, subtitle, sections))


# ---------------------------------------------------------------------- figures


def _subtitle(run: Run) -> str:
    loss, model = losses.find(run.config.loss.loss), run.config.model
    parts = [f"{model.cell} network, {model.layers} × {model.hidden} units"]
    symbols = {"samples": "K", "alpha": "α"}
    used = {symbols[o]: getattr(run.config.loss, o) for o in symbols if o in loss.options}
    named = tuple(f"{s} = {v:,}" if isinstance(v, int) else f"{s} = {v:g}" for s, v in used.items())
    if run.config.loss.maxent:
        named = (*named, f"n-gram features of {run.config.loss.maxent} words")
    parts.append(", ".join([loss.title, *named]))
    if run.finished:
        parts.append(f"{_epochs(len(run.epochs))}, finished")
    else:
        planned = run.config.run.epochs
        of = "" if planned == "auto" else f" of {_epochs(planned)}"
        parts.append(f"stopped after {len(run.epochs)}{of}")
    if run.diverged:
        parts.append(f"diverged: {run.diverged}")
    return " · ".join(parts)


def _epochs(number: int) -> str:
    return f"{number} epoch{'' if number == 1 else 's'}"


def _figures(run: Run) -> list[tuple[str, str, str]]:
    figures = []
    if run.test:
        test = run.test
        tokens = test["words"] + test["sentence_ends"]
        figures.append(
            ("Test perplexity", _perplexity(test["perplexity"]), f"over {tokens:,} tokens")
        )
        figures.append(
            (
                "Test, without <unk>",
                _perplexity(test["perplexity_without_unk"]),
                f"{test['unknown']:,} unknown left out",
            )
        )
    if best := run.best:
        figures.append(
            (
                "Validation perplexity",
                _perplexity(best["valid_perplexity"]),
                f"best, epoch {best['epoch']}",
            )
        )
        without = _perplexity(best["valid_perplexity_without_unk"])
        figures.append(("Validation, without <unk>", without, "of the same model"))
        last = run.epochs[-1]
        figures.append(
            ("Training speed", f"{last['words_per_second']:,.0f}", "words a second, mean")
        )
        figures.append(("Training time", duration(last["seconds"]), "without evaluation"))
        figures.append(("Words trained", f"{last['words']:,}", _epochs(last["epoch"])))
    if run.parameters:
        figures.append(
            ("Parameters", f"{run.parameters:,}", f"vocabulary of {run.vocab_size:,} words")
        )
    if run.features:
        about = "" if run.features["counted"] == 1 else "about "
        shared = f"{about}{run.features['shared']:,} share a number with another"
        figures.append(("Hashed n-grams", f"{about}{run.features['features']:,}", shared))
    return figures


def _row(name: str, run: Run) -> dict[str, object]:
    test, best = run.test or {}, run.best or {}
    last = run.epochs[-1] if run.epochs else {}
    return {
        "": name,
        "Validation perplexity": best.get("valid_perplexity"),
        "Test perplexity": test.get("perplexity"),
        "without <unk>": test.get("perplexity_without_unk"),
        "Words/s": round(last["words_per_second"]) if last else None,
        "Training time": duration(last["seconds"]) if last else None,
    }


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return _perplexity(value) if isinstance(value, float) else str(value)


def _perplexity(value: float | None) -> str:
    value = _or_inf(value)
    if not math.isfinite(value):
        return "∞" if value > 0 else "–"
    return f"{value:,.2f}" if value < 10_000 else f"{value:,.0f}"


def _or_inf(value: float | None) -> float:
    return math.inf if value is None or math.isnan(value) else value


# ---------------------------------------------------------------------- curves


def _curves(run: Run) -> list[Plot]:
    valid = run.curve("all words", "valid_perplexity")
    without = run.curve("without <unk>", "valid_perplexity_without_unk")
    differs = valid.y != without.y
    best = run.best
    assert best is not None
    loss = "nats a word" if losses.find(run.config.loss.loss).exact else "loss a word"
    return [
        Plot(
            "Validation perplexity",
            "epoch",
            "perplexity",
            [valid, without] if differs else [valid],
            log=_is_wide(valid),
            mark=(best["epoch"], _or_inf(best["valid_perplexity"])),
        ),
        Plot("Training loss", "epoch", loss, [run.curve("loss", "train_loss")]),
        Plot("Learning rate", "epoch", "learning rate", [run.curve("rate", "lr")], from_zero=True),
        Plot("Training speed", "epoch", "words/s", [run.speed_curve("speed")], from_zero=True),
    ]


def _joint_curves(runs: Mapping[str, Run]) -> list[Plot]:
    valid = [run.curve(name, "valid_perplexity") for name, run in runs.items()]
    by_time = [
        Series(name, [e["seconds"] for e in run.epochs], curve.y)
        for (name, run), curve in zip(runs.items(), valid, strict=True)
    ]
    log = any(_is_wide(series) for series in valid)
    return [
        Plot("Validation perplexity by epoch", "epoch", "perplexity", valid, log=log),
        Plot(
            "Validation perplexity by training time",
            "seconds of training",
            "perplexity",
            by_time,
            log=log,
            whole=False,
        ),
    ]


def _is_wide(series: Series) -> bool:
    """Whether a curve falls so far that its end is flat on a linear axis."""
    _, y = series.finite()
    return bool(y) and max(y) > 5 * min(y)


# ---------------------------------------------------------------------- settings and sample


def _settings(run: Run) -> dict[str, list[tuple[str, str, bool]]]:
    default = Config()
    groups = {}
    for table, title in _GROUPS.items():
        mine, usual = getattr(run.config, table), getattr(default, table)
        groups[title] = [
            (
                field.name.replace("_", " "),
                _setting(getattr(mine, field.name)),
                # every run names its files: nothing to point out
                table != "data" and getattr(mine, field.name) != getattr(usual, field.name),
            )
            for field in dataclasses.fields(mine)
            if not (table == "data" and getattr(mine, field.name) is None)
        ]
    return {title: values for title, values in groups.items() if values}


def _setting(value: object) -> str:
    if value is None or value == ():
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _sample_section(run: Run, title: str = "A sample of generated text") -> str:
    weights = _weights(RunFolder(run.folder))
    if weights is None:
        return page.section(title, page.prose("There is no model to generate it from yet."))
    path, prefix = weights
    if path.stat().st_size > SAMPLE_LIMIT:
        return page.section(
            title, page.prose(f"blackout generate {run.folder} writes text from this model.")
        )
    model = load(run.folder, which="last" if prefix else "best")
    text = generate(model, words=SAMPLE_WORDS, temperature=SAMPLE_TEMPERATURE)
    text = "\n".join(text.split("\n")[:SAMPLE_LINES])
    note = (
        f"Words drawn from the exact softmax at temperature {SAMPLE_TEMPERATURE:g}, "
        "one sentence a line"
    )
    note += "; the model is that of the last checkpoint." if prefix else "."
    return page.section(title, page.prose(note), page.sample(text))


def _weights(folder: RunFolder) -> tuple[Path, str] | None:
    """The file with the best weights, or else the newest checkpoint, and its names' prefix."""
    if folder.weights.is_file():
        return folder.weights, ""
    newest = folder.newest_checkpoint()
    return None if newest is None else (newest, MODEL_PREFIX)


def _count(path: Path, prefix: str) -> tuple[int, int]:
    """Parameters and vocabulary size of a model, from the file's header alone."""
    parameters = vocab_size = 0
    with open_tensors(path) as file:
        for name in file.keys():  # noqa: SIM118
            part = file.get_slice(name)
            if name.startswith(prefix) and part.get_dtype() != "I64":  # I64: counters of steps
                parameters += math.prod(part.get_shape())
            if name == f"{prefix}embedding.weight":
                vocab_size = part.get_shape()[0]
    return parameters, vocab_size
