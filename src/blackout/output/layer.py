"""What all output layers share: the table of word vectors, exact evaluation, one signature.

Shaped like ``torch.nn.AdaptiveLogSoftmaxWithLoss``: ``layer(hidden, target) → (output, loss)``,
``layer.log_prob(hidden)``, ``layer.predict(hidden)``. ``output`` is the objective of each example
and ``loss`` its negated mean. While training the objective is the layer's own; after ``.eval()``
it is the exact log-probability, whatever the training loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.dispatch import operations
from blackout.ops.tables import STORAGE, empty_table, fill_uniform
from blackout.output.batch_proposal import BatchProposal
from blackout.output.bigram_proposal import BigramProposal
from blackout.output.model_proposal import ModelProposal, root_mean_square_prob
from blackout.output.proposal import Draw, Proposal

Sharing = Literal["step", "block", "word"]
ProposalKind = Literal["unigram", "batch", "bigram", "model"]
PROPOSALS: dict[str, type[Proposal]] = {
    "unigram": Proposal,
    "batch": BatchProposal,
    "bigram": BigramProposal,
    "model": ModelProposal,
}
TargetWeight = Literal["proposal", "one"]
Collisions = Literal["remove", "keep"]
PRODUCT_DTYPES = {"fp32": None, "bf16": torch.bfloat16}


class OutputWithLoss(NamedTuple):
    """``output``: the objective of each example, shaped like the target; ``loss``: a scalar."""

    output: Tensor
    loss: Tensor


class OutputLayer(nn.Module):
    """A table of ``n_classes`` word vectors, scored against hidden states.

    ``sparse``: whether the table's gradient is row-sparse (``torch.sparse_coo``) or dense.
    ``precision``: the number format of the matrix products, "fp32" or "bf16".
    ``storage``: the number format of the table, "fp32" or "bf16".
    ``impl``: which version of the arithmetic to use (:mod:`blackout.ops.dispatch`).
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        bias: bool = False,
        sparse: bool = True,
        init_range: float = 0.08,
        precision: Literal["fp32", "bf16"] = "fp32",
        storage: Literal["fp32", "bf16"] = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        if n_classes < 2:
            raise UserError(f"n_classes is {n_classes}, must be at least 2")
        require_one_of("precision", precision, PRODUCT_DTYPES)
        self.in_features = in_features
        self.n_classes = n_classes
        self.sparse = sparse
        self.init_range = init_range
        self.precision = precision
        self.impl = impl
        self.weight = nn.Parameter(empty_table(n_classes, in_features, dtype=STORAGE[storage]))
        self.bias = nn.Parameter(torch.empty(n_classes)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        fill_uniform(self.weight, self.init_range)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, bias={self.bias is not None}"

    @property
    def product_dtype(self) -> torch.dtype:
        """The dtype of the matrix products."""
        return PRODUCT_DTYPES[self.precision] or torch.promote_types(
            self.weight.dtype, torch.float32
        )

    # ------------------------------------------------------------------ training

    def forward(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
    ) -> OutputWithLoss:
        """The objective of each example and the loss.

        ``hidden`` (N, h) or (T, B, h); ``target`` and ``mask`` (N,) or (T, B): examples where
        ``mask`` is False count for nothing. ``context``, shaped like ``target``: the input words,
        for proposals that look at them.
        """
        if hidden.shape[:-1] != target.shape or hidden.shape[-1] != self.in_features:
            raise ValueError(
                f"hidden {tuple(hidden.shape)} must be target {tuple(target.shape)} "
                f"and a last dimension of {self.in_features}"
            )
        if context is not None and context.shape != target.shape:
            raise ValueError(
                f"context {tuple(context.shape)} must be shaped like target {tuple(target.shape)}"
            )
        if self.training:
            output = self.objective(hidden, target, mask, context)
        else:
            output = self.target_log_prob(hidden, target)
        if mask is None:
            return OutputWithLoss(output, -output.mean())
        output = output * mask
        return OutputWithLoss(output, -output.sum() / mask.sum())

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
    ) -> Tensor:
        """J of each example, with gradients; what training maximises."""
        raise NotImplementedError  # each loss is one subclass

    # ------------------------------------------------------------------ exact evaluation

    def target_log_prob(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Exact log p(target | hidden), shaped like ``target``, in bounded memory; no gradients."""
        ops = self.operations(hidden)
        flat = hidden.detach().reshape(-1, self.in_features)
        with torch.no_grad():
            log_prob: Tensor = ops.target_log_prob(
                flat, self.weight, self.bias, target.reshape(-1), self.product_dtype
            )
        return log_prob.view(target.shape)

    def pair_log_prob(self, hidden: Tensor, row: Tensor, target: Tensor) -> Tensor:
        """Exact log p(target | hidden[row]) of pairs (N,), for hidden states (M, h); no gradients.

        Several words may follow one state: its sum over the vocabulary is made once.
        """
        ops = self.operations(hidden)
        states = hidden.detach()
        with torch.no_grad():
            partition = ops.log_partition(states, self.weight, self.bias, self.product_dtype)
            logit: Tensor = ops.target_logit(states[row], self.weight, self.bias, target)
            return logit - partition[row]

    def operations(self, hidden: Tensor) -> ModuleType:
        """The arithmetic for these hidden states and this table."""
        dtypes = [hidden.dtype, self.weight.dtype]
        if self.bias is not None:
            dtypes.append(self.bias.dtype)
        return operations(self.impl, hidden.device, *dtypes)

    def logits(self, hidden: Tensor) -> Tensor:
        """<theta, s> + bias of all classes, (..., n_classes)."""
        return nn.functional.linear(hidden, self.weight.to(hidden.dtype), self.bias)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Exact log-probabilities of all classes, (..., n_classes)."""
        return torch.log_softmax(self.logits(hidden), -1)

    def predict(self, hidden: Tensor) -> Tensor:
        """The most probable class of each example, without holding all probabilities at once."""
        flat = hidden.reshape(-1, self.in_features)
        with torch.no_grad():
            chunks = [
                self.logits(part).argmax(-1) for part in flat.split(max(1, 2**24 // self.n_classes))
            ]
        return torch.cat(chunks).view(hidden.shape[:-1])


class SampledOutputLayer(OutputLayer):
    """An output layer whose objective looks at the target and K sampled words only.

    ``counts`` (n_classes,) gives the unigram distribution that ``alpha`` raises; without it words
    are drawn uniformly. ``proposal``: where samples come from, Q_alpha ("unigram"), the block's
    targets ("batch"), half Q_alpha and half what followed the input words in a text ("bigram", see
    :class:`BigramProposal`), or what the model itself gives probability to ("model", see
    :meth:`adapt_proposal`). ``sharing``: which examples share a sample set. With hidden (T, B, h):
    those of a time step, of the block, or none; with hidden (N, h): all N, all N, or none.
    ``always_sample``: classes put into every sample set.

    Samples are a pure function of ``seed`` and of ``step``, which counts training calls and is
    saved with the weights.
    """

    step: Tensor
    target_weight: TargetWeight = "proposal"
    """What the target's weight in the posterior is: 1/Q as for samples, or 1 (paper, footnote 1)"""
    collisions: Collisions = "keep"
    """Whether copies of the target stay among its samples."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        counts: Tensor | None = None,
        alpha: float = 0.4,
        proposal: ProposalKind = "unigram",
        sharing: Sharing = "step",
        always_sample: tuple[int, ...] = (),
        seed: int = 0,
        bias: bool = False,
        sparse: bool = True,
        init_range: float = 0.08,
        precision: Literal["fp32", "bf16"] = "fp32",
        storage: Literal["fp32", "bf16"] = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__(
            in_features,
            n_classes,
            bias=bias,
            sparse=sparse,
            init_range=init_range,
            precision=precision,
            storage=storage,
            impl=impl,
        )
        if samples < 1:
            raise UserError(f"samples is {samples}, must be at least 1")
        require_one_of("sharing", sharing, get_args(Sharing))
        require_one_of("proposal", proposal, PROPOSALS)
        if counts is None:
            counts = torch.ones(n_classes)
        elif len(counts) != n_classes:
            raise UserError(f"counts has {len(counts)} entries for {n_classes} classes")
        if any(not 0 <= word < n_classes for word in always_sample):
            raise UserError(f"always_sample has a class outside 0 … {n_classes - 1}")
        self.samples = samples
        self.sharing = sharing
        self.always_sample = tuple(always_sample)
        self.seed = seed
        self.proposal = PROPOSALS[proposal](counts, alpha)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def keep_bf16_row_gradients(self) -> None:
        """Leaves row gradients in the type that products in bf16 give them, at half the traffic.

        For optimisers that take a gradient of another type than its parameter, as ours does; where
        PyTorch is too old for such gradients, nothing changes.
        """
        if self.sparse and self.precision == "bf16" and hasattr(self.weight, "grad_dtype"):
            self.weight.grad_dtype = None

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, samples={self.samples}, alpha={self.proposal.alpha}"

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
    ) -> Tensor:
        shape = group_shape(target, self.sharing)
        grouped, words = hidden.reshape(*shape, self.in_features), target.reshape(shape)
        drawn = self.draw(
            words,
            None if context is None else context.reshape(shape),
            None if mask is None else mask.reshape(shape),
        )
        value: Tensor = _SampledObjective.apply(
            grouped, self.weight, self.bias, self.log_normaliser(), words, drawn, self
        )
        return value.view(target.shape)

    def draw(
        self, target: Tensor, context: Tensor | None = None, mask: Tensor | None = None
    ) -> Draw:
        """Sample sets of this step for targets (G, M), ``always_sample`` at their end."""
        self.proposal.follow(self.weight.device)
        drawn = self.proposal.draw(
            self.seed,
            int(self.step),
            target,
            self.samples,
            context=context,
            mask=mask,
            always=self.always_sample,
            impl=self.impl,
        )
        self.step += 1
        if self.target_weight == "one":
            drawn = drawn._replace(log_q_target=torch.zeros_like(drawn.log_q_target))
        return drawn

    @torch.no_grad()
    def adapt_proposal(self, hidden: Tensor) -> None:
        """Lets a "model" proposal follow the model, seen at some hidden states (N, h)."""
        if not isinstance(self.proposal, ModelProposal):
            raise UserError("only a layer with proposal model can adapt it")
        partition = self.operations(hidden).log_partition(
            hidden, self.weight, self.bias, self.product_dtype
        )
        self.proposal.follow(self.weight.device)
        self.proposal.adapt(root_mean_square_prob(hidden, self.weight, self.bias, partition))

    def log_normaliser(self) -> Tensor | float:
        """log Z of NCE; the other objectives do not look at it."""
        return 0.0

    @property
    def objective_name(self) -> str:
        """Which of :data:`blackout.ops.reference.OBJECTIVES` is trained."""
        raise NotImplementedError  # each loss is one subclass


def require_one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Refuses an option that is none of those known."""
    if value not in (names := list(known)):
        raise UserError(f"{name} is {value!r}, must be one of {', '.join(names)}")


def group_shape(target: Tensor, sharing: Sharing) -> tuple[int, int]:
    """(G, M), one of them -1: targets so reshaped have one row for each sample set."""
    if sharing == "word":
        return -1, 1
    return 1 if sharing == "block" or target.ndim == 1 else len(target), -1


class _SampledObjective(torch.autograd.Function):
    """J (G, M) with closed-form gradients; the table's is row-sparse if the layer is."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        log_z: Tensor | float,
        target: Tensor,
        drawn: Draw,
        layer: SampledOutputLayer,
    ) -> Tensor:
        ops = layer.operations(hidden)
        value, saved = ops.sampled_forward(
            hidden,
            weight,
            bias,
            log_z,
            target,
            drawn.samples,
            drawn.log_q_target,
            drawn.log_q_samples,
            layer.objective_name,
            layer.collisions == "keep",
            layer.product_dtype,
        )
        ctx.save_for_backward(target, drawn.samples, *saved)
        ctx.layer = layer  # type: ignore[attr-defined]
        ctx.operations = ops  # type: ignore[attr-defined]
        ctx.saved_type = type(saved)  # type: ignore[attr-defined]
        return value

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        target, samples, *saved = ctx.saved_tensors  # type: ignore[attr-defined]
        layer: SampledOutputLayer = ctx.layer  # type: ignore[attr-defined]
        row_dtype = layer.weight.dtype
        if getattr(layer.weight, "grad_dtype", row_dtype) is None:
            row_dtype = layer.product_dtype
        learns_log_z: bool = ctx.needs_input_grad[3]  # type: ignore[attr-defined]
        gradients = ctx.operations.sampled_backward(  # type: ignore[attr-defined]
            ctx.saved_type(*saved),  # type: ignore[attr-defined]
            target,
            samples,
            grad,
            layer.bias is not None or learns_log_z,
            row_dtype,
        )
        build = sparse_rows if layer.sparse else dense_rows
        return (
            gradients.hidden,
            build(gradients.rows, gradients.row_values.to(row_dtype), layer.weight),
            None
            if layer.bias is None
            else build(gradients.rows, gradients.bias_values, layer.bias),
            gradients.log_z if learns_log_z else None,
            None,
            None,
            None,
        )


def sparse_rows(rows: Tensor, values: Tensor, table: Tensor) -> Tensor:
    """A row-sparse gradient of ``table``; rows may repeat, their values add up."""
    return torch.sparse_coo_tensor(rows[None], values, table.shape, check_invariants=False)


def dense_rows(rows: Tensor, values: Tensor, table: Tensor) -> Tensor:
    """The same gradient as a dense tensor."""
    return torch.zeros_like(table).index_add_(0, rows, values.to(table.dtype))
