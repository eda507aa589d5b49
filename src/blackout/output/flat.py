"""The flat softmax: one vector for each class, p(w | s) proportional to exp(<theta_w, s> + b_w).

What the losses over it share: the table of word vectors, and exact evaluation in tiles of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from blackout.errors import UserError
from blackout.ops import reference
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Engine, Scalar
from blackout.output import exact
from blackout.output.contract import OutputLayer
from blackout.output.divided.scores import DividedScores, divided_top_logits, require_same_division
from blackout.output.exact import Scores
from blackout.output.geometry import Geometry, wide
from blackout.output.maxent import Features
from blackout.output.options import require_number, require_one_of, takes_options_of
from blackout.output.results import TopK, best_of_all, best_of_tiles
from blackout.output.surroundings import undisturbed
from blackout.output.targets import by_state, check_states, checked_classes, checked_targets
from blackout.ranks import Ranks, divide
from blackout.tables import STORAGE, ShardedTable, Table

PRODUCT_DTYPES = {"fp32": None, "bf16": torch.bfloat16}


class FlatSoftmax(OutputLayer):
    """A table of ``n_classes`` word vectors, scored against hidden states.

    Logits, log-probabilities and losses are float32 or wider, whatever the table and the hidden
    states are.
    """

    @takes_options_of(OutputLayer)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        bias: bool = False,
        sparse: bool = True,
        init_range: float | None = None,
        precision: Literal["fp32", "bf16"] = "fp32",
        storage: Literal["fp32", "bf16"] | None = None,
        impl: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        normalize: bool = False,
        temperature: float | None = None,
        tied_to: nn.Embedding | None = None,
        maxent: int = 0,
        maxent_bits: int = 22,
        process_group: ProcessGroup | Ranks | None = None,
        strata: int | None = None,
        **options: Any,
    ) -> None:
        """``bias``: whether each class has a number that is added to its logit.
        ``sparse``: whether the table's gradient is row-sparse (``torch.sparse_coo``) or dense.
        ``init_range``: word vectors start uniformly in ± this, by default 1 / sqrt(in_features).
        ``precision``: the number format of the matrix products, "fp32" or "bf16".
        ``impl``: which version of the arithmetic to use (:mod:`blackout.ops.dispatch`).
        ``device``, ``dtype``: as for every module of PyTorch. ``storage``: the number format of the
        table alone, "fp32" or "bf16".
        ``normalize``: whether logits are cosines, of state and word vector, both divided by their
        norms. ``temperature``: what logits are divided by before the bias is added, in training and
        evaluation alike; by default 0.1 for cosines, else 1.
        ``tied_to``: an embedding whose table is this layer's too, and says whether gradients are
        sparse; its values are as they are, and ``init_range`` has no meaning.
        ``maxent``: how many words before the target have hashed n-gram features, added to the
        logits (:mod:`blackout.output.maxent`); every call then takes their ``history``.
        ``maxent_bits``: the features lie in 2^maxent_bits numbers.
        ``process_group``: processes of ``torch.distributed`` that divide the table: each holds the
        rows of its strata (w mod ``strata``, by default 64) and all call the layer together, with
        examples of their own. ``loss`` is that of the rank's examples; gradients of rows are those
        of the mean of the ranks' losses, added up already. Not to be put inside
        DistributedDataParallel; evaluation has no gradients.
        """
        super().__init__(in_features, n_classes, **options)
        require_one_of("precision", precision, PRODUCT_DTYPES)
        if storage is not None:
            require_one_of("storage", storage, STORAGE)
        dtype = dtype or torch.get_default_dtype()
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise UserError(f"dtype is {dtype}, must be a floating-point type")
        if init_range is not None:
            require_number("init_range", init_range, lambda x: 0 <= x < math.inf, "0 or more")
        self.geometry = Geometry.of(normalize, temperature)
        self.precision = precision
        self.impl = impl
        if process_group is not None and not self.divisible:
            raise UserError(f"{type(self).__name__} cannot be divided: it takes no process_group")
        self.ranks = Ranks.of(process_group)
        self.ranks.require_same(
            {"in_features": in_features, "n_classes": n_classes, "bias": bias, "sparse": sparse}
            | {"precision": precision, "storage": storage, "dtype": dtype, "strata": strata}
            | {"normalize": normalize, "temperature": temperature, "init_range": init_range}
        )
        self.division = divide(n_classes, self.ranks, strata)
        self.divided = process_group is not None
        if tied_to is None:
            self.table = self._new_table(
                in_features,
                init_range=in_features**-0.5 if init_range is None else init_range,
                storage=dtype if storage is None else STORAGE[storage],
                sparse=sparse,
                device=device,
            )
        else:
            self.table = Table.of(tied_to, n_classes, in_features, impl)
            require_same_division(self.table, self.division, self.divided)
            sparse, device = self.table.sparse, self.table.weight.device
        self.biases = (
            self._new_table(None, init_range=0.0, storage=dtype, sparse=sparse, device=device)
            if bias
            else None
        )
        self.features: Features | None = None
        if maxent and self.divided:
            raise UserError("maxent: hashed features are not divided over processes yet")
        if maxent:
            self.features = Features(
                maxent,
                maxent_bits,
                sparse=sparse,
                impl=impl,
                dtype=torch.promote_types(dtype, torch.float32),
                device=device,
            )
            self.history_words = maxent

    def _new_table(self, size: int | None, **options: Any) -> Table:
        """One row for each class: all of them here, or this rank's."""
        if self.divided:
            return ShardedTable(
                self.n_classes,
                size,
                self.ranks,
                strata=self.division.strata,
                impl=self.impl,
                **options,
            )
        return Table(self.n_classes, size, impl=self.impl, **options)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, bias={self.bias is not None}"

    @property
    def weight(self) -> nn.Parameter:
        """The word vectors, (n_classes, in_features); with a process group those of this rank."""
        return self.table.weight

    @property
    def bias(self) -> nn.Parameter | None:
        """(n_classes,)"""
        return None if self.biases is None else self.biases.weight

    @property
    def sparse(self) -> bool:
        return self.table.sparse

    @property
    def product_dtype(self) -> torch.dtype:
        """The dtype of the matrix products."""
        return PRODUCT_DTYPES[self.precision] or torch.promote_types(
            self.table.weight.dtype, torch.float32
        )

    def engine(self, hidden: Tensor) -> Engine:
        """The arithmetic for these hidden states and this table."""
        weight, bias = self.weight, self.bias
        if torch.compiler.is_exporting():
            return reference  # plain PyTorch, all that a graph can hold
        if weight.is_meta:
            raise UserError(
                "the layer is on the meta device and has no numbers yet: load_state_dict(..., "
                "assign=True), or to_empty and reset_parameters, gives it some"
            )
        if hidden.device != weight.device:
            raise UserError(f"hidden is on {hidden.device}, the layer on {weight.device}")
        more = () if bias is None else (bias.dtype,)
        return engine_for(self.impl, hidden.device, hidden.dtype, weight.dtype, *more)

    def expect_blocks(self, unigram: Tensor, steps: int, streams: int) -> None:
        rate = self.update_rate(unigram, steps, streams)
        self.table.update_rate = rate
        if self.biases is not None:
            self.biases.update_rate = rate

    def update_rate(self, unigram: Tensor, steps: int, streams: int) -> Tensor:
        """How often a block is expected to touch the row of each class, (V,)."""
        return unigram * (streams * steps)

    # ------------------------------------------------------------------ exact scoring

    def scores(self, states: Tensor, history: Tensor | None = None) -> Scores | DividedScores:
        """The logits of all classes, for states (N, h) that :meth:`states` gave."""
        plain = self.scores_of_vectors(states)
        if self.features is None or not isinstance(plain, Scores):
            return plain
        past = None if history is None else history.reshape(len(states), -1)
        return plain._replace(windows=self.features.windows(past))

    def scores_of_vectors(self, states: Tensor) -> Scores | DividedScores:
        """The logits without features of histories."""
        engine = self.engine(states)
        here = Scores(self.weight, self.bias, self.geometry, self.product_dtype, engine)
        return DividedScores(here, self.ranks, self.division) if self.divided else here

    def states(self, hidden: Tensor) -> Tensor:
        """Hidden states (N, h) as the class vectors meet them, float32 or wider."""
        check_states(hidden, self.in_features)
        return wide(self.geometry.states(hidden.reshape(-1, self.in_features)))

    @undisturbed
    @torch.no_grad()
    def target_log_prob(
        self, hidden: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        words = checked_targets(hidden, target, self.n_classes, self.in_features)
        flat = hidden.detach().reshape(-1, self.in_features)
        return self.pair_log_prob(flat, None, words, history).view(target.shape)

    @undisturbed
    @torch.no_grad()
    def pair_log_prob(
        self, hidden: Tensor, row: Tensor | None, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        """The sum over the vocabulary is made once for each state."""
        states = self.states(hidden.detach())
        scores = self.scores(states, history)
        partition = scores.partition(states)
        if row is not None:
            states, partition, scores = states[row], partition[row], scores.of(row)
        return scores.target_logit(states, target) - partition

    @undisturbed
    @torch.no_grad()
    def unnormalised_log_prob(
        self, hidden: Tensor, row: Tensor | None, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        """u less what log Z is drawn to."""
        if not self.self_normalised:
            return super().unnormalised_log_prob(hidden, row, target, history)
        states = self.states(hidden.detach())
        scores = self.scores(states, history)
        if row is not None:
            states, scores = states[row], scores.of(row)
        return scores.target_logit(states, target.reshape(-1)).view(target.shape) - self.log_z_goal

    @property
    def log_z_goal(self) -> Scalar:
        """What training draws log Z to, where it does."""
        return 0.0

    def exact(
        self,
        hidden: Tensor,
        row: Tensor | None,
        target: Tensor,
        history: Tensor | None = None,
    ) -> Tensor:
        """With gradients where they are wanted; those of the table are dense."""
        if not self._learns(hidden):
            return self.pair_log_prob(hidden, row, target, history)
        states = self.states(hidden)
        partition = self.scores(states, history).partition_with_gradients(states)
        if row is not None:
            states, partition = states[row], partition[row]
            history = None if history is None else history[row]
        logit = (states * self.geometry.vectors(self.table(target))).sum(1)
        if self.biases is not None:
            logit = logit + self.biases(target)
        if self.features is not None:
            logit = logit + self.features.at(history, target)
        return logit - partition

    def _learns(self, hidden: Tensor) -> bool:
        if self.divided:
            return False
        own = any(p.requires_grad for p in self.parameters())
        return torch.is_grad_enabled() and (own or hidden.requires_grad)

    def logits(self, hidden: Tensor, history: Tensor | None = None) -> Tensor:
        """u of all classes, (..., n_classes), float32 or wider."""
        states = self.states(hidden)
        if self.geometry.normalize or self.divided or self.features is not None:
            scores = self.scores(states, history)
            found = torch.cat([tile for _, tile in scores.logit_tiles(states)], 1)
        else:
            found = self.engine(states).logits(states, self.weight, self.bias)
        return found.view(*hidden.shape[:-1], self.n_classes)

    @undisturbed
    def log_prob(
        self, hidden: Tensor, classes: Tensor | None = None, history: Tensor | None = None
    ) -> Tensor:
        """With gradients; those of some classes only by the table as a whole too."""
        if classes is None:
            return torch.log_softmax(self.logits(hidden, history), -1)
        classes = checked_classes(classes, hidden.shape[:-1], self.n_classes)
        states = self.states(hidden)
        scores = self.scores(states, history)
        learns = self._learns(hidden)
        partition = (scores.partition_with_gradients if learns else scores.partition)(states)
        past = None if history is None else history.reshape(len(states), -1)
        found = self._some_logits(states, classes, past) - partition[:, None]
        return found.view(*hidden.shape[:-1], classes.shape[-1])

    def _some_logits(self, states: Tensor, classes: Tensor, history: Tensor | None) -> Tensor:
        """u (N, n) of classes (n,), the same for all states (N, h), or (..., n), their own."""
        found = self._some_products(states, classes)
        if self.features is None:
            return found
        own = by_state(classes).expand(len(states), -1)
        return found + self.features.at(history, own)

    def _some_products(self, states: Tensor, classes: Tensor) -> Tensor:
        if classes.ndim > 1:
            classes = by_state(classes)
            rows = self.geometry.vectors(self.table(classes))  # (N, n, h)
            found = torch.einsum("nh,nkh->nk", states, rows.to(states.dtype))
            return found if self.biases is None else found + self.biases(classes)
        rows = self.geometry.vectors(self.table(classes))
        bias = None if self.biases is None else self.biases(classes)
        return self.engine(states).logits(states, rows, bias)

    def log_prob_tiles(
        self, hidden: Tensor, history: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        states = self.states(hidden)
        scores = self.scores(states, history)
        with torch.no_grad():
            partition = scores.partition(states)
        for first, logits in scores.logit_tiles(states):
            yield first, logits - partition[:, None]

    @undisturbed
    @torch.no_grad()
    def topk(
        self,
        hidden: Tensor,
        k: int,
        classes: Tensor | None = None,
        history: Tensor | None = None,
    ) -> TopK:
        if torch.compiler.is_exporting():  # a graph has no pieces whose number follows the states
            return best_of_all(self.log_prob(hidden, classes, history), k, classes)
        values, indices = self._top_logits(hidden, k, classes, history)
        states = self.states(hidden)
        partition = self.scores(states, history).partition(states)
        return TopK(values - partition.view(*hidden.shape[:-1], 1), indices)

    @undisturbed
    @torch.no_grad()
    def predict(
        self, hidden: Tensor, classes: Tensor | None = None, history: Tensor | None = None
    ) -> Tensor:
        if torch.compiler.is_exporting():
            return self.topk(hidden, 1, classes, history).indices[..., 0]
        return self._top_logits(hidden, 1, classes, history).indices[..., 0]

    def _top_logits(
        self, hidden: Tensor, k: int, classes: Tensor | None, history: Tensor | None
    ) -> TopK:
        """The k largest logits and their classes, some states and a tile of classes at a time."""
        states = self.states(hidden)
        past = None if history is None else history.reshape(len(states), -1)
        if classes is not None:
            classes = checked_classes(classes, hidden.shape[:-1], self.n_classes)
        if self.divided and classes is None:
            best = divided_top_logits(self.scores(states), states, k)  # type: ignore[arg-type]
            return TopK(*(part.view(*hidden.shape[:-1], k) for part in best))
        own = classes is not None and classes.ndim > 1  # each state has its own
        width = self.in_features if own else 1
        some = max(1, exact.LOGITS // (width * min(exact.TILE, self.n_classes)))
        if self.divided:  # ranks ask each other for rows, and must do so equally often
            some = max(1, len(states))
        found = []
        for first in range(0, max(len(states), 1), some):
            asked, here = classes, slice(first, first + some)
            if classes is not None and own:
                asked = by_state(classes)[here]
            tiles = self._logit_tiles(states[here], asked, None if past is None else past[here])
            found.append(best_of_tiles(tiles, k))
        values, indices = (torch.cat(parts) for parts in zip(*found, strict=True))
        if classes is not None:
            wanted = by_state(classes)
            indices = wanted.gather(1, indices) if own else classes[indices]
        shape = (*hidden.shape[:-1], k)
        return TopK(values.view(shape), indices.view(shape))

    def _logit_tiles(
        self, states: Tensor, classes: Tensor | None, history: Tensor | None
    ) -> Iterator[tuple[int, Tensor]]:
        """(first place, logits (N, n)) of all classes or of some, tile by tile."""
        if classes is None:
            yield from self.scores(states, history).logit_tiles(states)
            return
        for first in range(0, max(classes.shape[-1], 1), exact.TILE):
            some = classes[..., first : first + exact.TILE]
            yield first, self._some_logits(states, some, history)
