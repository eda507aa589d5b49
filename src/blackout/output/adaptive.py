"""The adaptive softmax (Grave et al. 2017): frequent words at once, rare ones in two steps.

    p(w | s) = p(w | head, s)                          for a frequent word,
    p(w | s) = p(cluster | head, s) p(w | cluster, P s)  for a rare one

The head is a softmax over the frequent words and the clusters of the others; a cluster is one over
its words, whose vectors are the shorter the rarer they are, for states that P makes shorter too.

>>> layer = Adaptive(16, 1000, counts=torch.arange(1000, 0, -1))
>>> output, loss = layer(torch.randn(8, 16), torch.randint(1000, (8,)))
>>> loss.backward()
>>> int(layer.log_prob(torch.zeros(16)).exp().sum().round())
1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from blackout.cutoffs import best_cutoffs, cluster_width
from blackout.errors import UserError
from blackout.ops.autograd import softmax_objective
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Engine
from blackout.output import exact
from blackout.output.contract import LayerSpec, OutputLayer
from blackout.output.flat import PRODUCT_DTYPES
from blackout.output.geometry import wide
from blackout.output.hierarchical import class_counts
from blackout.output.labels import Labels
from blackout.output.options import require_one_of, takes_options_of
from blackout.output.surroundings import undisturbed
from blackout.output.targets import checked_targets
from blackout.tables import STORAGE, Table


class Softmax(nn.Module):
    """A softmax over some vectors, for states that may be made shorter first."""

    def __init__(
        self, in_features: int, size: int, rows: int, bias: bool, precision: str, **table: Any
    ) -> None:
        super().__init__()
        self.precision = precision
        limit, dtype = table.pop("init_range"), table.pop("dtype")
        storage = table.pop("storage") or dtype
        shorter = size < in_features
        self.table = Table(
            rows, size, init_range=size**-0.5 if shorter else limit, storage=storage, **table
        )
        self.biases = Table(rows, None, init_range=0.0, storage=dtype, **table) if bias else None
        self.projection = None
        if shorter:
            shape, device = (size, in_features), self.table.weight.device
            self.projection = nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
        self.limit, self.impl = limit, table["impl"]
        self.reset_projection()

    def reset_projection(self) -> None:
        if self.projection is not None:
            nn.init.uniform_(self.projection, -self.limit, self.limit)

    @property
    def bias(self) -> Tensor | None:
        return None if self.biases is None else self.biases.weight

    @property
    def product_dtype(self) -> torch.dtype:
        own = torch.promote_types(self.table.weight.dtype, torch.float32)
        return PRODUCT_DTYPES[self.precision] or own

    def engine(self, states: Tensor) -> Engine:
        more = () if self.bias is None else (self.bias.dtype,)
        return engine_for(self.impl, states.device, states.dtype, self.table.weight.dtype, *more)

    def states(self, hidden: Tensor) -> Tensor:
        """Hidden states (N, h) as the vectors meet them."""
        if self.projection is None:
            return hidden
        dtype = self.product_dtype
        return linear(hidden.to(dtype), self.projection.to(dtype)).to(hidden.dtype)

    def objective(self, hidden: Tensor, target: Tensor) -> Tensor:
        """log p(target | hidden) (N,), with gradients."""
        states, dtype = self.states(hidden), self.product_dtype
        engine = self.engine(states)
        return softmax_objective(states, self.table.weight, self.bias, target, dtype, engine)

    def partition(self, states: Tensor) -> Tensor:
        """log of the sum of exp(u), (N,), of states that :meth:`states` gave; no gradients."""
        engine = self.engine(states)
        return engine.log_partition(states, self.table.weight, self.bias, self.product_dtype)

    def logits(self, states: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """u (N, n) of all vectors or some."""
        bias = None if self.bias is None else self.bias[rows]
        return self.engine(states).logits(states, self.table.weight[rows], bias)

    def pairs(self, hidden: Tensor, row: Tensor, target: Tensor) -> Tensor:
        """log p(target | hidden[row]) (N,) of pairs, the sum made once a state; no gradients."""
        some, at = row.unique(return_inverse=True)
        states = self.states(hidden[some])
        logit = self.engine(states).target_logit(states[at], self.table.weight, self.bias, target)
        return logit - self.partition(states)[at]


class Adaptive(OutputLayer):
    """PyTorch's ``AdaptiveLogSoftmaxWithLoss`` behind our contract, for classes in any order."""

    rank: Tensor

    @takes_options_of(OutputLayer)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        counts: Tensor | None = None,
        cutoffs: Sequence[int] = (),
        div_value: float = 4.0,
        bias: bool = False,
        sparse: bool = False,
        init_range: float | None = None,
        precision: Literal["fp32", "bf16"] = "fp32",
        storage: Literal["fp32", "bf16"] | None = None,
        impl: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        """``counts`` (n_classes,): how often each class occurs; without them classes are taken to
        come by falling frequency, as in a vocabulary. ``cutoffs``: the rank of the first class of
        each cluster; by default those of the least computing time (:mod:`blackout.cutoffs`).
        ``div_value``: by which the vectors of a cluster are shorter than those before.
        ``bias``: whether each class and cluster has a number that is added to its logit.
        ``sparse``: False, and nothing else: a cluster that a batch touches has gradients in all
        its rows, so that row-sparse ones would be larger.
        ``init_range``: vectors start uniformly in ± this, by default 1 / sqrt(in_features).
        ``precision``: the number format of the matrix products, "fp32" or "bf16".
        ``impl``: which version of the arithmetic to use (:mod:`blackout.ops.dispatch`).
        ``device``, ``dtype``: as for every module of PyTorch. ``storage``: the number format of the
        vectors alone, "fp32" or "bf16".
        """
        super().__init__(in_features, n_classes, **options)
        require_one_of("precision", precision, PRODUCT_DTYPES)
        if storage is not None:
            require_one_of("storage", storage, STORAGE)
        dtype = dtype or torch.get_default_dtype()
        if not dtype.is_floating_point:
            raise UserError(f"dtype is {dtype}, must be a floating-point type")
        if sparse:
            raise UserError("sparse: the gradients of whole clusters are dense, it must be False")
        if not div_value >= 1:
            raise UserError(f"div_value is {div_value}, must be at least 1")
        if counts is None:
            known = 1 / (np.arange(n_classes) + 2.7)
        else:
            known = class_counts(counts, n_classes)
        order = np.argsort(-known, kind="stable")
        self.cutoffs = _checked(cutoffs, n_classes) or best_cutoffs(
            known[order], in_features, div_value
        )
        common: dict[str, Any] = {
            "bias": bias,
            "precision": precision,
            "init_range": in_features**-0.5 if init_range is None else init_range,
            "storage": None if storage is None else STORAGE[storage],
            "dtype": dtype,
            "sparse": False,
            "impl": impl,
            "device": device,
        }
        self.precision = precision
        self.head = Softmax(in_features, in_features, self.cutoffs[0] + len(self.cutoffs), **common)
        self.tails = nn.ModuleList(
            Softmax(in_features, cluster_width(in_features, i, div_value), end - begin, **common)
            for i, (begin, end) in enumerate(self._intervals())
        )
        rank = torch.from_numpy(np.argsort(order))
        self.register_buffer("rank", rank.to(self.head.table.weight.device))

    @classmethod
    def from_spec(cls, spec: LayerSpec) -> Self:
        counts = spec.counts
        return cls(spec.in_features, spec.n_classes, counts=counts, **spec.settings, **spec.common)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, cutoffs={self.cutoffs}"

    @property
    def weight(self) -> nn.Parameter:
        """The vectors of the head: of its classes, then of the clusters."""
        return self.head.table.weight

    @property
    def bias(self) -> Tensor | None:
        """The biases of the head."""
        return self.head.bias

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for tail in self._clusters():
            tail.reset_projection()

    def state_was_loaded(self) -> None:
        """Looks at the order that came with the weights."""
        if not torch.equal(self.rank.sort().values.cpu(), torch.arange(self.n_classes)):
            raise UserError("the order of the adaptive layer's classes does not have each once")

    def _intervals(self) -> list[tuple[int, int]]:
        return list(zip(self.cutoffs, [*self.cutoffs[1:], self.n_classes], strict=True))

    def _clusters(self) -> Iterator[Softmax]:
        return (tail for tail in self.tails if isinstance(tail, Softmax))

    def _divided(self, rank: Tensor) -> tuple[Tensor, list[tuple[int, Tensor, Tensor]]]:
        """Ranks (N,) as targets of the head, and (cluster, which of them, targets there)."""
        head, tails = rank, []
        for i, (begin, end) in enumerate(self._intervals()):
            some = ((rank >= begin) & (rank < end)).nonzero()[:, 0]
            head = torch.where((rank >= begin) & (rank < end), self.cutoffs[0] + i, head)
            if len(some):
                tails.append((i, some, rank[some] - begin))
        return head, tails

    # ------------------------------------------------------------------ training

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        states = wide(hidden.reshape(-1, self.in_features))
        head, tails = self._divided(self.rank[target.reshape(-1)])
        value = self.head.objective(states, head)
        for i, some, place in tails:
            value = value.index_add(0, some, self._tail(i).objective(states[some], place))
        return value.view(target.shape)

    def objective_of_labels(
        self, hidden: Tensor, labels: Labels, history: Tensor | None = None
    ) -> Tensor:
        """Among all classes but the example's others."""
        return labels.without_others(self.objective(hidden, labels.target))

    def _tail(self, number: int) -> Softmax:
        tail = self.tails[number]
        assert isinstance(tail, Softmax)
        return tail

    # ------------------------------------------------------------------ exact scoring

    @undisturbed
    @torch.no_grad()
    def target_log_prob(
        self, hidden: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        words = checked_targets(hidden, target, self.n_classes, self.in_features)
        flat = hidden.detach().reshape(-1, self.in_features)
        row = torch.arange(len(flat), device=flat.device)
        return self.pair_log_prob(flat, row, words).view(target.shape)

    @undisturbed
    @torch.no_grad()
    def pair_log_prob(
        self, hidden: Tensor, row: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        """The sums over head and clusters are made once for each state."""
        states = wide(hidden.detach())
        head, tails = self._divided(self.rank[target])
        value = self.head.pairs(states, row, head)
        for i, some, place in tails:
            value[some] += self._tail(i).pairs(states, row[some], place)
        return value

    def exact(
        self,
        hidden: Tensor,
        row: Tensor | None,
        target: Tensor,
        history: Tensor | None = None,
    ) -> Tensor:
        """With gradients where they are wanted."""
        if self._learns(hidden):
            return self.objective(hidden if row is None else hidden[row], target)
        return super().exact(hidden, row, target, history)

    def _learns(self, hidden: Tensor) -> bool:
        own = any(p.requires_grad for p in self.parameters())
        return torch.is_grad_enabled() and (own or hidden.requires_grad)

    @undisturbed
    def log_prob(
        self, hidden: Tensor, classes: Tensor | None = None, history: Tensor | None = None
    ) -> Tensor:
        """With gradients; those of some classes only by all of them."""
        if classes is not None and not self._learns(hidden):
            return super().log_prob(hidden, classes, history)
        states, first = wide(hidden.reshape(-1, self.in_features)), self.cutoffs[0]
        head = torch.log_softmax(self.head.logits(states), 1)
        parts = [head[:, :first]]
        for i, tail in enumerate(self._clusters()):
            inside = torch.log_softmax(tail.logits(tail.states(states)), 1)
            parts.append(inside + head[:, first + i, None])
        found = torch.cat(parts, 1)[:, self.rank].view(*hidden.shape[:-1], self.n_classes)
        if classes is None:
            return found
        return found.gather(-1, classes.expand(*hidden.shape[:-1], classes.shape[-1]))

    @torch.no_grad()
    def log_prob_tiles(
        self, hidden: Tensor, history: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        states = wide(hidden.reshape(-1, self.in_features))
        shorter = [tail.states(states) for tail in self._clusters()]
        sums = [tail.partition(s) for tail, s in zip(self._clusters(), shorter, strict=True)]
        total = self.head.partition(states)
        for first in range(0, self.n_classes, exact.TILE):
            head, tails = self._divided(self.rank[first : first + exact.TILE])
            found = self.head.logits(states, head) - total[:, None]
            for i, some, place in tails:
                found[:, some] += self._tail(i).logits(shorter[i], place) - sums[i][:, None]
            yield first, found


def _checked(cutoffs: Sequence[int], n_classes: int) -> list[int]:
    found = [int(cut) for cut in cutoffs]
    if found and (sorted(set(found)) != found or found[0] < 1 or found[-1] >= n_classes):
        raise UserError(f"cutoffs is {found}, must rise from 1 or more to below {n_classes}")
    return found
