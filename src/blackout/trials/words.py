"""What a model made of each word of some texts, on disk: a checksummed tensor file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError

from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.files.tensors import open_tensors, save_tensors, verify

__all__ = ["read_words", "words_file", "write_words"]

_ROUNDING = 1e-6  # how far it may lift a log-probability, such as a share of 1, above 0


def words_file(folder: Path, key: str) -> Path:
    """Where a trial's words are, in the folder of all trials."""
    return folder / "words" / f"{key}.safetensors"


def write_words(path: Path, found: Mapping[str, npt.NDArray[np.floating]]) -> None:
    """Keeps natural log-probabilities of the words of texts, in their order."""
    make_folder(path.parent)
    save_tensors(path, {part: torch.from_numpy(logs) for part, logs in found.items()}, {})


def read_words(path: Path) -> dict[str, npt.NDArray[np.float64]]:
    """What :func:`write_words` kept; a damaged file is refused, and one with other numbers."""
    verify(path)
    try:
        with open_tensors(path) as file:
            found = {part: file.get_tensor(part) for part in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise UserError(f"{path}: damaged: {error}") from None
    for part, logs in found.items():
        if logs.ndim != 1 or logs.dtype not in (torch.float32, torch.float64):
            raise UserError(f"{path}: damaged: {part} is no list of log-probabilities")
        if not bool((logs <= _ROUNDING).all()):  # NaN is not either
            raise UserError(f"{path}: damaged: {part} has a log-probability that is none")
    return {part: logs.double().numpy() for part, logs in found.items()}
