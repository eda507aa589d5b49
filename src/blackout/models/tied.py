"""A parameter that a module has under two names is in its state once."""

from __future__ import annotations

from typing import Any

from torch import nn


def save_once(module: nn.Module, name: str, copy: str) -> None:
    """Leaves the name ``copy`` out of the states that the module gives; it takes them so too."""

    def leave_out(_: nn.Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
        del state[prefix + copy]

    def put_in(_: nn.Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
        if prefix + name in state:
            state.setdefault(prefix + copy, state[prefix + name])

    module.register_state_dict_post_hook(leave_out)
    module.register_load_state_dict_pre_hook(put_in)
