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
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from blackout import cutoffs
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


def _samples_or_all(loss: LossConfig, vocab_size: int) -> float:
    return loss.samples if loss.normalise_over == "samples" else vocab_size


def _path(loss: LossConfig, vocab_size: int) -> float:
    """Vectors on a path, were all words alike; of words by frequency it names fewer."""
    arity = min(loss.tree_arity, vocab_size)
    return (arity - 1) * math.log(vocab_size) / math.log(arity)


def _two_choices(loss: LossConfig, vocab_size: int) -> float:
    """The classes and the words of one, in the mean; frequent words are in smaller ones."""
    classes = loss.class_count or round(math.sqrt(vocab_size))
    return classes + vocab_size / classes


def _head_and_tail(loss: LossConfig, vocab_size: int) -> float:
    """The head and, for rare words, a cluster of shorter vectors, in the mean over words."""
    if loss.cutoffs and loss.cutoffs[-1] < vocab_size:
        return cutoffs.rows_of_a_word(loss.cutoffs, vocab_size)
    return cutoffs.estimated_rows(vocab_size)


def _square(loss: LossConfig, vocab_size: int) -> float:
    """A few h × h matrices stand for the vocabulary; counted as rows at the default width."""
    return 3 * 256


_FEATURES = ("maxent", "maxent_bits")
_SAMPLING = ("samples", "alpha", "proposal", "sharing", "always_sample", "sampling", *_FEATURES)
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
        Loss(
            "self-normalised",
            "self-normalised softmax",
            "blackout.output:SelfNormalised",
            (*_SAMPLING, "gamma", "normalise_over"),
            _samples_or_all,
            _all,
        ),
        Loss(
            "spherical",
            "spherical softmax",
            "blackout.output:Spherical",
            ("spherical_lr", "spherical_epsilon"),
            _square,
            _square,
            exact=True,
        ),
        Loss("full", "exact softmax", "blackout.output:Full", _FEATURES, _all, _all, exact=True),
        Loss(
            "hierarchical",
            "hierarchical softmax",
            "blackout.output:Hierarchical",
            ("tree_arity", "tree_file", *_FEATURES),
            _path,
            _path,
            exact=True,
        ),
        Loss(
            "classes",
            "class-based softmax",
            "blackout.output:Classes",
            ("class_count", "class_file"),
            _two_choices,
            _two_choices,
            exact=True,
        ),
        Loss(
            "adaptive",
            "adaptive softmax",
            "blackout.output:Adaptive",
            ("cutoffs",),
            _head_and_tail,
            _head_and_tail,
            exact=True,
        ),
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
