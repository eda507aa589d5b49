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
from blackout.files.tensors import load_tensors, read_metadata, save_tensors
from blackout.models.language_model import LanguageModel
from blackout.models.saved import MODEL_PREFIX, newest_checkpoint
from blackout.optim import RMSProp
from blackout.output.sampled_layer import SampledOutputLayer

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
    """The checkpoint files of one run folder."""

    def __init__(self, folder: Path, config: Config, vocab_hash: str) -> None:
        self.folder = folder / "checkpoints"
        self.run_folder = folder
        self.config = config
        self.vocab_hash = vocab_hash

    def save(
        self, position: Position, model: LanguageModel, optimizer: RMSProp, state: Tensor
    ) -> Path:
        """Writes a checkpoint, then deletes the older ones."""
        make_folder(self.folder)
        self._remove_leftovers()
        path = self.folder / f"step-{position.step:012d}.safetensors"
        metadata = {
            "position": json.dumps(position.__dict__),
            "config": json.dumps(self.config.to_dict()),
            "vocab_hash": self.vocab_hash,
            "device": state.device.type,
        }
        save_tensors(path, _tensors(model, optimizer, state, random_states(state)), metadata)
        self._remove_older(path)
        return path

    def _remove_older(self, newest: Path) -> None:
        for path in self.folder.glob("step-*.safetensors"):
            if path < newest:
                path.unlink()

    def _remove_leftovers(self) -> None:
        """Deletes half a checkpoint of a process that was killed: it takes up space."""
        for path in self.folder.glob(".step-*.partial"):
            path.unlink()

    def exists(self) -> bool:
        return any(self.folder.glob("step-*.safetensors"))

    def restore(self, model: LanguageModel, optimizer: RMSProp, state: Tensor) -> Position:
        """Fills model, optimiser, state and random generators from the newest checkpoint."""
        path = newest_checkpoint(self.run_folder)
        try:
            fields = read_metadata(path)
        except UserError as error:
            raise UserError(
                f"{error}; put back a copy of it, or delete it to begin the run again"
            ) from None
        try:
            position = Position(**json.loads(fields["position"]))
            saved_config = json.loads(fields["config"])
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{path}: is not a checkpoint of this version") from None
        self._check_same_run(path, saved_config, fields["vocab_hash"])
        for p, sparse in parameter_kinds(model):
            optimizer.init_state(p, sparse)
        generators = random_states(state)
        saved_on_gpu = fields.get("device") == "cuda"
        if saved_on_gpu:
            generators.setdefault("cuda", torch.empty(16, dtype=torch.uint8))
        else:  # a run that moves to a GPU takes that one's generator as it is
            generators.pop("cuda", None)
        load_tensors(path, _tensors(model, optimizer, state, generators))
        torch.set_rng_state(generators["cpu"])
        if saved_on_gpu and state.is_cuda:
            torch.cuda.set_rng_state(generators["cuda"], state.device)
        self._remove_leftovers()
        self._remove_older(path)  # a process killed right after saving did not come to that
        return position

    def _check_same_run(self, path: Path, saved: dict[str, Any], vocab_hash: str) -> None:
        if vocab_hash != self.vocab_hash:
            raise UserError(f"{path}: is from a run with another vocabulary")
        for table, values in json.loads(json.dumps(self.config.to_dict())).items():
            for key, value in values.items():
                was = saved.get(table, {}).get(key)
                if was != value and not {table, f"{table}.{key}"} & MAY_CHANGE:
                    raise UserError(
                        f"{path}: is from another run: {table}.{key} was {was!r}, is {value!r} now"
                    )


def parameter_kinds(model: LanguageModel) -> list[tuple[nn.Parameter, bool]]:
    """Each parameter, and whether its gradients are row-sparse."""
    tables = {id(model.embedding.weight)}
    if isinstance(model.output, SampledOutputLayer) and model.output.sparse:
        tables |= {id(model.output.weight), id(model.output.bias)}
    return [(p, id(p) in tables) for p in model.parameters()]


def random_states(like: Tensor) -> dict[str, Tensor]:
    """The states of the random generators that dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    if like.is_cuda:
        states["cuda"] = torch.cuda.get_rng_state(like.device)
    return states


def _tensors(
    model: LanguageModel, optimizer: RMSProp, state: Tensor, generators: dict[str, Tensor]
) -> dict[str, Tensor]:
    tensors = {MODEL_PREFIX + name: value for name, value in model.state_dict().items()}
    for name, p in model.named_parameters():
        for part, value in optimizer.state[p].items():
            tensors[f"optim.{name}.{part}"] = value
    tensors["state"] = state
    tensors.update({f"random.{name}": value for name, value in generators.items()})
    return tensors
