"""Settings by name, for those who do not want the defaults.

``paper``: the settings of the paper and of the figures in docs/paper.md. All weights start in the
same range and learn at the same rate, whatever the width; the rate follows validation alone.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from blackout.errors import UserError

Preset = Literal["paper"]

_PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "model": {"cell": "sigmoid", "init_range": 0.08},
        "loss": {"log_z": 0.0},
        "optim": {
            "rates": "same",
            "lr": 0.004,
            "schedule": "validation",
            "correct_bias": False,
            "damping_words": 0.1,
        },
        "run": {"keep_going": True},
    }
}


def over_preset(values: dict[str, Any], source: str) -> dict[str, Any]:
    """These settings over those of the preset they name, if any."""
    if not isinstance(values, dict):
        raise UserError(f"{source}: settings must be a table")
    rest = {key: value for key, value in values.items() if key != "preset"}
    if "preset" not in values:
        return rest
    name = values["preset"]
    if name not in get_args(Preset):
        known = ", ".join(get_args(Preset))
        raise UserError(f"{source}: preset is {name!r}, must be one of {known}")
    tables = {**_PRESETS[name], **{k: v for k, v in rest.items() if k not in _PRESETS[name]}}
    for table, settings in _PRESETS[name].items():
        own = rest.get(table, {})
        tables[table] = {**settings, **own} if isinstance(own, dict) else own
    return tables
