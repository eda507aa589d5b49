"""Which output layer to take: all of them, and programs of others, at equal training time.

A row is a layer, or a program of others, trained for some minutes; each is a file of its own, so a
study that was stopped goes on where it was. The settings are tried alike, by shorter runs on the
validation text; what the table shows is of the same text, and our test perplexity beside it.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from blackout import losses
from blackout.config import Config, TextConfig
from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.pages.picture import Curve, Panel
from blackout.paper.finding import Finding
from blackout.paper.lab import Lab
from blackout.paper.peers import PEERS, Peer, Texts, paths_of_peers, run_peer, write_known_words
from blackout.paper.timed import train_for
from blackout.text.prepared import Prepared, prepare

CORPUS, LINES, SCORED_LINES = "enwiki", 230_000, 2_000
VOCAB_SIZE, MINUTES, RATES = 64_000, (1.0, 3.0, 9.0), (1.0, 0.7, 1.4)
"""The first rate is the rule's own (:mod:`blackout.train.rates`)."""
Rate = TypeVar("Rate", float, str)
_OURS: Mapping[str, dict[str, Any]] = {
    "BlackOut": {"loss": "blackout"},
    "noise-contrastive estimation": {"loss": "nce"},
    "sampled softmax": {"loss": "sampled"},
    "hierarchical softmax": {"loss": "hierarchical"},
    "class-based softmax": {"loss": "classes"},
    "adaptive softmax": {"loss": "adaptive"},
    "exact softmax": {"loss": "full"},
}


def layers() -> dict[str, dict[str, Any]]:
    """The rows of ours: those above, and whatever loss is registered besides."""
    named = {settings["loss"] for settings in _OURS.values()}
    rest = {losses.find(name).title: {"loss": name} for name in losses.names() if name not in named}
    return {**_OURS, **rest}


@dataclass(frozen=True)
class Bench:
    """What all rows share."""

    lab: Lab
    data: Prepared
    folder: Path
    """Where it is prepared."""
    files: Mapping[str, Path]
    minutes: tuple[float, ...]

    @property
    def tries(self) -> int:
        return min(self.lab.tries or (1 if self.lab.quick else len(RATES)), len(RATES))

    @property
    def threads(self) -> int:
        return 1 if self.lab.quick else self.lab.threads or os.cpu_count() or 1

    @property
    def text(self) -> str:
        """A name of the text that another text does not have."""
        return f"{self.data.vocab.hash[:12]}-{self.data.shard('train').checksum}"

    def best(self, rates: Sequence[Rate], valid: Callable[[Rate, float], float]) -> Rate:
        """The rate that validation text prefers after the shortest time; the first untried."""
        some = rates[: self.tries]
        if len(some) == 1:
            return some[0]
        return min(some, key=lambda rate: valid(rate, self.minutes[0]))


class NotRun(Exception):
    """A row that was not asked for and is not there from an earlier command."""


def study(lab: Lab) -> Finding:
    minutes = tuple(sorted(lab.minutes or ((0.004,) if lab.quick else MINUTES)))
    bench = Bench(lab, *_texts(lab), minutes)
    programs = paths_of_peers(lab.peers)
    asked: dict[str, dict[str, Any] | Peer] = dict(layers())
    asked |= {peer.title: peer for peer in PEERS if peer.program in programs}
    if not any(lab.is_wanted(title) for title in asked):
        raise UserError(f"--only {' '.join(lab.only)}: no such row; there are {'; '.join(asked)}")
    rows: list[dict[str, Any]] = []
    for title, what in asked.items():
        for each in minutes:
            with contextlib.suppress(NotRun):
                if isinstance(what, Peer):
                    rows.append(_peer_row(bench, what, programs[what.program], each))
                else:
                    rows.append(_our_row(bench, title, what, each))
    return Finding(
        title="Which layer at equal training time",
        claim="nothing: it compares at equal epochs.",
        setting=_setting(bench),
        rows=rows,
        panels=[_panel(rows, minutes)],
    )


def _setting(bench: Bench) -> str:
    lab, tries, units = bench.lab, bench.tries, _config(bench, {}, 1.0).model.hidden
    lines = _lines(lab)
    text = CORPUS if lines is None else f"the first {lines:,} lines of {CORPUS}"
    text = "text that ships with Python" if lab.quick else text
    clock = "processor time of one thread" if bench.threads == 1 else f"{bench.threads} threads"
    tuned = "the default learning rates"
    if tries > 1:
        tuned = f"the learning rate the best of {tries} tries of {bench.minutes[0]:g} min"
    return (
        f"{len(bench.data.vocab):,} words of {text}, {units} sigmoid units, each row trained for "
        f"the minutes it names ({clock}, evaluation not counted), {tuned}; perplexity of the first "
        f"{SCORED_LINES:,} lines of validation text, which also chose the rate, and of test text."
    )


