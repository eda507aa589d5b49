"""The operations that have closed-form gradients, as PyTorch's autograd wants them.

One place for all engines: each function runs the engine's forward pass, keeps what it saved, and
runs its backward pass. A second derivative is refused rather than wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from blackout.ops.engine import Engine, Objective, Scalar

RowGradientMaker = Callable[[Tensor, Tensor], Tensor]
"""Makes the gradient of a table from rows (n,) and their values (n, ...)."""


def _first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuses ``create_graph=True``: what a closed form gives has no derivative of its own."""

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "blackout's layers have first derivatives only: no backward with create_graph=True"
            )
        return backward(ctx, *grads)

    return checked


class _Saves:
    """Keeps an engine's saved tuple with autograd, which looks after tensors only."""

    @staticmethod
    def keep(ctx: Any, saved: Any, *more: Tensor) -> None:
        ctx.save_for_backward(*more, *saved)
        ctx.saved_type, ctx.more = type(saved), len(more)

    @staticmethod
    def kept(ctx: Any) -> tuple[Any, ...]:
        more, saved = ctx.saved_tensors[: ctx.more], ctx.saved_tensors[ctx.more :]
        return (ctx.saved_type(*saved), *more)


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, words: Tensor, engine: Engine, gradient: RowGradientMaker
    ) -> Tensor:
        ctx.save_for_backward(words)
        ctx.gradient, ctx.dtype = gradient, weight.dtype
        return engine.lookup(weight, words, torch.promote_types(weight.dtype, torch.float32))

    @staticmethod
    @_first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (words,) = ctx.saved_tensors
        values = grad.reshape(-1, grad.shape[-1]).to(ctx.dtype)
        return ctx.gradient(words.reshape(-1), values), None, None, None


def lookup(weight: Tensor, words: Tensor, engine: Engine, gradient: RowGradientMaker) -> Tensor:
    """Rows of a table, float32 or wider, with the gradient that ``gradient`` makes of theirs."""
    rows: Tensor = _Lookup.apply(weight, words, engine, gradient)
    return rows


class _SampledObjective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        log_z: Scalar,
        words: tuple[Tensor, Tensor, Tensor, Tensor],
        objective: Objective,
        keep_copies: bool,
        product_dtype: torch.dtype,
        row_dtype: torch.dtype,
        engine: Engine,
        gradients: tuple[RowGradientMaker, RowGradientMaker | None],
    ) -> Tensor:
        value, saved = engine.sampled_forward(
            hidden, weight, bias, log_z, *words, objective, keep_copies, product_dtype
        )
        _Saves.keep(ctx, saved, *words[:2])
        ctx.engine, ctx.gradients, ctx.row_dtype = engine, gradients, row_dtype
        return value

    @staticmethod
    @_first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, target, samples = _Saves.kept(ctx)
        of_weight, of_bias = ctx.gradients
        _, _, learns_bias, learns_log_z, *rest = ctx.needs_input_grad
        found = ctx.engine.sampled_backward(
            saved, target, samples, grad, learns_bias or learns_log_z, ctx.row_dtype
        )
        return (
            found.hidden,
            of_weight(found.rows, found.row_values.to(ctx.row_dtype)),
            of_bias(found.rows, found.bias_values) if learns_bias else None,
            found.log_z if learns_log_z else None,
            *[None] * len(rest),
        )


def sampled_objective(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    log_z: Scalar,
    words: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    objective: Objective,
    keep_copies: bool,
    product_dtype: torch.dtype,
    row_dtype: torch.dtype,
    engine: Engine,
    gradients: tuple[RowGradientMaker, RowGradientMaker | None],
) -> Tensor:
    """J (G, M) of a sampled loss; ``words``: target, samples, log Q of targets and of samples.

    ``gradients`` make those of table and bias, whose rows come in ``row_dtype``.
    """
    value: Tensor = _SampledObjective.apply(
        hidden,
        weight,
        bias,
        log_z,
        words,
        objective,
        keep_copies,
        product_dtype,
        row_dtype,
        engine,
        gradients,
    )
    return value


class _SoftmaxObjective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        product_dtype: torch.dtype,
        engine: Engine,
    ) -> Tensor:
        value, saved = engine.softmax_forward(hidden, weight, bias, target, product_dtype)
        _Saves.keep(ctx, saved, target)
        ctx.engine = engine
        return value

    @staticmethod
    @_first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, target = _Saves.kept(ctx)
        found = ctx.engine.softmax_backward(saved, target, grad)
        bias = found.bias if ctx.needs_input_grad[2] else None
        return found.hidden, found.weight, bias, None, None, None


def softmax_objective(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    product_dtype: torch.dtype,
    engine: Engine,
) -> Tensor:
    """log p(target | hidden) (N,) of the exact softmax; its gradient touches every row."""
    value: Tensor = _SoftmaxObjective.apply(hidden, weight, bias, target, product_dtype, engine)
    return value


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cell: str,
        inputs: Tensor,
        state: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        keep: Tensor | None,
        product_dtype: torch.dtype,
        engine: Engine,
    ) -> tuple[Tensor, Tensor | None]:
        outputs, cells, saved = engine.recurrence_forward(
            cell, inputs, state, weight, bias, keep, product_dtype
        )
        _Saves.keep(ctx, saved)
        ctx.cell, ctx.engine = cell, engine
        if cells is not None:
            ctx.mark_non_differentiable(cells)
        return outputs, cells

    @staticmethod
    @_first_derivatives_only
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        (saved,) = _Saves.kept(ctx)
        found = ctx.engine.recurrence_backward(ctx.cell, saved, grad, ctx.needs_input_grad[2])
        return None, found.inputs, found.state, found.weight, found.bias, None, None, None


def recurrence(
    cell: str,
    inputs: Tensor,
    state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    product_dtype: torch.dtype,
    engine: Engine,
) -> tuple[Tensor, Tensor]:
    """Outputs (T, B, h) of a recurrent layer over a block, and the state after it, a constant."""
    outputs, cells = _Recurrence.apply(
        cell, inputs, state, weight, bias, keep, product_dtype, engine
    )
    last = outputs[-1:].detach()
    return outputs, last if cells is None else torch.cat([last, cells[None]])
