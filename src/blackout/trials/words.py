"""What a model made of each word of some texts, on disk: a checksummed tensor file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from blackout.files.atomic import make_folder
from blackout.files.tensors import open_tensors, save_tensors, verify

__all__ = ["read_words", "words_file", "write_words"]


def words_file(folder: Path, key: str) -> Path:
    """Where a trial's words are, in the folder of all trials."""
    return folder / "words" / f"{key}.safetensors"


def write_words(path: Path, found: Mapping[str, npt.NDArray[np.floating]]) -> None:
    """Keeps natural log-probabilities of the words of texts, in their order."""
    make_folder(path.parent)
    save_tensors(path, {part: torch.from_numpy(logs) for part, logs in found.items()}, {})


def read_words(path: Path) -> dict[str, npt.NDArray[np.float64]]:
    """What :func:`write_words` kept; a damaged file is refused."""
    verify(path)
    with open_tensors(path) as file:
        return {part: file.get_tensor(part).double().numpy() for part in file.keys()}  # noqa: SIM118
