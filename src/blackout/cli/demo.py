"""``blackout demo``: a first result in one command, on text that ships with Python."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from blackout.cli.common import Output, parse
from blackout.config import Config, Loss
from blackout.errors import UserError
from blackout.text.bundled import bundled_text
from blackout.text.prepared import Prepared, prepare

SETTINGS = Config.from_dict(
    {
        "model": {"hidden": 128},
        "loss": {"loss": "blackout", "samples": 100, "alpha": 0.4},
        "optim": {"lr": 0.004, "lr_decay": 0.9},
        "run": {"batch": 32, "bptt": 20, "epochs": 8, "device": "cpu"},
    }
)
CONTESTANTS: dict[str, Loss] = {"BlackOut": "blackout", "exact softmax": "full"}


@dataclass
class DemoOptions:
    """Train on the Python language reference with BlackOut and with the exact softmax."""

    out: Path = Path("runs/demo")
    """Folder for the runs and the report; a demo already there is replaced."""
    epochs: int = SETTINGS.run.epochs
    """Passes over the training text."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(DemoOptions, "demo", arguments)
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

    from blackout.train.report import write_comparison

    report = write_comparison(
        out / "report.html",
        folders,
        rows,
        title="BlackOut demo",
        subtitle="Language models of the Python language reference",
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
    known = {"text", "data", "report.html", *CONTESTANTS.values()}
    strange = [path.name for path in out.iterdir() if path.name not in known]
    if strange:
        raise UserError(
            f"{out}: holds {strange[0]}, which is not from a demo; choose another --out"
        )
    shutil.rmtree(out)


def train_one(
    name: str, config: Config, data: Prepared, folder: Path, output: Output
) -> dict[str, Any]:
    """Trains one contestant; gives its line of the table."""
    from blackout.train import train  # PyTorch comes with it
    from blackout.train.progress import make_progress

    output.say(f"\n{name}")
    result = train(config, data, folder, progress=make_progress(config))
    assert result.test is not None
    return {
        "model": name,
        "test perplexity": round(result.test.perplexity, 2),
        "validation perplexity": round(result.valid_perplexity, 2),
        "words/s": round(result.words_per_second),
    }


def show(rows: list[dict[str, Any]], output: Output) -> None:
    """The table on the terminal."""
    output.say(f"\n{'':<16}{'test perplexity':>16}{'training words/s':>18}")
    for row in rows:
        output.say(f"{row['model']:<16}{row['test perplexity']:>16.2f}{row['words/s']:>18,}")
