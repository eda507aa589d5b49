"""What the optimisers for dense and row-sparse gradients share: one step, one state, one clip.

A subclass says what its second moment is and how a parameter changes
(:meth:`RowSparseOptimizer._change`); here is everything around that:

- ``clip``: the largest global norm over all parameters of all groups, rows and matrices together.
- ``damping``: a floor under the second moment, so that weights whose gradients are nearly 0 do not
  move at the full rate all the same. None: what a gradient of ordinary size adds to the moment,
  seen at a parameter's first step; it does not matter then whether a loss is a mean or a sum.
- ``by_width``: a step moves every weight by about lr, so a sum over n of them, such as a logit, by
  up to n times that. ``lr`` is for weights with 256 inputs; those with n get lr (256/n)^⅔, no more
  than those with 16, and what suits a narrow network does not ruin a wide one.
- ``second_moment="row"``: one number for each row of a table, the mean of g² over the row, instead
  of a second table.
- ``weight_decay``: decoupled from the gradient, theta <- (1 - lr weight_decay) theta before a step.
  A row of a table decays when it is touched, by one step's worth; rows that nobody touches stay, so
  that a step's work follows the rows it touches.
- ``seed``: a bfloat16 table is rounded at random after each update, so that steps smaller than its
  resolution count in the mean; the random bits follow seed, parameter and step.
- ``capturable``: the step count lives on the parameter's device and nothing is brought to the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from blackout.compilers import is_watched, untouched
from blackout.errors import UserError
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Engine, RmsProp, Rounding, Scalar
from blackout.optim.clip import clip_factor, norm_of_squares, norm_over_ranks
from blackout.optim.saved import check_moment, check_saved, kind_of, work_type
from blackout.ranks import division_of
from blackout.ranks.division import ranks_of
from blackout.tables import zero_table

Group = dict[str, Any]
_WIDTH, _NARROW = 256, 16


class Touched(NamedTuple):
    """A parameter that has a gradient in this step."""

    number: int
    """Of the parameter among all."""
    group: Group
    parameter: nn.Parameter
    engine: Engine
    gradient: Any
    """A dense one, or its touched rows (:meth:`Engine.collect_rows`)."""

    @property
    def rows(self) -> Tensor | None:
        """The rows that a row-sparse gradient touches."""
        return None if isinstance(self.gradient, Tensor) else self.gradient.rows


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of PyTorch's optimisers without what hides it from torch.compile: that imports the
    compiler when first called, which takes as long as the import of all the rest of PyTorch."""
    found: Callable[..., Any] = getattr(method, "__wrapped__", method)
    return found


