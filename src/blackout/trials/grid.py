"""Grids of settings: every combination of the values that some settings may take.

>>> grid = parse_grid(["alpha=0,0.4", "log-z=9,learned"])
>>> grid
{'alpha': [0.0, 0.4], 'log_z': [9.0, 'learned']}
>>> base = Config.from_dict({"loss": {"loss": "nce"}})
>>> [(c.loss.alpha, c.loss.log_z) for _, c in combinations(base, grid)]
[(0.0, 9.0), (0.0, 'learned'), (0.4, 9.0), (0.4, 'learned')]
"""

from __future__ import annotations

import dataclasses
import itertools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from blackout import losses
from blackout.config import Config, LossConfig
from blackout.errors import UserError
from blackout.losses import LossName

TABLES = ("model", "loss", "optim", "run")
# Settings that a grid cannot have: the number of epochs is the study's, the others change nothing.
_FIXED = (
    *("epochs", "patience", "stop_after", "keep_going"),
    *("threads", "device", "checkpoint_minutes", "epoch_checkpoints"),
)


def parse_grid(texts: Sequence[str]) -> dict[str, list[object]]:
    """Values of settings from texts such as ``alpha=0,0.2,0.4``."""
    grid: dict[str, list[object]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UserError(f"--grid {text}: must be NAME=VALUE,VALUE,…")
        if name in grid:
            raise UserError(f"--grid {text}: {name} has its values already")
        hint = _find(name)[1]
        grid[name] = [_parse(value.strip(), hint, text) for value in values.split(",")]
    return grid


def combinations(
    config: Config, grid: Mapping[str, Sequence[object]]
) -> list[tuple[dict[str, object], Config]]:
    """The values, and the config with them, of each combination; the last name varies fastest."""
    for name, values in grid.items():
        _find(name)
        if not values:
            raise UserError(f"--grid: {name} has no values")
        if twice := [value for i, value in enumerate(values) if value in values[:i]]:
            raise UserError(f"--grid: {name} has the value {twice[0]} twice")
        if "loss" not in grid and _without_effect(name, config.loss):
            raise UserError(f"--grid: {name} has no effect with loss {config.loss.loss}")
    found = []
    for chosen in itertools.product(*grid.values()):
        setting = dict(zip(grid, chosen, strict=True))
        tables = config.to_dict()
        for name, value in setting.items():
            tables[_find(name)[0]][name] = value
        found.append((setting, Config.from_dict(tables, "--grid")))
    return found


def _without_effect(name: str, loss: LossConfig) -> bool:
    """Whether it is a setting of losses that this one does not look at."""
    own = {"loss", *losses.find(loss.loss).options}
    return name not in own and name in {f.name for f in dataclasses.fields(loss)}


def _find(name: str) -> tuple[str, Any]:
    """The table of a setting, and its type."""
    if name in _FIXED:
        raise UserError(f"--grid: {name} cannot be tuned")
    known: list[str] = []
    for table in TABLES:
        hints = typing.get_type_hints(typing.get_type_hints(Config)[table])
        if name in hints:
            return table, hints[name]
        known += hints
    names = ", ".join(sorted(set(known) - set(_FIXED)))
    raise UserError(f"--grid: no setting is named {name!r} (known: {names})")


def _parse(text: str, hint: Any, where: str) -> object:
    """A value of a setting from text, by the setting's type."""
    is_union = get_origin(hint) in (typing.Union, types.UnionType)
    options = get_args(hint) if is_union else (hint,)
    for option in options:
        if get_origin(option) is Literal and text in get_args(option):
            return text
        if option is LossName:
            return losses.find(text).name
        if option is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if option is type(None) and text.lower() == "none":
            return None
        if option in (int, float):
            try:
                return option(text)
            except ValueError:
                continue
    expected = " or ".join(_describe(option) for option in options)
    raise UserError(f"--grid {where}: {text!r} must be {expected}")


def _describe(option: Any) -> str:
    if get_origin(option) is Literal:
        return " or ".join(get_args(option))
    names = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}
    return names.get(option, "set with its own option: it cannot be tuned")
