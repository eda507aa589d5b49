"""Word tables: rows owned, lookup, row gradients, initial values."""

from collections.abc import Iterator

from torch import nn

from blackout.tables.local import Table
from blackout.tables.memory import STORAGE, zero_table


def tables_of(module: nn.Module) -> Iterator[Table]:
    """The tables of a model or layer, each once."""
    return (part for part in module.modules() if isinstance(part, Table))


__all__ = ["STORAGE", "Table", "tables_of", "zero_table"]
