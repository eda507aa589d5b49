"""What the sampled losses share: drawing sample sets, and gradients of a few rows."""

from __future__ import annotations

from typing import Literal, Self, get_args

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.autograd import sampled_objective
from blackout.ops.engine import Objective, Scalar
from blackout.output.contract import LayerSpec, require_one_of
from blackout.output.flat import FlatSoftmax
from blackout.proposals import PROPOSALS, Draw

Sharing = Literal["step", "block", "word"]
ProposalKind = Literal["unigram", "batch", "bigram", "model"]
TargetWeight = Literal["proposal", "one"]
Collisions = Literal["remove", "keep"]


class SamplingLayer(FlatSoftmax):
    """A flat softmax whose objective looks at the target and K sampled words only.

    ``counts`` (n_classes,) gives the unigram distribution that ``alpha`` raises; without it words
    are drawn uniformly. ``proposal``: where samples come from, Q_alpha ("unigram"), the block's
    targets ("batch"), half Q_alpha and half what followed the input words in a text ("bigram", see
    :meth:`read_text`), or what the model itself gives probability to ("model", see
    :meth:`follow_states`). ``sharing``: which examples share a sample set. With hidden (T, B, h):
    those of a time step, of the block, or none; with hidden (N, h): all N, all N, or none.
    ``always_sample``: classes put into every sample set.

    Samples are a pure function of ``seed`` and of ``step``, which counts training calls and is
    saved with the weights.
    """

    step: Tensor
    objective_name: Objective
    """Which of :data:`blackout.ops.reference.OBJECTIVES` is trained; each loss has its own."""
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
        self.history_words = self.proposal.history_words
        self.reads_text = self.proposal.reads_text
        self.follows_states = self.proposal.follows_model
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    @classmethod
    def from_spec(cls, spec: LayerSpec) -> Self:
        counts = spec.counts.clamp(min=1)  # a vocabulary without unknown words counts <unk> 0 times
        layer = cls(
            spec.in_features,
            spec.n_classes,
            counts=counts,
            seed=spec.seed,
            **spec.settings,
            **spec.common,
        )
        if layer.precision == "bf16":
            layer.table.keep_product_gradients()  # our optimiser takes them
        return layer

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, samples={self.samples}, alpha={self.proposal.alpha}"

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        shape = group_shape(target, self.sharing)
        words = target.reshape(shape)
        drawn = self.draw(
            words,
            None if history is None else history.reshape(*words.shape, history.shape[-1]),
            None if mask is None else mask.reshape(shape),
        )
        table, biases, dtype = self.table, self.biases, self.product_dtype
        value = sampled_objective(
            hidden.reshape(*shape, self.in_features),
            table.weight,
            None if biases is None else biases.weight,
            self.log_normaliser(),
            (words, drawn.samples, drawn.log_q_target, drawn.log_q_samples),
            objective=self.objective_name,
            keep_copies=self.collisions == "keep",
            product_dtype=dtype,
            row_dtype=table.gradient_dtype(dtype),
            engine=self.engine(hidden),
            gradients=(table.row_gradient, None if biases is None else biases.row_gradient),
        )
        return value.view(target.shape)

    def draw(
        self, target: Tensor, history: Tensor | None = None, mask: Tensor | None = None
    ) -> Draw:
        """Sample sets of this step for targets (G, M), ``always_sample`` at their end."""
        self.proposal.follow(self.weight.device)
        drawn = self.proposal.draw(
            self.seed,
            self.step,
            target,
            self.samples,
            history=history,
            mask=mask,
            always=self.always_sample,
            impl=self.impl,
        )
        self.step += 1
        if self.target_weight == "one":
            drawn = drawn._replace(log_q_target=torch.zeros_like(drawn.log_q_target))
        return drawn

    def update_rate(self, unigram: Tensor, steps: int, streams: int) -> Tensor:
        """Targets, and K expected draws for each sample set (paper eq. 19)."""
        sets = {"step": steps, "block": 1, "word": streams * steps}[self.sharing]
        drawn = self.proposal.marginal().to(unigram.device) * self.samples * sets
        return super().update_rate(unigram, steps, streams) + drawn

    def read_text(self, context: ArrayLike, follower: ArrayLike) -> None:
        """Lets a "bigram" proposal count the pairs of a text."""
        self.proposal.read_text(context, follower)

    @torch.no_grad()
    def follow_states(self, hidden: Tensor) -> None:
        """Lets a "model" proposal follow the model, seen at some hidden states (N, h)."""
        if not self.follows_states:
            raise UserError("only a layer with proposal model can follow the model")
        engine = self.engine(hidden)
        partition = engine.log_partition(hidden, self.weight, self.bias, self.product_dtype)
        self.proposal.follow(self.weight.device)
        self.proposal.adapt(engine.root_mean_square_prob(hidden, self.weight, self.bias, partition))

    def log_normaliser(self) -> Scalar:
        """log Z of NCE; the other objectives do not look at it."""
        return 0.0


def group_shape(target: Tensor, sharing: Sharing) -> tuple[int, int]:
    """(G, M), one of them -1: targets so reshaped have one row for each sample set."""
    if sharing == "word":
        return -1, 1
    return 1 if sharing == "block" or target.ndim == 1 else len(target), -1
