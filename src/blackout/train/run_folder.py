"""The folder of a run that may be gone on with: one process at a time, deleted in a safe order."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blackout.errors import UserError
from blackout.files.atomic import make_folder
from blackout.files.tensors import read_metadata
from blackout.models.saved import newest_checkpoint

_LOCK = ".lock"


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Makes ``folder`` and holds it against other processes, for whose end it waits.

    Gives whether it is held: always, unless ``wait`` is False. The lock goes with the process,
    however that ends.
    """
    while True:
        make_folder(folder)
        try:
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # deleted at this very moment by the process before
            continue
        except OSError as error:
            raise UserError(f"{folder / _LOCK}: cannot be written: {error.strerror}") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            if not _is_at(handle, folder / _LOCK):
                continue  # what we waited for was deleted in the end
            yield True
            return
        finally:
            os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def delete_run(folder: Path) -> None:
    """Deletes a run folder; killed half-way it leaves what is whole or begins from nothing.

    The checkpoints go first: what else is there is of no use without them, and is written anew.
    """
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def epochs_done(folder: Path) -> int:
    """Whole epochs in the newest checkpoint of a run folder; 0 without one."""
    if not any((folder / "checkpoints").glob("step-*.safetensors")):
        return 0
    path = newest_checkpoint(folder)
    try:
        return int(json.loads(read_metadata(path)["position"])["epoch"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: is not a checkpoint of this version") from None
