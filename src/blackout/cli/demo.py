"""``blackout demo``: a first result in one command, on text that ships with Python."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackout.cli.common import Output, parse
from blackout.config import Config
from blackout.errors import UserError
from blackout.files.lock import LOCK
from blackout.losses import LossName
from blackout.run_folder import RunFolder
from blackout.text.bundled import bundled_text
from blackout.text.prepared import Prepared, prepare

if TYPE_CHECKING:
    from blackout.pages.plots import Plot

SETTINGS = Config.from_dict(
    {
        "model": {"hidden": 128, "dropout": 0.3},
        "loss": {"loss": "blackout", "samples": 100},
        "run": {"batch": 32, "bptt": 20, "epochs": 10, "device": "cpu"},
    }
)
NGRAM = "5-gram.arpa"
CONTESTANTS = {"BlackOut": LossName("blackout"), "exact softmax": LossName("full")}
QUICK_EPOCHS = 2
# The table begins with what one would use, and sets side by side what is to be compared.
MIXED, COUNTED = "BlackOut + Kneser-Ney", "Kneser-Ney 5-gram"
ORDER = (MIXED, COUNTED, *CONTESTANTS)


@dataclass
class DemoOptions:
    """Train on the Python language reference: BlackOut, exact softmax, Kneser-Ney, a mix."""

    out: Path = Path("runs/demo")
    """Folder for the runs and the report; a demo already there is replaced."""
    epochs: int | None = None
    """Passes over the training text; None: ten, or two with --quick."""
    quick: bool = False
    """A look within seconds: two passes over the text, perplexities far from their best."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(DemoOptions, "demo", arguments)
    with RunFolder(options.out).held():
        run_demo(options)


def run_demo(options: DemoOptions) -> None:
    out, output = options.out, options.output
    clear(out)
    texts = bundled_text(out / "text")
    data = prepare(
        texts["train"], out / "data", SETTINGS.text, valid=texts["valid"], test=texts["test"]
    )
    shard = data.shard("train")
    output.say(
        f"The Python language reference: {shard.words:,} words to train on, "
        f"a vocabulary of {len(data.vocab):,}."
    )
    usual = QUICK_EPOCHS if options.quick else SETTINGS.run.planned_epochs
    epochs = usual if options.epochs is None else options.epochs
    run = replace(SETTINGS.run, epochs=epochs, threads=options.threads)
    rows, folders = [], {}
    for name, loss in CONTESTANTS.items():
        config = replace(SETTINGS, run=run, loss=replace(SETTINGS.loss, loss=loss))
        folders[name] = out / loss
        rows.append(train_one(name, config, data, folders[name], output))

    more, plot = add_ngram(texts, out, options.threads, output)
    rows = sorted([*rows, *more], key=lambda row: ORDER.index(row["model"]))

    from blackout.pages.report import write_comparison

    report = write_comparison(
        out / "report.html",
        folders,
        rows,
        title="BlackOut demo",
        subtitle="Language models of the Python language reference",
        note=lesson(rows, shard.words),
        plots=[plot],
    )
    show(rows, output)
    output.say(f"\n{lesson(rows, shard.words)}")
    output.say(f"\nThe report with its curves: {report}")
    output.say(f"Text from the model:        blackout generate {out / 'blackout'}")
    output.say(
        f"A page to look into it:     blackout serve {out / 'blackout'} --ngram {out / NGRAM}"
    )
    ours = row_of(rows, "BlackOut")
    output.result(
        {
            "perplexity": ours["test perplexity"],
            "words_per_second": ours["words/s"],
            "report": str(report),
            "rows": rows,
        }
    )


