"""Which output layer to take: all of them, and programs of others, at equal training time.

A run is a layer, or a program of others, looked at after some minutes, a row each. It is a file of
its own, so a study that was stopped goes on where it was. The settings are tried alike, by shorter
runs, on the validation text, of which the table shows the perplexity.
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
from blackout.paper.peers import (
    PEERS,
    Peer,
    Point,
    Run,
    Texts,
    TooEarly,
    at_time,
    paths_of_peers,
    run_peer,
    write_known_words,
)
from blackout.paper.timed import RULES, Mark, train_for
from blackout.text.prepared import Prepared, prepare

CORPUS, SCORED_LINES, FEWER_LINES = "enwiki", 2_000, 500
VOCAB_SIZE, MINUTES, RATES = 64_000, (1.0, 3.0, 9.0), (1.0, 0.7, 0.5)
"""The first rate is the rule's own (:mod:`blackout.train.rates`)."""
Settings = dict[str, dict[str, Any]]
"""Of a row: tables of a config."""
_FEATURES = {"maxent": 3, "maxent_bits": 26}
_FEW = {"samples": 100}  # with features a sample costs as many places of a large table as orders
_OURS: Mapping[str, Settings] = {
    "BlackOut": {"loss": {"loss": "blackout"}},
    "BlackOut, n-gram features": {
        "loss": {"loss": "blackout", **_FEATURES, **_FEW},
    },
    "BlackOut, samples by LSH": {"loss": {"loss": "blackout", "proposal": "lsh"}},
    "noise-contrastive estimation": {"loss": {"loss": "nce"}},
    "sampled softmax": {"loss": {"loss": "sampled"}},
    "hierarchical softmax": {"loss": {"loss": "hierarchical"}},
    "hierarchical softmax, n-gram features": {
        "loss": {"loss": "hierarchical", **_FEATURES},
    },
    "class-based softmax": {"loss": {"loss": "classes"}},
    "adaptive softmax": {"loss": {"loss": "adaptive"}},
    "exact softmax": {"loss": {"loss": "full"}},
}
Rate = TypeVar("Rate", float, str)


def layers() -> dict[str, Settings]:
    """The rows of ours: those above, and whatever loss is registered besides."""
    named = {settings["loss"]["loss"] for settings in _OURS.values()}
    rest = [name for name in losses.names() if name not in named]
    return {**_OURS, **{losses.find(name).title: {"loss": {"loss": name}} for name in rest}}


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

    def is_wanted(self, title: str) -> bool:
        """Whether a row is to be run; one that is named whole means itself alone."""
        if titles := set(self.lab.only) & {*layers(), *(peer.title for peer in PEERS)}:
            return title in titles
        return self.lab.is_wanted(title)

    def best(self, rates: Sequence[Rate], valid: Callable[[Rate], float]) -> tuple[Rate, int]:
        """The rate that validation text prefers, and of how many; the first where it has no say."""
        some = rates[: self.tries]
        if len(some) == 1:
            return some[0], 1
        found = {rate: valid(rate) for rate in some}
        known = sum(map(math.isfinite, found.values()))
        return min(some, key=lambda rate: found[rate]), max(known, 1)

    def longest_known(self, about: Callable[[Sequence[float]], dict[str, Any]]) -> Sequence[float]:
        """The minutes of a row that is there, were it shorter; the next shorter ones first."""
        for some in range(len(self.minutes), 0, -1):
            if self.lab.remembers(self.named(about(self.minutes[:some]))):
                return self.minutes[:some]
        raise NotRun

    def named(self, about: dict[str, Any]) -> dict[str, Any]:
        """What a run is remembered by."""
        return {"choose": 2, "text": self.text, "threads": self.threads, **about}


class NotRun(Exception):
    """A row that was not asked for and is not there from an earlier command."""


