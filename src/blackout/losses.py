"""The losses there are: for each its name, its output layer, its settings and its work.

Free of PyTorch: settings, command line, grids and reports ask here. The name of a loss occurs
nowhere else; a layer is one file and one entry.

One from outside the package is registered by the program that uses it (:func:`register`), or by an
installed package whose entry point in the group ``blackout.losses`` names a :class:`Loss`. A model
file can only name a loss, never bring its code.

>>> find("nce").title, find("full").exact
('noise-contrastive estimation', True)
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from blackout.errors import UserError

if TYPE_CHECKING:
    from blackout.config import LossConfig
    from blackout.output import OutputLayer

__all__ = ["DEFAULT", "GROUP", "Loss", "LossName", "find", "names", "register"]

GROUP = "blackout.losses"


class LossName(str):
    """The name of a loss, as the type of a setting."""


DEFAULT = LossName("blackout")

Rows = Callable[["LossConfig", int], float]
"""From the settings and the size of the vocabulary to a number of rows."""


@dataclass(frozen=True)
class Loss:
    """An output layer with its training loss."""

    name: str
    title: str
    place: str
    """Module and class of the layer, ``package.module:Class``."""
    options: tuple[str, ...]
    """The settings of the loss that it looks at."""
    trained_rows: Rows
    """Rows of its tables that training on one word multiplies with a hidden state."""
    scored_rows: Rows
    """Rows that the exact log-probability of one word takes."""
    exact: bool = False
    """Whether the training loss is an exact log-probability, so that it means a perplexity."""

    def layer(self) -> type[OutputLayer]:
        """The class of the layer; PyTorch comes with it."""
        module, _, name = self.place.partition(":")
        layer: type[OutputLayer] = getattr(importlib.import_module(module), name)
        return layer


def _samples(loss: LossConfig, vocab_size: int) -> float:
    return loss.samples


def _all(loss: LossConfig, vocab_size: int) -> float:
    return vocab_size


_SAMPLING = ("samples", "alpha", "proposal", "sharing", "always_sample")
_LINE_UP = (*_SAMPLING, "target_weight", "collisions")

_LOSSES = {
    loss.name: loss
    for loss in (
        Loss(
            "blackout",
            "BlackOut",
            "blackout.output:BlackOut",
            (*_LINE_UP, "negatives"),
            _samples,
            _all,
        ),
        Loss(
            "nce",
            "noise-contrastive estimation",
            "blackout.output:NCE",
            (*_SAMPLING, "log_z"),
            _samples,
            _all,
        ),
        Loss("sampled", "sampled softmax", "blackout.output:Sampled", _LINE_UP, _samples, _all),
        Loss("full", "exact softmax", "blackout.output:Full", (), _all, _all, exact=True),
    )
}


def register(loss: Loss) -> None:
    """Makes a loss known to this program; a name that is taken is refused."""
    if loss.name in _LOSSES or loss.name in _installed():
        raise UserError(f"there is a loss named {loss.name!r} already")
    _LOSSES[loss.name] = loss


def find(name: str) -> Loss:
    """The loss of that name."""
    if name not in _LOSSES:
        if name not in _installed():
            raise UserError(f"loss is {name!r}, must be one of {', '.join(names())}")
        _LOSSES[name] = _load(_installed()[name])
    return _LOSSES[name]


def names() -> list[str]:
    """All names, ours first."""
    return list(dict.fromkeys([*_LOSSES, *_installed()]))


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    """What installed packages offer; nothing of theirs is imported before it is asked for."""
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> Loss:
    try:
        loss = point.load()
    except (ImportError, AttributeError) as error:
        raise UserError(f"loss {point.name}: {point.value} cannot be loaded: {error}") from None
    if not isinstance(loss, Loss) or loss.name != point.name:
        raise UserError(f"loss {point.name}: {point.value} is not a Loss of that name")
    return loss
