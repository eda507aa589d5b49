"""Runs of the toolkit on the ranks of a group, and what they leave: for tests of many machines."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import torch

from blackout.config import Config
from blackout.files.loading import PartIndex, load_tensors
from blackout.files.tensors import open_tensors, read_metadata
from blackout.models.saved import load
from blackout.score.generate import generate
from blackout.score.perplexity import evaluate
from blackout.text.prepared import open_prepared
from blackout.train import train
from blackout.train.loop import Stopped
from blackout.train.progress import Progress

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32, "I64": torch.int64}


class Watch(Progress):
    """The losses of each epoch added up, block by block; stops the run after one of them."""

    def __init__(self, stop: int | None = None) -> None:
        self.losses: list[float] = []
        self.stop = stop

    def block_done(self, position: Any) -> None:
        self.losses.append(position.epoch_loss)
        # the ranks hear of a wish with the next block
        if self.stop is not None and position.step == self.stop - (1 if self.divided else 0):
            signal.raise_signal(signal.SIGTERM)

    divided = False


def run(
    group: Any,
    data: str,
    out: str,
    settings: dict[str, Any],
    resume: bool = False,
    stop: int | None = None,
    launch: str = "",
) -> dict[str, Any]:
    """Trains on the ranks of ``group``, or alone; what every rank came to."""
    watch = Watch(stop)
    watch.divided = group is not None and group.size() > 1
    config = Config.from_dict(settings)
    try:
        found = train(
            config,
            open_prepared(data),
            out,
            resume=resume,
            progress=watch,
            process_group=group,
            launch=launch,
        )
    except Stopped as stopped:
        return {"losses": watch.losses, "stopped": str(stopped)}
    return {
        "losses": watch.losses,
        "valid": found.valid_perplexity,
        "test": None if found.test is None else found.test.perplexity,
        "epochs": found.epochs,
    }


def scored(group: Any, out: str, data: str) -> tuple[float, str]:
    """Perplexity and text of a model that the ranks of a group read."""
    model = load(out, process_group=group)
    found = evaluate(model, open_prepared(data).shard("test"))
    return found.perplexity, generate(model, words=20, temperature=0.8)


def whole(path: Path) -> dict[str, torch.Tensor]:
    """Everything in a tensor file, whole or in parts, as one process reads it."""
    read_metadata(path)
    index = PartIndex.of(path)
    shapes = {} if index is None else dict(index.tables)
    with open_tensors(path) as file:
        for name in file.keys():  # noqa: SIM118
            part = file.get_slice(name)
            shapes[name] = [part.get_dtype(), *part.get_shape()]
    into = {
        name: torch.zeros(shape, dtype=DTYPES.get(kind, torch.uint8))
        for name, (kind, *shape) in shapes.items()
    }
    load_tensors(path, into)
    return into


def last(out: Path) -> dict[str, torch.Tensor]:
    """The newest checkpoint of a run."""
    return whole(max((Path(out) / "checkpoints").glob("step-*.safetensors")))


def events(out: Path) -> list[dict[str, Any]]:
    """What metrics.jsonl says, but for times."""
    lines = [json.loads(x) for x in (Path(out) / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in e.items() if not k.endswith(("seconds", "second"))} for e in lines]


def furthest(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> tuple[float, str]:
    """The largest difference of two checkpoints, relative to each tensor's largest number."""
    assert a.keys() == b.keys()
    found = []
    for name in a:
        if name.startswith("random."):
            continue
        one, other = a[name].double(), b[name].double()
        scale = max(float(one.abs().max()), 1e-12) if one.numel() else 1.0
        scale = 1.0 if name == "state" else scale  # what is left of sentences that have ended
        found.append((float((one - other).abs().max()) / scale if one.numel() else 0.0, name))
    return max(found)
