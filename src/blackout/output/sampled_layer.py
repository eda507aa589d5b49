"""What the sampled output layers share: drawing sample sets, and gradients of a few rows."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.output.batch_proposal import BatchProposal
from blackout.output.bigram_proposal import BigramProposal
from blackout.output.layer import OutputLayer, require_one_of
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
        alpha: float = 1.0,
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
