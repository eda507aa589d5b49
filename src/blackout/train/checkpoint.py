"""Checkpoints: everything a run needs to go on as if it had never stopped.

``checkpoints/step-000000001234.safetensors`` holds the weights, the optimiser's state, the
network's state, the random generators', and as JSON in its metadata the position in the data, the
learning rate and the counters. It is written aside and renamed, so the newest file with that
pattern is always whole; older ones are deleted only after that. Of several ranks each writes the
rows of its tables to a part of its own, and that file, with all that they share, names the parts: a
run may go on with any number of ranks, one included.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from blackout.config import Config
from blackout.errors import UserError, naming
from blackout.files.atomic import make_folder
from blackout.files.loading import load_tensors
from blackout.files.plain_json import from_json, record
from blackout.files.rows import Rows
from blackout.files.tensors import peek_metadata, read_metadata
from blackout.models.divided import divided_rows, rows_here, save_over_ranks
from blackout.models.language_model import LanguageModel
from blackout.models.saved import MODEL_PREFIX
from blackout.models.state import State
from blackout.optim import RowSparseOptimizer, Schedule
from blackout.ranks import Ranks
from blackout.ranks.together import on_first, together
from blackout.run_folder import RunFolder
from blackout.tables import tables_of
from blackout.text.prepared import Prepared

# A resumed run may differ in these: they do not change what is computed, only how far and where.
MAY_CHANGE = {
    "data",
    *("run.epochs", "run.patience", "run.stop_after", "run.keep_going"),
    *("run.checkpoint_minutes", "run.epoch_checkpoints", "run.rank_timeout"),
    *("run.threads", "run.device"),
}


@dataclass
class Position:
    """Where a run stands: what is neither a weight nor a setting."""

    step: int = 0
    """Blocks trained since the beginning."""
    epoch: int = 0
    """Epochs completed."""
    streams: dict[str, Any] | None = None
    """Position inside the epoch under way."""
    schedule: dict[str, Any] = field(default_factory=dict)
    epoch_loss: float = 0.0
    """Sum of the losses of this epoch's words."""
    epoch_words: int = 0
    words: int = 0
    """Words trained since the beginning."""
    diverged: str = ""
    """What the latest validation found wrong."""
    seconds: float = 0.0
    """Time spent training since the beginning."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl."""


class Checkpoints:
    """The checkpoints of one run, which is on one text.

    ``ranks``: those that the run is on now, all of which call the methods here. ``launch``: what
    the start of their processes is called, so that one that starts them again can be told.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: Config,
        data: Prepared,
        ranks: Ranks | None = None,
        launch: str = "",
    ) -> None:
        self.folder, self.config, self.vocab = folder, config, data.vocab
        self.ranks, self.launch = ranks or Ranks.alone(), launch
        self.texts = {part: data.shard(part).checksum for part in ("train", "valid")}
        # What the run began with, as config.json has it: a resumed one may have more epochs.
        self.first_settings: dict[str, Any] = config.to_dict()
        self.saved_on = ""
        """The kind of device that the restored checkpoint was saved on."""

    def save(
        self,
        position: Position,
        model: LanguageModel,
        optimizer: RowSparseOptimizer,
        state: State,
        config_hash: str,
    ) -> Path:
        """Writes a checkpoint, then deletes the older ones; ``state`` is that of all streams."""
        together(self.ranks, self._make_room)
        path = self.folder.checkpoint(position.step)
        metadata = {
            "position": json.dumps(position.__dict__),
            "config": json.dumps(self.first_settings),
            "config_hash": config_hash,
            "vocab_hash": self.vocab.hash,
            "texts": json.dumps(self.texts),
            "device": state.layers.device.type,
            "launch": self.launch,
        }
        _begin_states(model, optimizer)
        tensors = _tensors(model, optimizer, state, random_states(state.layers.device))
        save_over_ranks(path, tensors, _rows(model, optimizer), metadata, self.ranks)
        together(self.ranks, lambda: self._remove_older(path))
        return path

    def _make_room(self) -> None:
        if self.ranks.rank == 0:
            make_folder(self.folder.checkpoints)
            self.folder.remove_leftovers()

    def _remove_older(self, newest: Path) -> None:
        if self.ranks.rank == 0:
            self.folder.remove_older_checkpoints(newest)

    def _clear_up(self, newest: Path) -> None:
        if self.ranks.rank == 0:
            self.folder.remove_leftovers()
            # a process killed right after saving did not come to that
            self.folder.remove_older_checkpoints(newest)

    def exist(self) -> bool:
        return self.folder.newest_checkpoint() is not None

    def restore(
        self, model: LanguageModel, optimizer: RowSparseOptimizer, state: State
    ) -> tuple[Position, str]:
        """Fills model, optimiser, state and random generators from the newest checkpoint.

        Gives where the run stands, and the hash of the description it belongs to, of which it
        writes what is missing.
        """
        path = self.folder.checkpoints / on_first(self.ranks, self._newest)
        position, fields = together(self.ranks, lambda: self._look_at(path))
        self.first_settings = json.loads(fields["config"])
        mended = on_first(
            self.ranks, lambda: self.folder.mend_description(self.first_settings, self.vocab)
        )
        if mended != fields["config_hash"]:
            raise UserError(f"{path}: is from another run than {self.folder.config}")
        _begin_states(model, optimizer)
        self.saved_on = fields.get("device", "cpu")
        together(self.ranks, lambda: self._fill(path, model, optimizer, state))
        together(self.ranks, lambda: self._clear_up(path))
        return position, fields["config_hash"]

    def _newest(self) -> str:
        path = self.folder.newest_checkpoint()
        assert path is not None
        return path.name

    def _look_at(self, path: Path) -> tuple[Position, dict[str, str]]:
        """Where the run of a checkpoint stands, and its text fields; another run's is refused."""
        try:
            fields = read_metadata(path)
        except UserError as error:
            raise UserError(
                f"{error}; put back a copy of it, or delete it to begin the run again"
            ) from None
        try:
            position = _position(fields["position"])
            saved_config, texts = (_object(fields[name]) for name in ("config", "texts"))
            vocab_hash, _ = fields["vocab_hash"], fields["config_hash"]
        except (KeyError, ValueError):
            raise UserError(f"{path}: is not a checkpoint of this version") from None
        self._check_same_run(path, saved_config, vocab_hash, texts)
        return position, fields

    def _fill(
        self, path: Path, model: LanguageModel, optimizer: RowSparseOptimizer, state: State
    ) -> None:
        """Weights, optimiser, state and generators from a checkpoint."""
        generators = random_states(state.layers.device)
        saved_on_gpu = self.saved_on == "cuda"
        if saved_on_gpu:
            generators.setdefault("cuda", torch.empty(16, dtype=torch.uint8))
        else:  # a run that moves to a GPU takes that one's generator as it is
            generators.pop("cuda", None)
        tensors = _tensors(model, optimizer, state, generators)
        load_tensors(path, tensors, rows=_rows(model, optimizer))
        with naming(path):
            model.output.state_was_loaded()
        try:
            torch.set_rng_state(generators["cpu"])
            if saved_on_gpu and state.layers.is_cuda:
                torch.cuda.set_rng_state(generators["cuda"], state.layers.device)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{path}: damaged: no state of a random generator: {reason}") from None

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


