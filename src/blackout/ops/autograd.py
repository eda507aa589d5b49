"""The operations that have closed-form gradients, as PyTorch's autograd wants them.

One place for all engines: each function runs the engine's forward pass, keeps what it saved, and
runs its backward pass. A second derivative is refused rather than wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout.compilers import is_watched, untouched
from blackout.errors import UserError
from blackout.ops.engine import Added, Engine, Objective, Scalar, Windows
from blackout.ops.layer_call import LayerCall, LayerValue, WholeLayer
from blackout.ops.tree import Tree

RowGradientMaker = Callable[[Tensor, Tensor], Tensor]
"""Makes the gradient of a table from rows (n,) and their values (n, ...)."""


def refuse_second_derivatives() -> None:
    """Called in a backward pass: refuses one that is to be differentiated itself."""
    if torch.is_grad_enabled():
        raise UserError(
            "blackout's layers have first derivatives only: no backward with create_graph=True"
        )


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuses ``create_graph=True``: what a closed form gives has no derivative of its own.

    A compiled training step compiles what its ``backward()`` calls as well: not this.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> Any:
        if is_watched():
            return untouched(checked)(ctx, *grads)
        refuse_second_derivatives()
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
        tensors = ctx.saved_tensors  # asked for once: activation checkpointing gives no more
        return (ctx.saved_type(*tensors[ctx.more :]), *tensors[: ctx.more])


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, words: Tensor, engine: Engine, gradient: RowGradientMaker
    ) -> Tensor:
        ctx.save_for_backward(words)
        ctx.gradient, ctx.dtype, ctx.row = gradient, weight.dtype, weight.shape[1:]
        return engine.lookup(weight, words, torch.promote_types(weight.dtype, torch.float32))

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (words,) = ctx.saved_tensors
        values = grad.reshape(words.numel(), *ctx.row).to(ctx.dtype)
        return ctx.gradient(words.reshape(-1), values), None, None, None


def lookup(weight: Tensor, words: Tensor, engine: Engine, gradient: RowGradientMaker) -> Tensor:
    """Rows of a table, float32 or wider, with the gradient that ``gradient`` makes of theirs."""
    rows: Tensor = _Lookup.apply(weight, words, engine, gradient)
    return rows


class SampledWords(NamedTuple):
    """The words that a sampled loss looks at."""

    target: Tensor  # (G, M)
    samples: Tensor  # (G, K), or merged (G, C)
    multiplicity: Tensor | None  # (G, C) where they are merged
    log_q_target: Tensor  # (G, M)
    log_q_samples: Tensor  # like the samples


class _SampledObjective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        log_z: Scalar,
        added_target: Tensor | None,
        added_samples: Tensor | None,
        words: SampledWords,
        objective: Objective,
        keep_copies: bool,
        product_dtype: torch.dtype,
        row_dtype: torch.dtype,
        engine: Engine,
        gradients: tuple[RowGradientMaker, RowGradientMaker | None],
    ) -> Tensor:
        added = None
        if added_target is not None and added_samples is not None:
            added = Added(added_target, added_samples)
        value, saved = engine.sampled_forward(
            hidden, weight, bias, log_z, *words, objective, keep_copies, product_dtype, added
        )
        _Saves.keep(ctx, saved, words.target, words.samples)
        ctx.engine, ctx.gradients, ctx.row_dtype = engine, gradients, row_dtype
        return value

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, target, samples = _Saves.kept(ctx)
        of_weight, of_bias = ctx.gradients
        _, _, learns_bias, learns_log_z, learns_added, _, *rest = ctx.needs_input_grad
        found = ctx.engine.sampled_backward(
            saved, target, samples, grad, learns_bias or learns_log_z, ctx.row_dtype
        )
        return (
            found.hidden,
            of_weight(found.rows, found.row_values.to(ctx.row_dtype)),
            of_bias(found.rows, found.bias_values) if learns_bias else None,
            found.log_z if learns_log_z else None,
            saved.d_target * grad if learns_added else None,
            saved.d_samples * grad[..., None] if learns_added else None,
            *[None] * len(rest),
        )


def sampled_objective(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    log_z: Scalar,
    words: SampledWords,
    *,
    objective: Objective,
    keep_copies: bool,
    product_dtype: torch.dtype,
    row_dtype: torch.dtype,
    engine: Engine,
    gradients: tuple[RowGradientMaker, RowGradientMaker | None],
    added: Added | None = None,
) -> Tensor:
    """J (G, M) of a sampled loss.

    ``gradients`` make those of table and bias, whose rows come in ``row_dtype``.
    """
    value: Tensor = _SampledObjective.apply(
        hidden,
        weight,
        bias,
        log_z,
        *((None, None) if added is None else added),
        words,
        objective,
        keep_copies,
        product_dtype,
        row_dtype,
        engine,
        gradients,
    )
    return value


class _WholeLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        mask: Tensor | None,
        given: Tensor | None,
        divisor: Scalar | None,
        call: LayerCall,
        layer: WholeLayer,
        gradient: RowGradientMaker,
        found: list[LayerValue],
    ) -> tuple[Tensor, Tensor]:
        states = hidden.contiguous()
        value = layer.layer_forward(states, weight, target, mask, given, divisor, call)
        found.append(value)
        _Saves.keep(ctx, value.saved, states, weight)
        ctx.layer, ctx.gradient, ctx.row_dtype = layer, gradient, call.row_dtype
        ctx.set_materialize_grads(False)  # most callers use the loss alone
        return value.output, value.loss

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved, states, weight = _Saves.kept(ctx)
        if all(grad is None for grad in grads):
            return (None,) * 10
        found = ctx.layer.layer_backward(states, weight, saved, *grads, ctx.row_dtype)
        learns = ctx.needs_input_grad[1]
        of_weight = None
        if learns:
            of_weight = ctx.gradient(found.rows, found.row_values.to(ctx.row_dtype))
        return (found.hidden, of_weight, *[None] * 8)


def whole_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    mask: Tensor | None,
    given: Tensor | None,
    divisor: Scalar | None,
    call: LayerCall,
    layer: WholeLayer,
    gradient: RowGradientMaker,
) -> LayerValue:
    """A sampled layer's training call, with gradients by ``hidden`` and ``weight``."""
    found: list[LayerValue] = []
    output, loss = _WholeLoss.apply(
        hidden, weight, target, mask, given, divisor, call, layer, gradient, found
    )
    return found[0]._replace(output=output, loss=loss)


