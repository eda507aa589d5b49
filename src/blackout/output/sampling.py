"""What the sampled losses share: drawing sample sets, and gradients of a few rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Literal, Self, SupportsIndex, get_args

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from blackout.errors import UserError
from blackout.ops import reference
from blackout.ops.autograd import SampledWords, sampled_objective, whole_loss
from blackout.ops.engine import Engine, Scalar
from blackout.ops.engine import Objective as ObjectiveName
from blackout.ops.layer_call import LayerCall, WholeLayer, whole_layer
from blackout.ops.plan import OutputPlan
from blackout.ops.reference import Without
from blackout.output.contract import LayerSpec
from blackout.output.divided.layer import sampled_value
from blackout.output.divided.refusals import (
    agreed,
    checksum,
    refuse_given,
    refuse_with_ranks,
    refuse_with_strata,
)
from blackout.output.exact import Scores
from blackout.output.flat import FlatSoftmax
from blackout.output.labels import Labels
from blackout.output.objective import Objective
from blackout.output.options import require_one_of, require_whole, takes_options_of
from blackout.output.ranks import require_sparse_all_reduce, seed_of_rank
from blackout.output.recompute import drawn_before, inside_backward, remember
from blackout.output.results import OutputWithLoss
from blackout.output.rows import rows_of, whole_table
from blackout.output.surroundings import undisturbed
from blackout.output.targets import (
    check_shapes,
    checked_classes,
    checked_examples,
    require_tensor,
    whole_numbers,
)
from blackout.proposals import (
    Draw,
    Groups,
    Proposal,
    StrataProposal,
    UnigramProposal,
    make_proposal,
)
from blackout.ranks import strata_for

Sharing = Literal["step", "block", "word"]
ProposalKind = Literal["unigram", "batch", "bigram", "model", "lsh"]
TargetWeight = Literal["proposal", "one"]
Collisions = Literal["remove", "keep"]
Sampling = Literal["global", "strata"]
_WORTH_MERGING = 0.85
"""The share of different words in a draw from which on looking for copies does not pay."""


class SamplingLayer(FlatSoftmax):
    """A flat softmax whose objective looks at the target and K sampled words only.

    Samples are a pure function of ``seed``, of ``step``, which counts training calls and is saved
    with the weights, and of the rank where ``torch.distributed`` has several: each draws its own.
    """

    step: Tensor
    objective_name: ObjectiveName
    """Which of :data:`blackout.ops.reference.OBJECTIVES` is trained; each loss has its own."""
    target_weight: TargetWeight = "proposal"
    """What the target's weight in the posterior is: 1/Q as for samples, or 1 (paper, footnote 1)"""
    collisions: Collisions = "keep"
    """Whether copies of the target stay among its samples."""
    own_objective: Objective | None = None
    """A loss from outside, in place of ``objective_name``."""
    takes_samples = True
    divisible = True

    @takes_options_of(FlatSoftmax)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        samples: int,
        *,
        counts: Tensor | None = None,
        alpha: float = 1.0,
        proposal: ProposalKind | Proposal = "unigram",
        sharing: Sharing = "block",
        always_sample: tuple[int, ...] = (),
        sampling: Sampling = "global",
        seed: int = 0,
        **options: Any,
    ) -> None:
        """``samples``: K, how many classes are drawn to stand for all of them.
        ``counts`` (n_classes,): how often each class occurs; ``alpha``: the power that they are
        raised to, 0 for uniform draws. Without counts classes are drawn uniformly.
        ``proposal``: where samples come from: Q_alpha ("unigram"); the block's targets ("batch",
        their frequencies those of ``counts``, or estimated as they come); half Q_alpha and half
        what followed the input words in a text ("bigram", see :meth:`read_text`); what the model
        itself gives probability to ("model", see :meth:`follow_states`); half Q_alpha and half
        near the hidden states ("lsh", :mod:`blackout.proposals.lsh`); or a
        :class:`blackout.Proposal` of yours. The state of the layer has its tables: a loaded layer
        draws as the saved one did.
        ``sharing``: which examples share a sample set: all of a call ("block"), those with the same
        first index of hidden (T, B, h) ("step"), or none ("word").
        ``always_sample``: classes put into every sample set.
        ``sampling``: "global", K draws from Q, or "strata": fixed numbers of draws from each part
        of the vocabulary (:mod:`blackout.proposals.strata`), of which every rank of a process group
        draws and owns its share; the same line-ups for every number of ranks.
        ``seed``: decides the samples.
        """
        require_one_of("sampling", sampling, get_args(Sampling))
        if sampling == "strata":
            refuse_with_strata(proposal, always_sample)
            options = {"strata": strata_for(n_classes, max(samples, 1))} | options
        require_numbers(counts)
        group = options.get("process_group")
        options["process_group"] = agreed(
            group,
            {"layer": type(self).__name__, "n_classes": n_classes, "in_features": in_features}
            | {"samples": samples, "alpha": alpha, "proposal": str(proposal), "sharing": sharing}
            | {"always_sample": always_sample, "sampling": sampling, "seed": seed}
            | {"counts": None if counts is None or group is None else checksum(counts)},
        )
        super().__init__(in_features, n_classes, **options)
        require_whole("samples", samples, 1)
        require_one_of("sharing", sharing, get_args(Sharing))
        if not isinstance(seed, SupportsIndex):
            raise UserError(f"seed is {seed!r}, must be a whole number")
        if counts is not None and len(counts) != n_classes:
            raise UserError(f"counts has {len(counts)} entries for {n_classes} classes")
        if not isinstance(always_sample, Iterable):
            raise UserError(f"always_sample is {always_sample!r}, must be classes, such as (0,)")
        if any(not 0 <= word < n_classes for word in always_sample):
            raise UserError(f"always_sample has a class outside 0 … {n_classes - 1}")
        self.samples = samples
        self.sharing = sharing
        self.always_sample = tuple(always_sample)
        self.seed = seed
        self.sampling = sampling
        if sampling == "strata":
            counts = torch.ones(n_classes, device="cpu") if counts is None else counts
            strata = self.division.strata
            self.proposal: Proposal = StrataProposal(counts, alpha, samples, strata)
        else:
            self.proposal = make_proposal(proposal, n_classes, counts, alpha)
        refuse_with_ranks(self)
        self.history_words = max(self.history_words, self.proposal.history_words)
        self.reads_text = self.proposal.reads_text
        self.follows_states = self.proposal.follows_model
        self.register_buffer(
            "step", torch.zeros((), dtype=torch.int64, device=self.table.weight.device)
        )

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
        layer.proposal.save_what_is_learned()  # the counts are the vocabulary's
        if layer.precision == "bf16" and "tied_to" not in spec.common:
            layer.table.keep_product_gradients()  # our optimiser takes them
        return layer

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, samples={self.samples}"

    @undisturbed
    def forward(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
        divisor: Scalar | None = None,
        *,
        weights: Tensor | None = None,
        samples: Tensor | Draw | None = None,
    ) -> OutputWithLoss:
        """As every layer's; a GPU is given the common call as a whole, in a few launches."""
        require_tensor("target", target)
        plain = history is None and weights is None and samples is None
        if plain and self.training and hidden.ndim == target.ndim + 1 > 1 and target.numel():
            layer = self._whole_layer(hidden)
            if layer is not None:
                return self._whole(layer, hidden, target, mask, divisor)
        return super().forward(
            hidden, target, mask, history, divisor, weights=weights, samples=samples
        )

    def _whole_layer(self, hidden: Tensor) -> WholeLayer | None:
        """The engine's, where this layer computes nothing but what a :class:`LayerCall` says."""
        plain = (
            is_plain(type(self))
            and type(self.proposal) is UnigramProposal
            and self.biases is None
            and self.own_objective is None
            and self.features is None
            and not (self.always_sample or self.divided or self.sampling == "strata")
            and self.geometry.plain
            and isinstance(self.log_normaliser(), float)
            and self.table.weight.is_contiguous()
        )
        return whole_layer(self.engine(hidden), self.samples) if plain else None

    def _whole(
        self,
        layer: WholeLayer,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None,
        divisor: Scalar | None,
    ) -> OutputWithLoss:
        check_shapes(hidden, target, mask, None, self.in_features)
        words = whole_numbers(target).contiguous()
        if self.sparse:
            require_sparse_all_reduce(self.weight)
        proposal, table = self.proposal, self.table
        assert isinstance(proposal, UnigramProposal)
        proposal.follow(self.weight.device)
        log_z = self.log_normaliser()
        assert isinstance(log_z, float)
        given = drawn_before(self, words, hidden).samples if inside_backward() else None
        sets = {"step": len(target) if target.ndim > 1 else 1, "block": 1, "word": target.numel()}
        call = LayerCall(
            objective=self.objective_name,
            log_z=log_z,
            keep_copies=self.collisions == "keep",
            target_one=self.target_weight == "one",
            samples=self.samples,
            groups=sets[self.sharing],
            total=self.reduction == "sum",
            ignore=self.ignore_index,
            product_dtype=self.product_dtype,
            row_dtype=table.gradient_dtype(self.product_dtype),
            threshold=proposal.threshold,
            alias=proposal.alias,
            log_q=proposal.log_q,
            seed=seed_of_rank(self.seed),
            step=self.step,
        )
        masked = None if mask is None else mask.contiguous()
        found = whole_loss(
            hidden, table.weight, words, masked, given, divisor, call, layer, table.row_gradient
        )
        if words.device.type != "cpu":
            wrong = f"a target is not a class: 0 … {self.n_classes - 1}"
            torch._assert_async(found.fine, wrong)
        elif not bool(found.fine):
            checked_examples(
                hidden, target, mask, n_classes=self.n_classes, in_features=self.in_features,
                ignore_index=self.ignore_index,
            )  # fmt: skip
        if given is None:
            density = found.log_q_target, found.log_q_samples
            remember(self, SampledWords(words, found.samples, None, *density), hidden)
        if self.reduction == "none":
            return OutputWithLoss(found.output, -found.output)
        return OutputWithLoss(found.output, found.loss)

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
        samples: Tensor | Draw | None = None,
    ) -> Tensor:
        if self.divided or self.sampling == "strata":
            refuse_given(samples)
            return sampled_value(self, hidden, target, mask)
        groups = grouped(target, history, mask, self.sharing)
        return self._value(hidden, groups, samples, None).view(target.shape)

    def objective_of_labels(
        self,
        hidden: Tensor,
        labels: Labels,
        history: Tensor | None = None,
        samples: Tensor | Draw | None = None,
    ) -> Tensor:
        if self.divided or self.sampling == "strata":
            raise UserError("several classes an example: not with process_group or strata yet")
        groups = grouped(labels.target, history, None, self.sharing)
        return self._value(hidden, groups, samples, labels).view(-1)

    def _value(
        self,
        hidden: Tensor,
        groups: Groups,
        samples: Tensor | Draw | None,
        labels: Labels | None,
    ) -> Tensor:
        """J (G, M) of the targets; ``labels``: what else is true of them."""
        if self.sparse:
            require_sparse_all_reduce(self.weight)
        states = self.geometry.states(hidden).reshape(*groups.target.shape, self.in_features)
        engine = self.engine(states)
        if self.proposal.looks_at_states:
            groups = groups._replace(states=states.detach())
        words = self._words(groups, states, samples, engine)
        objective: Any = self.objective_name if self.own_objective is None else self.own_objective
        if labels is not None:
            others = labels.others(words.samples, len(groups.target))
            objective = Without(objective, others)
        if not isinstance(objective, str):
            engine = reference  # the one that takes other objectives than the package's
        added = None
        if self.features is not None:
            added = self.features.of_samples(groups.history, words)
        if self.geometry.normalize:
            table = rows_of(self.table, self.biases, words, self.geometry)
        else:
            table = whole_table(self.table, self.biases, words, self.product_dtype)
        value = sampled_objective(
            states,
            table.weight,
            table.bias,
            self.log_normaliser(),
            table.words,
            objective=objective,
            keep_copies=self.collisions == "keep",
            product_dtype=self.product_dtype,
            row_dtype=table.row_dtype,
            engine=engine,
            gradients=table.gradients,
            added=added,
        )
        return self._penalised(value, states, words, groups)

    def _penalised(
        self, value: Tensor, states: Tensor, words: SampledWords, given: Groups
    ) -> Tensor:
        """J (G, M), less what a subclass punishes."""
        return value

    def _words(
        self, groups: Groups, states: Tensor, samples: Tensor | Draw | None, engine: Engine
    ) -> SampledWords:
        """Targets and samples; copies merged where that makes the products much smaller."""
        target = groups.target
        if samples is not None:
            given = self._given(samples, groups)
            return SampledWords(
                target, given.samples, None, given.log_q_target, given.log_q_samples
            )
        if inside_backward():
            return drawn_before(self, target, states)
        asked = groups if groups.states is not None else groups[:3]
        words = self._merged(self.draw(*asked), groups, engine)
        remember(self, words, states)
        return words

    @property
    def merges(self) -> bool:
        """Whether copies of a sample are merged: where that makes the products much smaller."""
        return self.proposal.distinct_share(self.samples) <= _WORTH_MERGING

    def plan(self) -> OutputPlan | None:
        """Of the losses here, with the unigram proposal and row-sparse gradients."""
        plain = (
            is_plain(type(self))
            and type(self.proposal) is UnigramProposal
            and self.table.sparse
            and self.reduction == "mean"
            and self.own_objective is None
            and self.geometry.plain
            and self.features is None
            and not self.divided
        )
        if not plain or not isinstance(self.proposal, UnigramProposal):
            return None
        log_z = self.log_normaliser()
        return OutputPlan(
            objective=self.objective_name,
            weight=self.table.weight,
            bias=None if self.biases is None else self.biases.weight,
            log_z=log_z,
            keep_copies=self.collisions == "keep",
            target_one=self.target_weight == "one",
            sharing=self.sharing,
            samples=self.samples,
            always=self.always_sample,
            merge=self.merges,
            product_dtype=self.product_dtype,
            threshold=self.proposal.threshold,
            alias=self.proposal.alias,
            log_q=self.proposal.log_q,
            seed=seed_of_rank(self.seed),
            step=self.step,
        )

    def _merged(self, drawn: Draw, groups: Groups, engine: Engine) -> SampledWords:
        target, (samples, log_q_samples, log_q_target) = groups.target, drawn
        # how many there are, a GPU would have to be waited for
        known = samples.numel() and not samples.is_cuda
        if not known or self.own_objective is not None or not self.merges:
            return SampledWords(target, samples, None, log_q_target, log_q_samples)
        words, multiplicity = engine.merge_copies(samples)
        log_q = self.proposal.log_density(words, groups)
        return SampledWords(target, words, multiplicity, log_q_target, log_q)

    def draw(
        self,
        target: Tensor,
        history: Tensor | None = None,
        mask: Tensor | None = None,
        states: Tensor | None = None,
    ) -> Draw:
        """Sample sets of this step, (G, K), for targets of any shape: one set for each group.

        ``always_sample`` stands at the end of each. Given to :meth:`forward` as ``samples``, they
        are what it would have drawn. ``states`` (..., h): for a proposal that looks at them.
        """
        groups = grouped(target, history, mask, self.sharing)
        if states is not None:
            states = states.detach().reshape(*groups.target.shape, self.in_features)
        self.proposal.follow(self.weight.device)
        self.proposal.see_rows(self.weight.detach(), self.step)
        drawn = self.proposal.draw(
            self.seed if self.divided else seed_of_rank(self.seed),
            self.step,
            groups.target,
            self.samples,
            history=groups.history,
            mask=groups.mask,
            states=states,
            always=self.always_sample,
            impl=self.impl,
        )
        self.step += 1
        return self._weighted(drawn)

    def _weighted(self, drawn: Draw) -> Draw:
        if self.target_weight == "one":
            return drawn._replace(log_q_target=torch.zeros_like(drawn.log_q_target))
        return drawn

    def _given(self, samples: Tensor | Draw, groups: Groups) -> Draw:
        """Samples of the caller's: a :class:`Draw`, or words that are taken for draws from Q."""
        sets = len(groups.target)
        if isinstance(samples, Draw):
            for name, part in zip(samples._fields, samples, strict=True):
                require_tensor(f"{name} of the Draw", part)
        else:
            require_tensor("samples", samples)
        words = samples.samples if isinstance(samples, Draw) else samples
        if words.ndim not in (1, 2) or (words.ndim == 2 and len(words) not in (1, sets)):
            raise UserError(
                f"samples {tuple(words.shape)} must be (K,), or ({sets}, K): with sharing "
                f"{self.sharing} there are {sets} sample sets"
            )
        if not words.shape[-1]:
            raise UserError("samples is empty: there must be one to tell the target from")
        words = checked_classes(words, words.shape[:-1], self.n_classes, "samples")
        words = words.to(groups.target.device).expand(sets, -1).contiguous()
        if not isinstance(samples, Draw):
            self.proposal.follow(self.weight.device)
            self.proposal.see_rows(self.weight.detach(), self.step)
            density = self.proposal.log_density
            return self._weighted(
                Draw(words, density(words, groups), density(groups.target, groups))
            )
        log_q, log_q_target = samples.log_q_samples, samples.log_q_target
        if log_q.shape[-1:] != words.shape[-1:] or log_q_target.numel() != groups.target.numel():
            raise UserError(
                f"samples has log Q of samples {tuple(log_q.shape)} and targets "
                f"{tuple(log_q_target.shape)}, for samples {tuple(words.shape)} and targets "
                f"{tuple(groups.target.shape)}: a Draw is for the targets it was drawn for"
            )
        log_q = log_q.to(words.device).expand(words.shape)
        return Draw(words, log_q, log_q_target.to(words.device).reshape(groups.target.shape))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.step.zero_()

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
        states = self.states(hidden)
        # of the vectors alone where there are features: what is drawn need not be exact
        scores = self.scores_of_vectors(states)
        assert isinstance(scores, Scores)  # a divided layer has no such proposal
        partition, share = scores.partition(states), scores.engine.root_mean_square_prob
        parts = [share(states, rows, bias, partition) for _, rows, bias in scores.tiles()]
        self.proposal.follow(self.weight.device)
        self.proposal.adapt(torch.cat(parts))

    def log_normaliser(self) -> Scalar:
        """log Z of NCE; the other objectives do not look at it."""
        return 0.0


