"""Word tables: rows owned, lookup, row gradients, initial values."""

from collections.abc import Iterator

from torch import nn

from blackout.tables.local import Table
from blackout.tables.memory import STORAGE, tables_on, zero_table
from blackout.tables.sharded import ShardedTable


def tables_of(module: nn.Module) -> Iterator[Table]:
    """The tables of a model or layer, each once."""
    return (part for part in module.modules() if isinstance(part, Table))


__all__ = ["STORAGE", "ShardedTable", "Table", "tables_of", "tables_on", "zero_table"]
