"""Checkpoints: everything a run needs to go on as if it had never stopped, in one file.

``checkpoints/step-000000001234.safetensors`` holds the weights, the optimiser's state, the
network's state, the random generators', and as JSON in its metadata the position in the data, the
learning rate and the counters. It is written aside and renamed, so the newest file with that
pattern is always whole; older ones are deleted only after that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.files.tensors import load_tensors, peek_metadata, read_metadata, save_tensors
from blackout.models.language_model import LanguageModel
from blackout.models.saved import MODEL_PREFIX
from blackout.models.state import State
from blackout.optim import RMSProp
from blackout.run_folder import RunFolder
from blackout.tables import tables_of
from blackout.text.prepared import Prepared

# A resumed run may differ in these: they do not change what is computed, only how far and where.
MAY_CHANGE = {"data", "run.epochs", "run.checkpoint_minutes", "run.threads", "run.device"}


@dataclass
class Position:
    """Where a run stands: what is neither a weight nor a setting."""

    step: int = 0
    """Blocks trained since the beginning."""
    epoch: int = 0
    """Epochs completed."""
    streams: dict[str, Any] | None = None
    """Position inside the epoch under way."""
    schedule: dict[str, float] = field(default_factory=dict)
    epoch_loss: float = 0.0
    """Sum of the losses of this epoch's words."""
    epoch_words: int = 0
    words: int = 0
    """Words trained since the beginning."""
    seconds: float = 0.0
    """Time spent training since the beginning."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl."""


class Checkpoints:
    """The checkpoints of one run, which is on one text."""

    def __init__(self, folder: RunFolder, config: Config, data: Prepared) -> None:
        self.folder, self.config, self.vocab = folder, config, data.vocab
        self.texts = {part: data.shard(part).checksum for part in ("train", "valid")}
        # What the run began with, as config.json has it: a resumed one may have more epochs.
        self.first_settings: dict[str, Any] = config.to_dict()

    def save(
        self,
        position: Position,
        model: LanguageModel,
        optimizer: RMSProp,
        state: State,
        config_hash: str,
    ) -> Path:
        """Writes a checkpoint, then deletes the older ones."""
        make_folder(self.folder.checkpoints)
        self.folder.remove_leftovers()
        path = self.folder.checkpoint(position.step)
        metadata = {
            "position": json.dumps(position.__dict__),
            "config": json.dumps(self.first_settings),
            "config_hash": config_hash,
            "vocab_hash": self.vocab.hash,
            "texts": json.dumps(self.texts),
            "device": state.layers.device.type,
        }
        generators = random_states(state.layers.device)
        save_tensors(path, _tensors(model, optimizer, state, generators), metadata)
        self.folder.remove_older_checkpoints(path)
        return path

    def exist(self) -> bool:
        return self.folder.newest_checkpoint() is not None

    def restore(
        self, model: LanguageModel, optimizer: RMSProp, state: State
    ) -> tuple[Position, str]:
        """Fills model, optimiser, state and random generators from the newest checkpoint.

        Gives where the run stands, and the hash of the description it belongs to, of which it
        writes what is missing.
        """
        path = self.folder.newest_checkpoint()
        assert path is not None
        try:
            fields = read_metadata(path)
        except UserError as error:
            raise UserError(
                f"{error}; put back a copy of it, or delete it to begin the run again"
            ) from None
        try:
            position = Position(**json.loads(fields["position"]))
            saved_config, texts = json.loads(fields["config"]), json.loads(fields["texts"])
            config_hash = fields["config_hash"]
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{path}: is not a checkpoint of this version") from None
        self._check_same_run(path, saved_config, fields["vocab_hash"], texts)
        self.first_settings = saved_config
        if self.folder.mend_description(saved_config, self.vocab) != config_hash:
            raise UserError(f"{path}: is from another run than {self.folder.config}")
        for p, sparse in parameter_kinds(model):
            optimizer.init_state(p, sparse)
        generators = random_states(state.layers.device)
        saved_on_gpu = fields.get("device") == "cuda"
        if saved_on_gpu:
            generators.setdefault("cuda", torch.empty(16, dtype=torch.uint8))
        else:  # a run that moves to a GPU takes that one's generator as it is
            generators.pop("cuda", None)
        load_tensors(path, _tensors(model, optimizer, state, generators))
        torch.set_rng_state(generators["cpu"])
        if saved_on_gpu and state.layers.is_cuda:
            torch.cuda.set_rng_state(generators["cuda"], state.layers.device)
        self.folder.remove_leftovers()
        # a process killed right after saving did not come to that
        self.folder.remove_older_checkpoints(path)
        return position, config_hash

    def _check_same_run(
        self, path: Path, saved: dict[str, Any], vocab_hash: str, texts: dict[str, str]
    ) -> None:
        if vocab_hash != self.vocab.hash:
            raise UserError(f"{path}: is from a run with another vocabulary")
        for part, checksum in self.texts.items():
            if texts.get(part) != checksum:
                raise UserError(f"{path}: is from a run with another {part} text")
        for table, values in json.loads(json.dumps(self.config.to_dict())).items():
            for key, value in values.items():
                was = saved.get(table, {}).get(key)
                if was != value and not {table, f"{table}.{key}"} & MAY_CHANGE:
                    raise UserError(
                        f"{path}: is from another run: {table}.{key} was {was!r}, is {value!r} now"
                    )


def epochs_done(folder: RunFolder) -> int:
    """Whole epochs in the newest checkpoint of a run folder; 0 without one."""
    path = folder.newest_checkpoint()
    if path is None:
        return 0
    try:
        return int(json.loads(peek_metadata(path)["position"])["epoch"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: is not a checkpoint of this version") from None


def parameter_kinds(model: LanguageModel) -> list[tuple[nn.Parameter, bool]]:
    """Each parameter, and whether its gradients are row-sparse."""
    sparse = {id(table.weight) for table in tables_of(model) if table.sparse}
    return [(p, id(p) in sparse) for p in model.parameters()]


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the random generators that dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _tensors(
    model: LanguageModel, optimizer: RMSProp, state: State, generators: dict[str, Tensor]
) -> dict[str, Tensor]:
    tensors = {MODEL_PREFIX + name: value for name, value in model.state_dict().items()}
    for name, p in model.named_parameters():
        for part, value in optimizer.state[p].items():
            tensors[f"optim.{name}.{part}"] = value
    tensors |= state.tensors("state")
    tensors.update({f"random.{name}": value for name, value in generators.items()})
    return tensors