class _SampledFeatures(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        numbers: Tensor,
        start: Tensor,
        target: Tensor,
        samples: Tensor,
        engine: Engine,
        gradient: RowGradientMaker,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(start, target, samples)
        ctx.engine, ctx.gradient, ctx.numbers = engine, gradient, numbers.detach()
        found = engine.window_values(numbers, start, target, samples)
        return found.target, found.samples

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found = ctx.engine.window_gradient(ctx.numbers, *ctx.saved_tensors, Added(*grads))
        return ctx.gradient(*found), None, None, None, None, None


def sampled_features(
    numbers: Tensor,
    start: Tensor,
    words: SampledWords,
    engine: Engine,
    gradient: RowGradientMaker,
) -> Added:
    """The hashed features of a block's words, after histories (G, M, orders)."""
    return Added(
        *_SampledFeatures.apply(numbers, start, words.target, words.samples, engine, gradient)
    )


class _AllFeatures(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, numbers: Tensor, start: Tensor, words: int, engine: Engine) -> Tensor:
        ctx.save_for_backward(start)
        ctx.engine, ctx.like = engine, numbers
        found = numbers.new_zeros(len(start), words)
        engine.add_windows(found, Windows(numbers, start), 0)
        return found

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (start,) = ctx.saved_tensors
        found = torch.zeros_like(ctx.like)
        ctx.engine.add_window_gradient(grad, start, 0, found)
        return found, None, None, None


def all_features(numbers: Tensor, start: Tensor, words: int, engine: Engine) -> Tensor:
    """The hashed features (N, words) of all words after histories (N, orders)."""
    found: Tensor = _AllFeatures.apply(numbers, start, words, engine)
    return found


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
        added: Tensor | None,
    ) -> Tensor:
        value, saved = engine.softmax_forward(hidden, weight, bias, target, product_dtype, added)
        _Saves.keep(ctx, saved, target)
        ctx.engine = engine
        return value

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, target = _Saves.kept(ctx)
        found = ctx.engine.softmax_backward(saved, target, grad)
        bias = found.bias if ctx.needs_input_grad[2] else None
        added = found.logits if ctx.needs_input_grad[6] else None
        return found.hidden, found.weight, bias, None, None, None, added