class RowSparseOptimizer(torch.optim.Optimizer):
    """An optimiser whose cost follows the rows touched, not the size of the table.

    ``last_norm`` is the global norm, before clipping, of the latest step; on a GPU a tensor, which
    nobody waits for unless it is read.
    """

    last_norm: Scalar
    row_clocks = True
    """Whether a table needs to know when each of its rows was touched last."""
    moments: tuple[str, ...] = ("moment",)
    """The tensors of a parameter's state that are shaped like it."""

    def __init__(self, params: Iterable[Any], defaults: Group, impl: str) -> None:
        self.impl = impl
        self.last_norm = 0.0
        super().__init__(params, defaults)

    # ------------------------------------------------------------------ what a subclass says

    def _check_group(self, group: Group) -> None:
        """Refuses settings that make no sense."""
        name = type(self).__name__
        if group["second_moment"] not in ("full", "row"):
            raise UserError(f'second_moment is {group["second_moment"]!r}, must be "full" or "row"')
        # 0 too: schedules begin or end with it
        check_setting(name, group, "lr", lambda lr: 0 <= lr < math.inf, "0 or more, and finite")
        check_setting(name, group, "damping", lambda x: x is None or x >= 0, "0 or more, or None")
        for setting in ("clip", "weight_decay"):
            check_setting(name, group, setting, lambda x: x >= 0, "0 or more")
        check_setting(name, group, "seed", lambda x: isinstance(x, int), "a whole number")
        for setting in ("by_width", "capturable", "correct_bias"):
            if setting in self.defaults:
                check_setting(name, group, setting, lambda x: x in (True, False), "True or False")

    def _beta(self, group: Group) -> float:
        """The memory of the second moment, in which a new g² counts 1 - beta."""
        raise NotImplementedError

    def _add_state(self, p: nn.Parameter, sparse: bool, state: dict[str, Any]) -> None:
        """Adds what the subclass keeps besides ``step``, ``moment`` and the clocks of rows."""

    def _change(self, touched: Touched, state: dict[str, Any], update: RmsProp) -> None:
        """Changes parameter and state in place; ``update`` has lr and damping as they were set."""
        raise NotImplementedError

    # ------------------------------------------------------------------ the step

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update from the gradients at hand."""
        if is_watched():  # native code already
            return untouched(self.step)(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        touched = list(self._touched())
        factor = self._clip_factor(touched)
        for one in touched:
            p, group = one.parameter, one.group
            state = self.init_state(p, one.rows is not None)
            state["step"] += 1
            division = division_of(p)
            whole = None if division is None else division.whole
            rounding = Rounding(group["seed"], one.number, state["step"], whole)
            lr = rate(p, group)
            self._change(
                one,
                state,
                RmsProp(
                    factor,
                    lr,
                    self._beta(group),
                    self._damping(one, state),
                    rounding,
                    lr * group["weight_decay"],
                ),
            )
        return loss

    def _touched(self) -> Iterator[Touched]:
        for number, (group, p) in enumerate(self._parameters()):
            if p.grad is None:
                continue
            local = division_of(p) is None or p.dtype != torch.bfloat16 or not p.is_cuda
            impl = self.impl if p.is_contiguous() and local else "reference"  # rounds by number
            engine = engine_for(impl, p.device, p.dtype, p.grad.dtype)
            gradient: Any = p.grad
            if p.grad.is_sparse and p.grad.sparse_dim() > 1:
                gradient = p.grad.to_dense()  # single numbers, not rows: nobody's table
            elif p.grad.is_sparse:
                gradient = engine.collect_rows(p.grad._indices()[0], p.grad._values(), len(p))
            yield Touched(number, group, p, engine, gradient)

    def _clip_factor(self, touched: list[Touched]) -> Scalar:
        """What all gradients are multiplied with."""
        if not self.clip:
            return 1.0
        squares = [one.engine.squared_norm(one.gradient) for one in touched]
        ranks = ranks_of(p for _, p in self._parameters())
        if ranks is None:
            self.last_norm = norm_of_squares(squares)
        else:
            self.last_norm = norm_over_ranks(squares, [one.parameter for one in touched], ranks)
        return clip_factor(self.last_norm, self.clip)

    def _damping(self, touched: Touched, state: dict[str, Any]) -> Scalar:
        group, gradient = touched.group, touched.gradient
        if group["damping"] is not None:
            given: Scalar = group["damping"]
            return given
        if "damping" not in state:
            square, size = touched.engine.squared_norm(gradient), _size(gradient)
            ranks = ranks_of([touched.parameter])
            if ranks is not None:
                square, size = ranks.sums([float(square), float(size)], "damping")
            typical = (1 - self._beta(group)) * square / _at_least_one(size)
            found = torch.as_tensor(typical, dtype=torch.float64)
            # brought to the host once: asked for at every step, every step would wait for a GPU
            state["damping"] = found if group["capturable"] else found.cpu()
        chosen: Tensor = state["damping"]
        return chosen if group["capturable"] else float(chosen)

    def _parameters(self) -> Iterator[tuple[Group, nn.Parameter]]:
        return ((group, p) for group in self.param_groups for p in group["params"])

    # ------------------------------------------------------------------ settings and state

    @property
    def clip(self) -> float:
        """The largest global norm of a gradient; 0 for no limit. One for all groups."""
        first, *others = [group["clip"] for group in self.param_groups]
        if any(clip != first for clip in others):
            raise UserError(
                f"clip limits the norm over all groups together, but they have {first} and "
                f"{next(clip for clip in others if clip != first)}"
            )
        return float(first)

    @clip.setter
    def clip(self, clip: float) -> None:
        for group in self.param_groups:
            group["clip"] = clip

    def add_param_group(self, param_group: Group) -> None:
        """Adds a group, with the settings it has and the defaults for others, all checked."""
        self._check_group({**self.defaults, **param_group})
        _plain(torch.optim.Optimizer.add_param_group)(self, param_group)
        for p in self.param_groups[-1]["params"]:
            if not p.is_floating_point():
                self.param_groups.pop()
                raise UserError(f"{type(self).__name__}: a parameter is {p.dtype}, must be real")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients."""
        _plain(torch.optim.Optimizer.zero_grad)(self, set_to_none)

    def init_state(self, p: nn.Parameter, sparse: bool) -> dict[str, Any]:
        """The state of a parameter, made on first sight, before its first step if you like.

        ``sparse``: whether its gradients are row-sparse.
        """
        state = self.state[p]
        if not state:
            (group,) = [group for group, other in self._parameters() if other is p]
            device = p.device if group["capturable"] else torch.device("cpu")
            by_row = sparse and group["second_moment"] == "row"
            shape = (len(p), *[1] * (p.ndim - 1)) if by_row else tuple(p.shape)
            state["step"] = torch.zeros((), dtype=torch.int64, device=device)
            state["moment"] = zero_table(shape, work_type(p), p.device)
            self._add_state(p, sparse, state)
        for name in self.moments:
            check_moment(type(self).__name__, name, state[name], p)  # native code does not look
            if state[name].dtype != work_type(p):  # the network was cast between two steps
                state[name] = state[name].to(work_type(p))
        if sparse and self.row_clocks and "touched" not in state:
            # Where a table was updated densely so far, all its rows are as old as the last step.
            step = state["step"].to(p.device, torch.int32)
            state["touched"] = step.expand(len(p)).contiguous()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like every optimiser's, but a state that is not one for these parameters is refused.

        And clocks of rows stay whole: as PyTorch's floats they could not count beyond 2**24 steps.
        """
        saved: dict[Tensor, dict[str, Any]] = {}

        def look(_: torch.optim.Optimizer, given: dict[str, Any]) -> None:
            saved.update(self._checked_states(given))

        hook = self.register_load_state_dict_pre_hook(look)  # after those of others
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        for group in self.param_groups:
            self._check_group(group)
        for group, p in self._parameters():
            for name, value in saved.get(p, {}).items():
                on_host = name in ("step", "damping") and not group["capturable"]
                device = torch.device("cpu") if on_host else p.device
                self.state[p][name] = value.to(device, kind_of(name, value, p), copy=True)

    def _checked_states(self, given: dict[str, Any]) -> dict[Tensor, dict[str, Any]]:
        """The states of the parameters in a saved state, which must fit them."""
        names = {"step", "damping", *self.moments, *["touched"] * self.row_clocks}
        numbers = [number for group in given["param_groups"] for number in group["params"]]
        memories = {"beta", "betas"} & self.defaults.keys()
        if not all(memories <= group.keys() for group in given["param_groups"]):
            raise UserError(f"{type(self).__name__}: the state was saved by another optimizer")
        found: dict[Tensor, dict[str, Any]] = {}
        for (_, p), number in zip(self._parameters(), numbers, strict=False):
            if number in given["state"]:
                found[p] = given["state"][number]
                check_saved(type(self).__name__, p, found[p], names)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "impl": self.impl, "last_norm": self.last_norm}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # saved by an earlier version
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    # ------------------------------------------------------------------ for subclasses

    def _aging(self, touched: Touched, state: dict[str, Any], beta: float) -> Tensor | float:
        """The factor of the old second moment: beta, or what each touched row has waited for.

        Marks the rows as touched by this step.
        """
        step, clock = state["step"], state.get("touched")
        if clock is None:
            return beta
        if touched.rows is not None:
            aging = touched.engine.exact_aging(clock, touched.rows, step, beta)
            return column(aging, state["moment"])
        waited = step.to(clock.device, clock.dtype) - clock  # a table that had sparse ones before
        clock.copy_(step)
        return column(beta ** waited.double(), state["moment"])


def corrected(update: RmsProp, step: Scalar) -> RmsProp:
    """lr and damping with which v as it is does what v / (1 - beta^step) would do.

    lr g / sqrt(v / c + damping) = lr sqrt(c) g / sqrt(v + c damping).
    """
    seen = 1 - update.beta**step
    return update._replace(lr=update.lr * seen**0.5, damping=update.damping * seen)


def steps_of(group: Group, state: dict[str, Any]) -> Scalar:
    """How many steps a parameter has had: a number, or where nothing may wait the tensor."""
    step: Tensor = state["step"]
    return step.double() if group["capturable"] else int(step)


def column(row_factors: Tensor, moment: Tensor) -> Tensor:
    """One factor for each row, shaped to multiply rows of ``moment``."""
    return row_factors.to(moment.dtype).view(-1, *[1] * (moment.ndim - 1))


def check_setting(
    optimizer: str, group: Group, name: str, fits: Callable[[Any], bool], expected: str
) -> None:
    """Refuses a setting of a group."""
    try:
        good = fits(group[name])
    except (TypeError, ValueError, RuntimeError):  # no number at all, or a tensor of several
        good = False
    if not good:
        raise UserError(f"{optimizer}: {name} is {group[name]!r}, must be {expected}")


def rate(p: nn.Parameter, group: Group) -> Scalar:
    """The learning rate of a parameter, which may follow its width."""
    lr: Scalar = group["lr"]
    if group["by_width"] and p.ndim > 1:
        lr = lr * (_WIDTH / max(p.shape[-1], _NARROW)) ** (2 / 3)
    return lr


def _size(gradient: Any) -> Scalar:
    """How many numbers a gradient has; repeated rows count once."""
    if isinstance(gradient, Tensor):
        return gradient.numel()
    found: Scalar = gradient.distinct * int(gradient.values[:1].numel())
    return found.squeeze() if isinstance(found, Tensor) else found


def _at_least_one(size: Scalar) -> Scalar:
    return size.clamp(min=1) if isinstance(size, Tensor) else max(size, 1)
