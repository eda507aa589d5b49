"""Properties over settings drawn at random: a short slice here, an hour of them by ``make soak``.

``BLACKOUT_SOAK`` is how many cases each property tries; without it a few, always the same ones. The
strategies draw whatever the settings allow, so that a new loss, cell or option is tried too.
"""

from __future__ import annotations

import os
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from blackout import losses
from blackout.config import LossConfig, ModelConfig, OptimConfig

_CASES = os.environ.get("BLACKOUT_SOAK")
settings.register_profile(
    "numbers",
    max_examples=int(_CASES or 8),
    derandomize=_CASES is None,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

_NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "hidden": st.integers(1, 9),
    "layers": st.integers(1, 2),
    "projection": st.sampled_from([0, 0, 1, 4]),
    "dropout": st.sampled_from([0.0, 0.0, 0.4]),
    "init_range": st.sampled_from([None, 0.05, 1.0]),
    "loss": st.sampled_from(losses.names()),
    "samples": st.integers(1, 9),
    "alpha": st.sampled_from([0.0, 0.3, 1.0]),
    "log_z": st.sampled_from(["learned", 0.0, 3.5]),
    "always_sample": st.sampled_from([(), ("<unk>",)]),
    "maxent": st.sampled_from([0, 0, 2]),
    "maxent_bits": st.integers(3, 8),
    "lr": st.sampled_from([0.1, 1.0]),
    "beta": st.sampled_from([0.9, 0.999]),
    "momentum": st.sampled_from([0.0, 0.9]),
    "weight_decay": st.sampled_from([0.0, 0.1]),
    "clip": st.sampled_from([0.0, 0.1, 1.0]),
}
"""The settings that are more than a choice among names; those left out keep their defaults."""


def _drawn(table: type) -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for each setting of a table of the config."""
    found = {}
    for name, hint in get_type_hints(table).items():
        literal = [kind for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal]
        if name in _NUMBERS:
            found[name] = _NUMBERS[name]
        elif hint is bool:
            found[name] = st.booleans()
        elif literal:
            no_choice = [None] if type(None) in get_args(hint) else []
            found[name] = st.sampled_from([*no_choice, *get_args(literal[0])])
    return found


def loss_settings() -> st.SearchStrategy[dict[str, Any]]:
    """All settings of the output layer."""
    return st.fixed_dictionaries(_drawn(LossConfig))


def run_settings() -> st.SearchStrategy[dict[str, Any]]:
    """The settings of a whole run, by their plain names; some of them do not go together."""
    tables = (ModelConfig, LossConfig, OptimConfig)
    return st.fixed_dictionaries({k: v for table in tables for k, v in _drawn(table).items()})


class Drawn:
    """The strategies, for test files, which cannot import this one."""

    loss, run = loss_settings(), run_settings()

    def __repr__(self) -> str:
        return "..."  # what was drawn is of interest, not from what


@pytest.fixture(scope="session")
def drawn() -> Drawn:
    return Drawn()
