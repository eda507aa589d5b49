"""Verbs over a text and tables of some megabytes: there are large pieces of memory to ask for."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from tests.conftest import Lab
from tests.faults.answering import Answering
from tests.faults.works import OfFiles, Preparing, Training, TrainingOverRanks, Work

from blackout.cli.main import main
from blackout.memory import shortage
from blackout.ops.dispatch import engine_for

LEAST = (1 << 20) + 1
"""What counts as large; more than a whole number of what Python itself asks for at a time."""
TYPES, WORDS = 6000, 9_000


class OnThreads(Work):
    """Native code whose threads ask for memory of their own; nothing is written."""

    def set_up(self) -> None:
        self.old_folder.mkdir()

    def do(self, rank: int = 0) -> int:
        torch.set_num_threads(2)
        try:
            table = torch.empty(4, 2 * LEAST // 4)
            engine_for("native", table.device, table.dtype).fill_uniform(table, 1.0, 7, None)
        except (MemoryError, RuntimeError) as error:
            os.write(2, f"blackout threads: {shortage(error)}\n".encode())
            return 1
        return 0

    def fault(self) -> str | None:
        return None

    def is_new(self) -> bool:
        return True


def hungry_works(folder: Path, quick: bool) -> Iterator[Work]:
    """Training, preparing, estimating, mixing, scoring and answering."""
    texts = folder / "texts"
    texts.mkdir()
    lab = Lab(texts)
    rng = random.Random(5)
    for name, count in (("train", WORDS), ("valid", WORDS // 10), ("test", WORDS // 10)):
        words = [f"w{int(TYPES * rng.random() ** 3)}" for _ in range(count)]
        lines = (" ".join(words[i : i + 12]) for i in range(0, count, 12))
        lab.text(name).write_text("".join(f"{line}\n" for line in lines))
    for number in (0, 1):
        source = texts / f"ngram-{number}.txt"
        source.write_text(lab.text("train").read_text() + "w1 w2\n" * (5 * number))
        out = texts / f"ngram-{number}.arpa"
        assert main(["ngram", "train", "--order=3", f"--train={source}", f"--out={out}"]) == 0
    lab.train(texts / "network", hidden=64, epochs=1, batch=32, bptt=10)

    def estimate(out: Path, number: int) -> list[str]:
        source = texts / f"ngram-{number}.txt"
        more = ["--order=3", "--threads=1", "--memory=64M", f"--temp-dir={out / 'tmp'}"]
        return ["ngram", "train", f"--train={source}", f"--out={out / 'model.bin'}", *more]

    def mix(out: Path, number: int) -> list[str]:
        models = [str(texts / "network"), str(texts / f"ngram-{number}.arpa")]
        parts = [f"--tune={lab.text('valid')}", f"--test={lab.text('test')}"]
        return ["mix", *models, *parts, f"--probs={out / 'probs'}", "--threads=1"]

    def score(out: Path, number: int) -> list[str]:
        text = lab.text(("valid", "test")[number])
        written = [f"--probs={out / 'probs'}", "--threads=1"]
        return ["eval", str(texts / "network"), str(text), *written]

    yield OnThreads("threads of native code", lab, folder / "threads")
    yield OfFiles("estimating", lab, folder / "estimated", estimate, ("model.bin",))
    yield OfFiles("mixing", lab, folder / "mixed", mix, ("probs",))
    yield OfFiles("scoring", lab, folder / "scored", score, ("probs",))
    yield Preparing("preparing", lab, folder / "prepared")
    large = {"hidden": 64, "batch": 32, "bptt": 10}
    for begun in (False, True):
        name = f"training, {'going on' if begun else 'from the start'}"
        yield Training(name, lab, folder / f"run-{begun}", begun=begun, **large)
    asked = texts / "network", texts / "ngram-0.arpa"
    yield Answering("answering", lab, folder / "answering", *asked)
    for begun in (False, True):
        name = f"training over ranks, {'going on' if begun else 'from the start'}"
        out = folder / f"ranks-{begun}"
        yield TrainingOverRanks(name, lab, out, begun=begun, sampling="strata", **large)
