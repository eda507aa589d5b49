"""What has to be so before several ranks train one run: the same settings, text and folder."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

import blackout
from blackout import losses
from blackout.config import Config
from blackout.errors import UserError
from blackout.ranks import Ranks
from blackout.ranks.together import on_first, texts, together
from blackout.run_folder import RunFolder
from blackout.text.prepared import Prepared

__all__ = [
    "as_begun",
    "begun_on",
    "held_by_first",
    "require_same_run",
    "require_same_settings",
    "require_shared",
]

_OWN = {"data", "run.threads", "run.device", "run.rank_timeout", "run.checkpoint_minutes"}
"""Settings in which ranks may differ."""


def require_same_settings(ranks: Ranks, config: Config) -> None:
    """Refuses ranks that were given other settings, or run another version."""
    facts: dict[str, Any] = {"version of blackout": blackout.__version__}
    facts["version of PyTorch"] = torch.__version__
    for table, values in config.to_dict().items():
        for name, value in values.items():
            if not {table, f"{table}.{name}"} & _OWN:
                facts[f"setting {table}.{name}"] = value
    ranks.require_same(facts)


def require_same_run(ranks: Ranks, config: Config, data: Prepared) -> None:
    """Refuses ranks that were given other settings, another text or another version."""
    require_same_settings(ranks, config)
    facts: dict[str, Any] = {}
    facts["vocabulary, its checksum"] = data.vocab.hash
    for part in data.shards:
        facts[f"{part} text, its checksum"] = data.shard(part).checksum
    ranks.require_same(facts)
    _require_own_text(ranks, config, data)


def _require_own_text(ranks: Ranks, config: Config, data: Prepared) -> None:
    """Refuses a rank whose own text is another than the one that rank 0 prepared for all.

    A rank whose machine does not have the file that rank 0 was given needs none.
    """
    if ranks.size == 1:
        return
    own = {part: getattr(config.data, part) for part in ("train", "valid", "test")}
    firsts = json.loads(texts(ranks, json.dumps(own))[0])

    def look() -> None:
        for part, path in own.items():
            first = firsts[part]
            if path is None or (path == first and not Path(path).exists()):
                continue
            if part not in data.shards:
                raise UserError(f"{path}: rank 0 was given no {part} text")
            if not data.shard(part).source.still(path):
                raise UserError(f"{path}: is another {part} text than that of rank 0, {first}")

    together(ranks, look)


def begun_on(ranks: Ranks, config: Config) -> Config:
    """The settings that a run begins with on several ranks: how it samples is decided here."""
    loss = config.loss
    if ranks.size == 1 or loss.sampling is not None:
        return config
    plain = (
        "sampling" in losses.find(loss.loss).options
        and loss.proposal == "unigram"
        and not loss.always_sample
        and loss.collisions == "keep"
        and loss.target_weight == "proposal"
    )
    if not plain:
        return config
    return _sampling(config, "strata")


def as_begun(ranks: Ranks, folder: RunFolder, config: Config) -> Config:
    """The settings with which a run goes on: how it samples was decided when it began."""
    if config.loss.sampling is not None:
        return config

    def look() -> str:
        if not folder.settings.is_file():
            return ""
        return Config.from_file(folder.settings).loss.sampling or ""

    return _sampling(config, on_first(ranks, look) or None)


def _sampling(config: Config, sampling: Any) -> Config:
    loss = dataclasses.replace(config.loss, sampling=sampling)
    return dataclasses.replace(config, loss=loss)


@contextmanager
def held_by_first(folder: RunFolder, ranks: Ranks) -> Iterator[None]:
    """The folder held against other runs, by rank 0 for all."""
    with ExitStack() as stack:

        def hold() -> None:
            if ranks.rank == 0:
                stack.enter_context(folder.held())

        together(ranks, hold)
        yield


def require_shared(ranks: Ranks, folder: RunFolder, config_hash: str) -> None:
    """Refuses a rank that does not see the folder that rank 0 writes to."""

    def look() -> None:
        if ranks.rank == 0:
            return
        try:
            same = folder.description().hash == config_hash
        except UserError:
            same = False
        if not same:
            raise UserError(
                f"{folder} on {platform.node()} is not the folder that rank 0 writes to: all "
                "machines have to share it"
            )

    together(ranks, look)
