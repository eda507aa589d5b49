"""Models on disk whose tables are divided over ranks: a file a rank, and one that names them.

One process writes and reads whole files; the names and numbers of tensors are the same.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from blackout.files.parts import Part, part_bytes, save_index, save_part
from blackout.files.rows import Rows
from blackout.files.tensors import require_space, save_tensors
from blackout.models.language_model import LanguageModel
from blackout.ranks import Ranks, division_of
from blackout.ranks.together import on_first, texts, together

__all__ = ["divided_rows", "rows_here", "save_over_ranks"]


def divided_rows(model: LanguageModel) -> dict[str, Rows]:
    """Which rows of its tables a model holds, by their names; empty where it holds all."""
    named = model.state_dict(keep_vars=True).items()
    found = {name: rows_here(value) for name, value in named}
    return {name: rows for name, rows in found.items() if rows is not None}


def rows_here(parameter: Tensor) -> Rows | None:
    """The rows that a divided parameter holds; None for one that is whole."""
    division = division_of(parameter)
    if division is None:
        return None
    return Rows(division.n_rows, division.strata, division.rows())


def save_over_ranks(
    path: Path,
    tensors: Mapping[str, Tensor],
    rows: Mapping[str, Rows],
    metadata: Mapping[str, str],
    ranks: Ranks,
) -> None:
    """Writes one file, or where ``rows`` are divided one for each rank; all ranks call it.

    What stood at ``path`` stays whole until the new one is. Its parts are then the caller's to
    clear away.
    """
    if ranks.size == 1:
        save_tensors(path, tensors, metadata)
        return
    tables = {name: tensor for name, tensor in tensors.items() if name in rows}
    shared = {name: tensor for name, tensor in tensors.items() if name not in rows}
    sizes = ranks.gather_numbers([part_bytes(tables, rows)], "agreement")
    needed = sum(size for (size,) in sizes)

    def begin() -> str:
        require_space(path, needed)
        return secrets.token_hex(4)

    token = on_first(ranks, begin)
    part = together(ranks, lambda: save_part(path, ranks.rank + 1, ranks.size, token, tables, rows))
    parts = [Part(**json.loads(text)) for text in texts(ranks, json.dumps(asdict(part)))]

    def finish() -> None:
        if ranks.rank == 0:
            save_index(path, shared, metadata, parts, tables, rows)

    together(ranks, finish)
