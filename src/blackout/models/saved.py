"""A trained model on disk: a folder with config.json, vocab.txt and model.safetensors.

A run folder is one too; besides the best weights it has checkpoints, whose newest holds the last
ones. Loading runs no code of the folder's author: there is no pickle in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.tensors import load_tensors, read_metadata, save_tensors
from blackout.memory import free_memory, require, scoring_need
from blackout.models.language_model import LanguageModel, build_model
from blackout.run_folder import RunFolder
from blackout.runtime import choose_device
from blackout.text.vocab import Vocab

MODEL_PREFIX = "model."  # of the weights' names in a checkpoint


def save_weights(folder: RunFolder, model: LanguageModel, config_hash: str) -> None:
    """Replaces the folder's weights; ``config_hash`` is that of its description."""
    assert model.vocab is not None
    metadata = {"vocab_hash": model.vocab.hash, "config_hash": config_hash}
    save_tensors(folder.weights, model.state_dict(), metadata)


def load(
    folder: str | Path, *, which: Literal["best", "last"] = "best", device: str = "cpu"
) -> LanguageModel:
    """The model in ``folder``, in evaluation mode, its vocabulary as ``model.vocab``.

    ``which``: the weights with the best validation, or those of a run's newest checkpoint.
    ``device``: "auto" is a GPU where there is one.
    """
    place, where = RunFolder(folder), choose_device(device)
    about = place.description()
    require(scoring_need(about.config, len(about.vocab), str(folder)), free_memory())
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not ours to reset
        model = new_model(about.config, about.vocab)
    load_weights(place, model, about.hash, which)
    return model.to(where).eval()


def load_weights(
    folder: RunFolder,
    model: LanguageModel,
    config_hash: str,
    which: Literal["best", "last"] = "best",
) -> None:
    """Fills a model with the weights of a folder, without a second copy of them in memory."""
    assert model.vocab is not None
    path, prefix = folder.weights, ""
    if which == "last":
        newest = folder.newest_checkpoint()
        if newest is None:
            raise UserError(f"{folder}: has no checkpoint")
        path, prefix = newest, MODEL_PREFIX
    elif not path.is_file():
        raise UserError(f"{folder}: not a model folder: it has no {path.name}")
    fields = read_metadata(path)
    if fields.get("vocab_hash") != model.vocab.hash:
        raise UserError(f"{path}: was trained with another vocabulary than {folder.vocab}")
    if fields.get("config_hash") != config_hash:
        raise UserError(f"{path}: was trained with other settings than {folder.config} has")
    load_tensors(path, model.state_dict(), prefix)
    model.folder = folder.path


def new_model(config: Config, vocab: Vocab, impl: str = "auto") -> LanguageModel:
    """An untrained model over a vocabulary."""
    unknown = [word for word in config.loss.always_sample if word not in vocab.words]
    if unknown:
        raise UserError(f"always_sample: {unknown[0]!r} is not in the vocabulary")
    fixed = tuple(vocab.id(word) for word in config.loss.always_sample)
    model = build_model(config, vocab.counts, fixed, impl)
    model.vocab = vocab
    return model