@functools.cache
def is_plain(kind: type[SamplingLayer]) -> bool:
    """Whether a class of layers trains as :class:`SamplingLayer` does, its settings aside."""
    return (
        kind.objective is SamplingLayer.objective
        and kind.draw is SamplingLayer.draw
        and kind._value is SamplingLayer._value
        and kind._words is SamplingLayer._words
        and kind._penalised is SamplingLayer._penalised
        and kind.forward is SamplingLayer.forward
    )


def require_numbers(counts: Tensor | None) -> None:
    """Refuses counts made under ``torch.device("meta")``."""
    if isinstance(counts, Tensor) and counts.is_meta:
        raise UserError(
            "counts are on the meta device and have no numbers: make them with device='cpu', or "
            "leave them out, and the state that is loaded has what they gave"
        )


def grouped(
    target: Tensor, history: Tensor | None, mask: Tensor | None, sharing: Sharing
) -> Groups:
    """Targets (G, M), one row for each sample set; what is grouped already stays so."""
    if sharing == "word":
        shape = target.numel(), 1
    elif sharing == "block" or target.ndim < 2:
        shape = 1, target.numel()
    else:
        shape = len(target), target[:1].numel()
    return Groups(
        target.reshape(shape),
        None if history is None else history.reshape(*shape, history.shape[-1]),
        None if mask is None else mask.reshape(shape),
    )