def clear(out: Path) -> None:
    """Makes room for the demo; a folder that is not an earlier demo is left alone."""
    if not out.exists():
        return
    known = {"text", "data", "report.html", NGRAM, *CONTESTANTS.values(), LOCK}
    strange = [path.name for path in out.iterdir() if path.name not in known]
    if strange:
        raise UserError(
            f"{out}: holds {strange[0]}, which is not from a demo; choose another --out"
        )
    for path in out.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def train_one(
    name: str, config: Config, data: Prepared, folder: Path, output: Output
) -> dict[str, Any]:
    """Trains one contestant; gives its line of the table."""
    from blackout.pages.report import write_report  # PyTorch comes with it
    from blackout.train import train
    from blackout.train.progress import make_progress

    output.say(f"\n{name}")
    result = train(config, data, folder, progress=make_progress(config), report=write_report)
    assert result.test is not None
    if result.diverged:
        raise UserError(f"{name}: training diverged: {result.diverged}")
    return {
        "model": name,
        "test perplexity": round(result.test.perplexity, 2),
        "validation perplexity": round(result.valid_perplexity, 2),
        "words/s": round(result.words_per_second),
    }


def add_ngram(
    texts: dict[str, Path], out: Path, threads: int, output: Output
) -> tuple[list[dict[str, Any]], Plot]:
    """A Kneser-Ney 5-gram and its mixture with the BlackOut network: two lines and a plot.

    The 5-gram has the words of the network, so that all lines of the table are about the same.
    """
    from blackout.mixture.mixture import Mixture
    from blackout.models import load
    from blackout.ngram import NGram, train
    from blackout.pages.mixture_report import mixture_plot

    output.say("\nKneser-Ney 5-gram")
    started = time.perf_counter()
    words = RunFolder(out / CONTESTANTS["BlackOut"]).vocab
    estimate = train(texts["train"], out / NGRAM, vocab=words, threads=threads)
    speed = (estimate.words + estimate.sentences) / (time.perf_counter() - started)
    network, ngram = load(out / CONTESTANTS["BlackOut"]), NGram.load(out / NGRAM)
    mixture = Mixture([("BlackOut", network), ("Kneser-Ney", ngram)])
    fit, tuning = mixture.tune(texts["valid"])
    valid, test = (mixture.evaluate(texts[part], fit.weights) for part in ("valid", "test"))
    lines = [
        (COUNTED, test.component_perplexities[1], valid.component_perplexities[1], speed),
        (MIXED, test.perplexity, valid.perplexity, None),
    ]
    rows = [
        {
            "model": name,
            "test perplexity": round(on_test, 2),
            "validation perplexity": round(on_valid, 2),
            "words/s": None if rate is None else round(rate),
        }
        for name, on_test, on_valid, rate in lines
    ]
    plot = mixture_plot(["BlackOut", "Kneser-Ney"], fit, tuning)
    return rows, replace(plot, title="BlackOut mixed with Kneser-Ney, validation text")


def show(rows: list[dict[str, Any]], output: Output) -> None:
    """The table on the terminal."""
    width = max(len(row["model"]) for row in rows)
    output.say(f"\n{'':<{width}}{'test perplexity':>17}{'training words/s':>18}")
    for row in rows:
        speed = "–" if row["words/s"] is None else f"{row['words/s']:,}"
        output.say(f"{row['model']:<{width}}{row['test perplexity']:>17.2f}{speed:>18}")


def row_of(rows: Sequence[dict[str, Any]], model: str) -> dict[str, Any]:
    """The line of a model."""
    return next(row for row in rows if row["model"] == model)


def lesson(rows: Sequence[dict[str, Any]], words: int) -> str:
    """What the table says to somebody who sees it for the first time, as far as it is so."""
    perplexity = {row["model"]: row["test perplexity"] for row in rows}
    ours, exact = row_of(rows, "BlackOut"), row_of(rows, "exact softmax")
    ratio = ours["words/s"] / exact["words/s"]
    lines = [
        f"BlackOut trains {ratio:.1f} times as fast as the exact softmax; "
        "the larger the vocabulary, the more."
    ]
    if perplexity[COUNTED] < perplexity["BlackOut"]:
        lines.append(
            f"On {words:,} words, counting them (Kneser-Ney) beats a network, which needs millions "
            "to generalise from."
        )
    if perplexity[MIXED] < min(perplexity[COUNTED], perplexity["BlackOut"]):
        lines.append("Each knows what the other does not: mixed, they are better than either.")
    return "\n".join(lines)
