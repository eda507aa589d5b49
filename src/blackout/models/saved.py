"""A trained model on disk: a folder with config.json, vocab.txt and model.safetensors.

A run folder is one too; besides the best weights it has checkpoints, whose newest holds the last
ones. Loading runs no code of the folder's author: there is no pickle in it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import torch

from blackout.config import Config
from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.files.plain_json import from_json
from blackout.files.tensors import load_tensors, read_metadata, save_tensors
from blackout.memory import free_memory, require, scoring_need
from blackout.models.language_model import LanguageModel, build_model
from blackout.text.vocab import Vocab

FORMAT = 1
WEIGHTS = "model.safetensors"
MODEL_PREFIX = "model."  # of the weights' names in a checkpoint


def describe_model(folder: Path, config: Config, vocab: Vocab) -> None:
    """Writes what does not change while a model trains: config.json and vocab.txt."""
    vocab.save(folder / "vocab.txt")
    settings = {table: values for table, values in config.to_dict().items() if table != "data"}
    description = {"format": FORMAT, "vocab_hash": vocab.hash, "config": settings}
    description["sha256"] = _description_hash(description)
    with replacing(folder / "config.json") as file:
        file.write(json.dumps(description, indent=1).encode() + b"\n")


def _description_hash(description: dict[str, Any]) -> str:
    """A checksum of all fields but the checksum: one digit of a setting changes the model."""
    rest = {key: value for key, value in description.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def save_weights(folder: Path, model: LanguageModel, vocab: Vocab) -> None:
    """Replaces the folder's weights."""
    save_tensors(folder / WEIGHTS, model.state_dict(), {"vocab_hash": vocab.hash})


def load(
    folder: str | Path, *, which: Literal["best", "last"] = "best", device: str = "cpu"
) -> LanguageModel:
    """The model in ``folder``, in evaluation mode, its vocabulary as ``model.vocab``.

    ``which``: the weights with the best validation, or those of a run's newest checkpoint.
    """
    folder = Path(folder)
    config, vocab = read_description(folder)
    require(scoring_need(config, len(vocab), str(folder)), free_memory())
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not ours to reset
        model = new_model(config, vocab)
    load_weights(folder, model, which)
    return model.to(torch.device(device)).eval()


def load_weights(
    folder: Path, model: LanguageModel, which: Literal["best", "last"] = "best"
) -> None:
    """Fills a model with the weights of a folder, without a second copy of them in memory."""
    assert model.vocab is not None
    path, prefix = folder / WEIGHTS, ""
    if which == "last":
        path, prefix = newest_checkpoint(folder), MODEL_PREFIX
    elif not path.is_file():
        raise UserError(f"{folder}: not a model folder: it has no {WEIGHTS}")
    if read_metadata(path).get("vocab_hash") != model.vocab.hash:
        raise UserError(f"{path}: was trained with another vocabulary than {folder / 'vocab.txt'}")
    load_tensors(path, model.state_dict(), prefix)
    model.folder = folder


def new_model(config: Config, vocab: Vocab, impl: str = "auto") -> LanguageModel:
    """An untrained model over a vocabulary."""
    unknown = [word for word in config.loss.always_sample if word not in vocab.words]
    if unknown:
        raise UserError(f"always_sample: {unknown[0]!r} is not in the vocabulary")
    fixed = tuple(vocab.id(word) for word in config.loss.always_sample)
    model = build_model(config, vocab.counts, fixed, impl)
    model.vocab = vocab
    return model


def read_description(folder: Path) -> tuple[Config, Vocab]:
    """The config and the vocabulary of a model folder, checked against each other."""
    path = folder / "config.json"
    for part in (path, folder / "vocab.txt"):
        if not part.is_file():
            raise UserError(f"{folder}: not a model folder: it has no {part.name}")
    try:
        description = from_json(path.read_text(encoding="utf-8"))
        found, vocab_hash = description["format"], description["vocab_hash"]
        settings, stated = description["config"], description["sha256"]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: damaged: it is not a model's description") from None
    if found != FORMAT:
        raise UserError(f"{path}: has format {found}, this version reads format {FORMAT}")
    if stated != _description_hash(description):
        raise UserError(f"{path}: damaged: its checksum does not fit its content")
    vocab = Vocab.load(folder / "vocab.txt")
    if vocab.hash != vocab_hash:
        raise UserError(f"{folder / 'vocab.txt'}: is not the vocabulary that {path} names")
    return Config.from_dict(settings, str(path)), vocab


def newest_checkpoint(folder: Path) -> Path:
    """The newest checkpoint file of a run folder."""
    found = sorted((folder / "checkpoints").glob("step-*.safetensors"))
    if not found:
        raise UserError(f"{folder}: has no checkpoint")
    return found[-1]