def _config(bench: Bench, loss: dict[str, Any], rate: float) -> Config:
    small = bench.lab.quick
    return Config.from_dict(
        {
            "model": {"hidden": 16 if small else 256},
            "loss": {"samples": 20 if small else 500, **loss},
            "optim": {"lr": rate},
            "run": {"batch": 8 if small else 128, "threads": bench.threads, "device": "cpu"},
        }
    )


def _lines(lab: Lab) -> int | None:
    """A part of the text; all of it where more words are wanted."""
    return LINES if lab.vocab_size <= VOCAB_SIZE else None


def _texts(lab: Lab) -> tuple[Prepared, Path, dict[str, Path]]:
    """The text, its validation and test parts cut short, and where it is prepared."""
    text = TextConfig(vocab_size=2_000 if lab.quick else lab.vocab_size or VOCAB_SIZE)
    corpus = lab.corpus(CORPUS, text, _lines(lab))
    files, folder = dict(corpus.files), corpus.prepared
    if not lab.quick:
        for part in ("valid", "test"):
            kind = f"{CORPUS}-{part}-{SCORED_LINES}"
            files[part] = lab.beginning(files[part], kind, SCORED_LINES)
        folder = folder.with_name(f"{folder.name}-short")
    data = prepare(files["train"], folder, text, valid=files["valid"], test=files["test"])
    return data, folder, files


def _remembered(
    bench: Bench, title: str, about: dict[str, Any], compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What a run came to; it is done where its row was asked for."""
    about = {"choose": title, "text": bench.text, "threads": bench.threads, **about}
    if not bench.lab.is_wanted(title) and not bench.lab.remembers(about):
        raise NotRun
    return bench.lab.remember(about, compute)


def _our_row(bench: Bench, title: str, loss: dict[str, Any], minutes: float) -> dict[str, Any]:
    """A layer trained for some minutes."""

    def run(rate: float, time: float) -> dict[str, Any]:
        config, apart = _config(bench, loss, rate), not bench.lab.quick
        about = {"loss": loss, "rate": rate, "minutes": time, "quick": bench.lab.quick}
        return _remembered(
            bench,
            title,
            about,
            lambda: asdict(train_for(config, bench.folder, 60 * time, apart=apart)),
        )

    def valid(rate: float, time: float) -> float:
        return float(run(rate, time)["valid_perplexity"])

    found = run(bench.best(RATES, valid), minutes)
    return {
        "layer": title,
        "minutes": minutes,
        "valid": found["valid_perplexity"],
        "test": found["test_perplexity"],
        "trained words/s": found["words"] / found["seconds"],
        "scored words/s": found["scored_per_second"],
        "GiB": found["peak_bytes"] / 2**30,
    }


def _peer_row(bench: Bench, peer: Peer, path: Path, minutes: float) -> dict[str, Any]:
    """A program of others after some minutes of its longest run."""
    folder = bench.lab.out / "peers" / peer.program

    def run(rate: str, time: float) -> list[list[float]]:
        def compute() -> dict[str, Any]:
            make_folder(folder)
            texts = _known_words(bench)
            return {"points": run_peer(peer, path, texts, folder, bench.threads, rate, 60 * time)}

        about = {"options": list(peer.options), "rate": rate, "minutes": time}
        return list(_remembered(bench, peer.title, about, compute)["points"])

    best = bench.best(peer.rates, lambda rate, time: run(rate, time)[-1][1])
    so_far = [point for point in run(best, bench.minutes[-1]) if point[0] <= 60 * minutes]
    if not so_far:
        raise NotRun
    return {
        "layer": peer.title,
        "minutes": minutes,
        "valid": so_far[-1][1],
        "test": None,
        "trained words/s": so_far[-1][2],
        "scored words/s": None,
        "GiB": None,
    }


def _known_words(bench: Bench) -> Texts:
    folder = (bench.lab.out / "peers" / f"text-{bench.text}").absolute()
    make_folder(folder)
    for part in ("train", "valid"):
        if not (folder / part).exists():
            write_known_words(bench.files[part], folder / f"{part}.new", bench.data.vocab)
            (folder / f"{part}.new").rename(folder / part)
    return Texts(folder / "train", folder / "valid", len(bench.data.shard("train").tokens))


def _panel(rows: list[dict[str, Any]], minutes: tuple[float, ...]) -> Panel:
    curves = []
    for title in dict.fromkeys(row["layer"] for row in rows):
        points = [
            (row["minutes"], row["valid"])
            for row in rows
            if row["layer"] == title and math.isfinite(row["valid"])
        ]
        if points:
            curves.append(Curve(title, [x for x, _ in points], [y for _, y in points]))
    return Panel(
        "minutes of training",
        "validation perplexity",
        curves,
        x_log=len(minutes) > 1,
        y_log=True,
        x_ticks=minutes,
    )