def softmax_objective(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    product_dtype: torch.dtype,
    engine: Engine,
    added: Tensor | None = None,
) -> Tensor:
    """log p(target | hidden) (N,) of the exact softmax; its gradient touches every row.

    ``added`` (N, V): to the logits.
    """
    value: Tensor = _SoftmaxObjective.apply(
        hidden, weight, bias, target, product_dtype, engine, added
    )
    return value


class _PathObjective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tree: Tree,
        target: Tensor,
        engine: Engine,
        gradients: tuple[RowGradientMaker, RowGradientMaker | None],
    ) -> Tensor:
        value, saved = engine.path_forward(hidden, weight, bias, tree, target)
        _Saves.keep(ctx, saved)
        ctx.engine, ctx.gradients, ctx.dtype = engine, gradients, weight.dtype
        return value

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (saved,) = _Saves.kept(ctx)
        found = ctx.engine.path_backward(saved, grad)
        of_weight, of_bias = ctx.gradients
        learns_weight, learns_bias = ctx.needs_input_grad[1:3]
        weight = of_weight(found.rows, found.row_values.to(ctx.dtype)) if learns_weight else None
        bias = of_bias(found.rows, found.bias_values) if learns_bias else None
        return found.hidden, weight, bias, None, None, None, None


def path_objective(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tree: Tree,
    target: Tensor,
    engine: Engine,
    gradients: tuple[RowGradientMaker, RowGradientMaker | None],
) -> Tensor:
    """log p(target | hidden) (N,) along a tree's paths; ``gradients`` make those of the rows."""
    value: Tensor = _PathObjective.apply(hidden, weight, bias, tree, target, engine, gradients)
    return value


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, product_dtype: torch.dtype, engine: Engine
    ) -> Tensor:
        operands = inputs.flatten(0, -2).to(product_dtype)
        matrix = weight.to(product_dtype)
        ctx.save_for_backward(operands, matrix)
        ctx.engine, ctx.shape, ctx.types = engine, inputs.shape, (inputs.dtype, weight.dtype)
        result = engine.matrix_product(operands, matrix.mT).to(inputs.dtype)
        return result.view(*inputs.shape[:-1], len(weight))

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        operands, matrix = ctx.saved_tensors
        of_inputs, of_weight, *_ = ctx.needs_input_grad
        product, d = ctx.engine.matrix_product, grad.flatten(0, -2).to(matrix.dtype)
        d_inputs = product(d, matrix).to(ctx.types[0]).view(ctx.shape) if of_inputs else None
        d_weight = product(d.mT, operands).to(ctx.types[1]) if of_weight else None
        return d_inputs, d_weight, None, None


def linear(inputs: Tensor, weight: Tensor, product_dtype: torch.dtype, engine: Engine) -> Tensor:
    """W x, the product in ``product_dtype``, given back in the type of x."""
    result: Tensor = _Linear.apply(inputs, weight, product_dtype, engine)
    return result


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
    @first_derivatives_only
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