def _object(text: str) -> dict[str, Any]:
    """A JSON object of JSON objects or texts, from a file of anybody's."""
    found = from_json(text)
    if not isinstance(found, dict) or not all(isinstance(v, dict | str) for v in found.values()):
        raise ValueError
    return found


def _position(text: str) -> Position:
    """Where a run stands, from a file of anybody's; a ValueError where it stands nowhere."""
    position = record(Position, from_json(text))
    record(Schedule, position.schedule)
    for value in vars(position).values():
        if isinstance(value, int | float) and not 0 <= abs(value) <= 2**53:
            raise ValueError
    if min(position.step, position.epoch, position.words, position.metrics_bytes) < 0:
        raise ValueError
    return position


def was_launched_as(folder: RunFolder, launch: str) -> bool:
    """Whether the newest checkpoint is from processes of that start, whom others may replace."""
    path = folder.newest_checkpoint()
    return bool(launch) and path is not None and peek_metadata(path).get("launch") == launch


def epochs_done(folder: RunFolder) -> int:
    """Whole epochs in the newest checkpoint of a run folder; 0 without one."""
    path = folder.newest_checkpoint()
    if path is None:
        return 0
    fields = peek_metadata(path)
    try:
        return _position(fields["position"]).epoch
    except (KeyError, ValueError):
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


def _rows(model: LanguageModel, optimizer: RowSparseOptimizer) -> dict[str, Rows]:
    """Which rows of a table each of the tensors holds that are divided over ranks."""
    found = {MODEL_PREFIX + name: rows for name, rows in divided_rows(model).items()}
    for name, p in model.named_parameters():
        if (rows := rows_here(p)) is not None:
            for part, value in optimizer.state[p].items():
                if value.ndim and len(value) == len(p):
                    found[f"optim.{name}.{part}"] = rows
    return found


def _begin_states(model: LanguageModel, optimizer: RowSparseOptimizer) -> None:
    """The optimiser's state of every parameter, those too that have not had a gradient yet."""
    for p, sparse in parameter_kinds(model):
        optimizer.init_state(p, sparse)


def _tensors(
    model: LanguageModel, optimizer: RowSparseOptimizer, state: State, generators: dict[str, Tensor]
) -> dict[str, Tensor]:
    tensors = {MODEL_PREFIX + name: value for name, value in model.state_dict().items()}
    for name, p in model.named_parameters():
        for part, value in optimizer.state[p].items():
            tensors[f"optim.{name}.{part}"] = value
    tensors |= state.tensors("state")
    tensors.update({f"random.{name}": value for name, value in generators.items()})
    return tensors