def study(lab: Lab) -> Finding:
    minutes = tuple(sorted(lab.minutes or ((0.001,) if lab.quick else MINUTES)))
    bench = Bench(lab, *_texts(lab), minutes)
    programs = paths_of_peers(lab.peers)
    asked: dict[str, Settings | Peer] = dict(layers())
    asked |= {peer.title: peer for peer in PEERS}
    if not any(bench.is_wanted(title) for title in asked):
        raise UserError(f"--only {' '.join(lab.only)}: no such row; there are {'; '.join(asked)}")
    rows: list[dict[str, Any]] = []
    for title, what in asked.items():
        with contextlib.suppress(NotRun):
            if isinstance(what, Peer):
                rows += _peer_rows(bench, what, programs.get(what.program))
            else:
                rows += _our_rows(bench, title, what)
    if not rows:
        raise UserError(f"--only {' '.join(lab.only)}: a program of others, which needs --peer")
    return Finding(
        title="Which layer at equal training time",
        claim="nothing: it compares at equal epochs.",
        setting=_setting(bench),
        rows=rows,
        panels=[_panel(rows, minutes)],
    )


def _setting(bench: Bench) -> str:
    lab, tries, model = bench.lab, bench.tries, _config(bench, {"loss": {}}, 1.0).model
    text = "text that ships with Python" if lab.quick else CORPUS
    clock = "processor time of one thread" if bench.threads == 1 else f"{bench.threads} threads"
    tuned, chose = "the default learning rates", ""
    if tries > 1:
        tuned = f"the learning rate the best of the tries, of {bench.minutes[0]:g} min each"
        chose = ", which also chose the rate"
    return (
        f"{len(bench.data.vocab):,} words of {text}, {model.hidden} {model.cell} units, each row "
        f"one run after the minutes it names ({clock}, evaluation not counted), {tuned}; "
        f"perplexity of the first {_scored_lines(lab):,} lines of validation text{chose}."
    )


def _config(bench: Bench, settings: Settings, rate: float) -> Config:
    small = bench.lab.quick
    loss = {"samples": 500, **settings["loss"]}
    if small:
        loss["samples"] = 20
        loss |= {"maxent_bits": 12} if "maxent" in loss else {}
    return Config.from_dict(
        {
            "model": {"cell": "sigmoid", "hidden": 16 if small else 256},
            "loss": loss,
            "optim": {"lr": rate, **settings.get("optim", {})},
            "run": {"batch": 8 if small else 128, "threads": bench.threads, "device": "cpu"},
        }
    )


def _scored_lines(lab: Lab) -> int:
    """Of validation text: exact scoring goes through all words of the vocabulary."""
    return SCORED_LINES if lab.vocab_size <= VOCAB_SIZE else FEWER_LINES


def _texts(lab: Lab) -> tuple[Prepared, Path, dict[str, Path]]:
    """The text, its validation part cut short, and where it is prepared."""
    text = TextConfig(vocab_size=2_000 if lab.quick else lab.vocab_size or VOCAB_SIZE)
    corpus = lab.corpus(CORPUS, text)
    files, folder = dict(corpus.files), corpus.prepared
    if not lab.quick:
        lines = _scored_lines(lab)
        files["valid"] = lab.beginning(files["valid"], f"{CORPUS}-valid-{lines}", lines)
        folder = folder.with_name(f"{folder.name}-{lines}")
    data = prepare(files["train"], folder, text, valid=files["valid"])
    return data, folder, files


