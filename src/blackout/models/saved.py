"""A trained model on disk: a folder with config.json, vocab.txt and model.safetensors.

A run folder is one too; besides the best weights it has checkpoints, whose newest holds the last
ones. Loading runs no code of the folder's author: there is no pickle in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist

from blackout.config import Config
from blackout.errors import UserError, naming
from blackout.files.loading import load_tensors
from blackout.files.part_names import named_parts
from blackout.files.tensors import read_metadata
from blackout.memory import free_memory, require, scoring_need, weights_bytes
from blackout.models.divided import divided_rows, save_over_ranks
from blackout.models.language_model import LanguageModel, build_model
from blackout.ranks import Ranks
from blackout.ranks.together import together
from blackout.run_folder import Description, RunFolder
from blackout.runtime import choose_device
from blackout.text.vocab import Vocab

MODEL_PREFIX = "model."  # of the weights' names in a checkpoint
# A stranger's model may take this many times its files, and a little; see docs/promises.md.
_MOST_OF_FILES, _SMALL = 3, 64 << 20


def save_weights(folder: RunFolder, model: LanguageModel, config_hash: str) -> None:
    """Replaces the folder's weights; ``config_hash`` is that of its description."""
    assert model.vocab is not None
    metadata = {"vocab_hash": model.vocab.hash, "config_hash": config_hash}
    save_over_ranks(folder.weights, model.state_dict(), divided_rows(model), metadata, model.ranks)

    def clear_up() -> None:
        if model.ranks.rank == 0:
            folder.remove_old_parts()

    together(model.ranks, clear_up)


def load(
    folder: str | Path,
    *,
    which: Literal["best", "last"] = "best",
    device: str = "cpu",
    process_group: dist.ProcessGroup | Ranks | None = None,
) -> LanguageModel:
    """The model in ``folder``, in evaluation mode, its vocabulary as ``model.vocab``.

    ``which``: the weights with the best validation, or those of a run's newest checkpoint.
    ``device``: "auto" is a GPU where there is one. ``process_group``: divide the tables over these
    ranks, all of which call this, whatever number of ranks the model was trained on.
    """
    ranks, place, where = Ranks.of(process_group), RunFolder(folder), choose_device(device)

    def looked_at() -> Description:
        about = place.description()
        need = scoring_need(about.config, len(about.vocab), str(folder), ranks.size)
        require(need, free_memory())
        _require_files_for(about, _weights_file(place, which)[0])
        return about

    about = together(ranks, looked_at)
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not ours to reset
        model = new_model(about.config, about.vocab, ranks=ranks, to_load=True)
    load_weights(place, model, about.hash, which)
    return model.to(where).eval()


def load_weights(
    folder: RunFolder,
    model: LanguageModel,
    config_hash: str,
    which: Literal["best", "last"] = "best",
) -> None:
    """Fills a model with the weights of a folder, without a second copy of them in memory.

    All ranks that share the model call it.
    """
    together(model.ranks, lambda: _load_weights(folder, model, config_hash, which))


def _load_weights(
    folder: RunFolder, model: LanguageModel, config_hash: str, which: Literal["best", "last"]
) -> None:
    assert model.vocab is not None
    path, prefix = _weights_file(folder, which)
    fields = read_metadata(path)
    if fields.get("vocab_hash") != model.vocab.hash:
        raise UserError(f"{path}: was trained with another vocabulary than {folder.vocab}")
    if fields.get("config_hash") != config_hash:
        raise UserError(f"{path}: was trained with other settings than {folder.config} has")
    load_tensors(path, model.state_dict(), prefix, divided_rows(model))
    with naming(path):
        model.output.state_was_loaded()
    model.folder = folder.path


def _weights_file(folder: RunFolder, which: Literal["best", "last"]) -> tuple[Path, str]:
    """The file with the weights, and what their names begin with in it."""
    if which == "last":
        newest = folder.newest_checkpoint()
        if newest is None:
            raise UserError(f"{folder}: has no checkpoint")
        return newest, MODEL_PREFIX
    if not folder.weights.is_file():
        raise UserError(f"{folder}: not a model folder: it has no {folder.weights.name}")
    return folder.weights, ""


def _require_files_for(about: Description, path: Path) -> None:
    """Refuses a description of weights that the files cannot hold, before memory is asked for."""
    files = [path, *named_parts(path)]
    stored = sum(file.stat().st_size for file in files if file.is_file())
    if weights_bytes(about.config, len(about.vocab)) > _MOST_OF_FILES * stored + _SMALL:
        raise UserError(f"{path}: is far too small for the network that its config.json describes")


def new_model(
    config: Config,
    vocab: Vocab,
    impl: str = "auto",
    ranks: Ranks | None = None,
    *,
    to_load: bool = False,
) -> LanguageModel:
    """An untrained model over a vocabulary, its tables divided over ``ranks``.

    ``to_load``: its state will be a saved one. Files that the settings name, such as a tree's, are
    then not read: the state has what was in them.
    """
    unknown = [word for word in config.loss.always_sample if word not in vocab.words]
    if unknown:
        raise UserError(f"always_sample: {unknown[0]!r} is not in the vocabulary")
    fixed = tuple(vocab.id(word) for word in config.loss.always_sample)
    words = None if to_load else vocab.words
    model = build_model(config, vocab.counts, fixed, impl, ranks, words)
    model.vocab = vocab
    return model
