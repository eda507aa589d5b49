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


@dataclass
class DemoOptions:
    """Train on the Python language reference: BlackOut, exact softmax, Kneser-Ney, a mix."""

    out: Path = Path("runs/demo")
    """Folder for the runs and the report; a demo already there is replaced."""
    epochs: int = SETTINGS.run.planned_epochs
    """Passes over the training text."""
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
    run = replace(SETTINGS.run, epochs=options.epochs, threads=options.threads)
    rows, folders = [], {}
    for name, loss in CONTESTANTS.items():
        config = replace(SETTINGS, run=run, loss=replace(SETTINGS.loss, loss=loss))
        folders[name] = out / loss
        rows.append(train_one(name, config, data, folders[name], output))

    more, plot = add_ngram(texts, out, options.threads, output)
    rows += more

    from blackout.pages.report import write_comparison

    report = write_comparison(
        out / "report.html",
        folders,
        rows,
        title="BlackOut demo",
        subtitle="Language models of the Python language reference",
        plots=[plot],
    )
    show(rows, output)
    output.say(f"\nThe report with its curves: {report}")
    output.say(f"Text from the model:        blackout generate {out / 'blackout'}")
    best = rows[0]
    output.result(
        {
            "perplexity": best["test perplexity"],
            "words_per_second": best["words/s"],
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
        ("Kneser-Ney", test.component_perplexities[1], valid.component_perplexities[1], speed),
        ("BlackOut + KN", test.perplexity, valid.perplexity, None),
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
    output.say(f"\n{'':<16}{'test perplexity':>16}{'training words/s':>18}")
    for row in rows:
        speed = "–" if row["words/s"] is None else f"{row['words/s']:,}"
        output.say(f"{row['model']:<16}{row['test perplexity']:>16.2f}{speed:>18}")