def _our_rows(bench: Bench, title: str, settings: Settings) -> list[dict[str, Any]]:
    """A layer at each of the marks of one run."""
    wanted, apart = bench.is_wanted(title), not bench.lab.quick

    def about(rate: float, minutes: Sequence[float]) -> dict[str, Any]:
        asked = {"rate": rate, "minutes": list(minutes), "quick": bench.lab.quick}
        return {**settings, **asked, "timed": RULES}

    def run(rate: float, minutes: Sequence[float]) -> list[Mark]:
        def compute() -> dict[str, Any]:
            config = _config(bench, settings, rate)
            found = train_for(config, bench.folder, [60 * each for each in minutes], apart=apart)
            return {"marks": [asdict(mark) for mark in found]}

        found = bench.lab.remember(bench.named(about(rate, minutes)), compute)
        return [Mark(**mark) for mark in found["marks"]]

    def tried(rate: float) -> float:
        first = bench.minutes[:1]
        if not wanted and not bench.lab.remembers(bench.named(about(rate, first))):
            return math.inf
        return run(rate, first)[-1].perplexity

    rate, tries = bench.best(RATES, tried)
    minutes = bench.minutes
    if not wanted:
        minutes = tuple(bench.longest_known(lambda some: about(rate, some)))
    return [
        _row(
            title,
            each,
            mark.perplexity,
            mark.words / mark.seconds,
            mark.scored_per_second,
            mark.peak_bytes,
            f"{rate:g}",
            tries,
        )
        for each, mark in zip(minutes, run(rate, minutes), strict=True)
    ]


def _peer_rows(bench: Bench, peer: Peer, path: Path | None) -> list[dict[str, Any]]:
    """A program of others at each of the marks of one run."""
    folder = bench.lab.out / "peers" / peer.program
    wanted = path is not None and bench.is_wanted(peer.title)

    def about(rate: str, minutes: Sequence[float]) -> dict[str, Any]:
        return {"options": list(peer.options), "rate": rate, "minutes": list(minutes)}

    def run(rate: str, minutes: Sequence[float]) -> list[Point]:
        def compute() -> dict[str, Any]:
            assert path is not None
            make_folder(folder)
            marks = [60 * each for each in minutes]
            asked = Run(path, _known_words(bench), folder, bench.threads, rate, marks)
            return {"points": run_peer(peer, asked)}

        found = bench.lab.remember(bench.named(about(rate, minutes)), compute)
        return [Point(*point) for point in found["points"]]

    def tried(rate: str) -> float:
        first = bench.minutes[:1]
        if not wanted and not bench.lab.remembers(bench.named(about(rate, first))):
            return math.inf
        try:
            return at_time(run(rate, first), 60 * first[0]).perplexity
        except TooEarly:
            return math.inf

    rate, tries = bench.best(peer.rates, tried)
    minutes = bench.minutes
    if not wanted:
        minutes = tuple(bench.longest_known(lambda some: about(rate, some)))
    points, rows = run(rate, minutes), []
    for each in minutes:
        with contextlib.suppress(TooEarly):
            point = at_time(points, 60 * each)
            rows.append(
                _row(
                    peer.title,
                    each,
                    point.perplexity,
                    point.words_per_second,
                    point.scored_per_second,
                    point.peak_bytes,
                    rate,
                    tries,
                )
            )
    return rows


def _row(
    title: str,
    minutes: float,
    valid: float,
    trained: float,
    scored: float,
    peak: int,
    rate: str,
    tries: int,
) -> dict[str, Any]:
    return {
        "layer": title,
        "minutes": minutes,
        "perplexity": valid,
        "trained words/s": trained,
        "scored words/s": scored or None,
        "GiB": peak / 2**30,
        "rate": rate,
        "tries": tries,
    }


def _known_words(bench: Bench) -> Texts:
    folder = (bench.lab.out / "peers" / f"text-{bench.text}").absolute()
    make_folder(folder)
    for part in ("train", "valid"):
        if not (folder / part).exists():
            write_known_words(bench.files[part], folder / f"{part}.new", bench.data.vocab)
            (folder / f"{part}.new").rename(folder / part)
    train, valid = (len(bench.data.shard(part).tokens) for part in ("train", "valid"))
    return Texts(folder / "train", folder / "valid", train, valid)


def _panel(rows: list[dict[str, Any]], minutes: tuple[float, ...]) -> Panel:
    curves = []
    for title in dict.fromkeys(row["layer"] for row in rows):
        points = [
            (row["minutes"], row["perplexity"])
            for row in rows
            if row["layer"] == title and math.isfinite(row["perplexity"])
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
