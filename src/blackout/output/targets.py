"""What a layer is given, checked and in one form: hidden states, their classes, who counts.

All that a caller can get wrong is said here, so that no loss needs to look again: shapes, types,
classes that there are not. What does not count (``mask`` is False, the target is ``ignore_index``)
becomes harmless: a state of zeros, whatever it was, and a class that is in the block anyway.

>>> given = checked_examples(
...     torch.zeros(3, 2), torch.tensor([4, -100, 7]), n_classes=9, in_features=2, ignore_index=-100
... )
>>> given.target, given.mask
(tensor([4, 4, 7]), tensor([ True, False,  True]))
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from blackout.errors import UserError


class Examples(NamedTuple):
    """Hidden states (..., h) with a class each."""

    hidden: Tensor  # (..., h)
    target: Tensor  # (...), int64
    mask: Tensor | None  # (...), bool; None where all count
    history: Tensor | None  # (..., n)


def checked_examples(
    hidden: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    history: Tensor | None = None,
    *,
    n_classes: int,
    in_features: int,
    ignore_index: int | None,
) -> Examples:
    """The examples of a call; what is wrong with them is a :class:`UserError`."""
    check_shapes(hidden, target, mask, history, in_features)
    target = whole_numbers(target)
    if history is not None:
        history = whole_numbers(history)
        if history.ndim == target.ndim:
            history = history[..., None]
    if target.numel() == 0:
        return Examples(hidden, target, mask, history)
    mask = _counted(target, mask, n_classes, ignore_index)
    if mask is not None:
        first = mask.reshape(-1).to(torch.uint8).argmax()
        some = target.reshape(-1).index_select(0, first.view(1))  # [first] would wait for a GPU
        # where none counts, that is no class either
        target = torch.where(mask, target, some.clamp(0, n_classes - 1))
        hidden = hidden.masked_fill(~mask[..., None], 0)
    return Examples(hidden, target, mask, history)


def check_shapes(
    hidden: Tensor, target: Tensor, mask: Tensor | None, history: Tensor | None, size: int
) -> None:
    """Refuses states, targets, masks and histories that do not belong together."""
    if hidden.shape[:-1] != target.shape or hidden.shape[-1:] != (size,):
        raise UserError(
            f"hidden {tuple(hidden.shape)} must be target {tuple(target.shape)} "
            f"and a last dimension of {size}"
        )
    check_states(hidden, size)
    for name, part in (("target", target), ("mask", mask), ("history", history)):
        if part is None:
            continue
        require_tensor(name, part)
        if part.device != hidden.device:
            raise UserError(f"{name} is on {part.device}, hidden on {hidden.device}")
    if mask is not None:
        if mask.shape != target.shape:
            raise UserError(f"mask {tuple(mask.shape)} must be target {tuple(target.shape)}")
        if mask.dtype != torch.bool:
            raise UserError(f"mask is {mask.dtype}, must be torch.bool; numbers are weights=")
    if history is not None and history.shape[: target.ndim] != target.shape:
        raise UserError(
            f"history {tuple(history.shape)} must be target {tuple(target.shape)}, "
            "or that and the words before each"
        )


def check_states(hidden: Tensor, size: int) -> None:
    """Refuses what are no states (..., size)."""
    if hidden.shape[-1:] != (size,):
        raise UserError(f"hidden {tuple(hidden.shape)} must have a last dimension of {size}")
    if not hidden.is_floating_point():
        raise UserError(f"hidden is {hidden.dtype}, must be a floating-point type")


def require_tensor(name: str, value: object) -> None:
    """Refuses lists, arrays and the like."""
    if not isinstance(value, Tensor):
        raise UserError(f"{name} is a {type(value).__name__}, must be a tensor")


def whole_numbers(words: Tensor, name: str = "target") -> Tensor:
    """Numbers of classes as int64."""
    if words.dtype == torch.int64:
        return words
    if words.is_floating_point() or words.is_complex() or words.dtype == torch.bool:
        raise UserError(f"{name} is {words.dtype}, must be the numbers of classes, torch.int64")
    return words.to(torch.int64)


def checked_targets(hidden: Tensor, target: Tensor, n_classes: int, in_features: int) -> Tensor:
    """The classes (N,) that hidden states (..., h) are asked for, each one that there is."""
    require_tensor("target", target)
    check_shapes(hidden, target, None, None, in_features)
    target = whole_numbers(target).reshape(-1)
    if target.numel() and not torch.compiler.is_exporting():
        _counted(target, None, n_classes, None)
    return target


def _counted(
    target: Tensor, mask: Tensor | None, n_classes: int, ignore_index: int | None
) -> Tensor | None:
    """The examples that count, each with a class that there is; None where all do.

    On the CPU one look at the smallest and largest target tells whether there is anything to do.
    A GPU is not asked, since all would wait for its answer: it checks for itself, in its own time.
    """
    if target.device.type == "cpu":
        low, high = (int(x) for x in target.aminmax())
        none_ignored = ignore_index is None or not low <= ignore_index <= high
        if mask is None and none_ignored and low >= 0 and high < n_classes:
            return None
    if ignore_index is not None:
        named = target != ignore_index
        mask = named if mask is None else mask & named
    there = (target >= 0) & (target < n_classes)
    fine = there if mask is None else there | ~mask
    if target.device.type == "cpu":
        if not bool(fine.all()):
            wrong = int(target[~fine][0])
            ignored = "" if ignore_index is None else f", or ignore_index {ignore_index}"
            raise UserError(f"target {wrong} is not a class: 0 … {n_classes - 1}{ignored}")
    elif target.device.type != "meta":
        torch._assert_async(fine.all(), f"a target is not a class: 0 … {n_classes - 1}")
    return mask


def checked_classes(
    classes: Tensor, lead: torch.Size, n_classes: int, name: str = "classes"
) -> Tensor:
    """Numbers of classes (n,), the same for all states, or (..., n), those of each."""
    require_tensor(name, classes)
    if classes.ndim != 1 and classes.shape[:-1] != lead:
        raise UserError(
            f"{name} {tuple(classes.shape)} must be (n,), or ({', '.join(map(str, lead))}, n) for "
            f"states {(*lead,)}"
        )
    classes = whole_numbers(classes, name)
    if classes.device.type == "cpu" and classes.numel():
        low, high = (int(x) for x in classes.aminmax())
        if low < 0 or high >= n_classes:
            wrong = low if low < 0 else high
            raise UserError(f"{name} has {wrong}, which is not a class: 0 … {n_classes - 1}")
    return classes


def by_state(classes: Tensor) -> Tensor:
    """Classes (n,), the same for all states, or (..., n), as rows: (1, n) or (N, n)."""
    return torch.atleast_2d(classes).flatten(0, -2)
