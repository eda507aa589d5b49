"""An output layer whose probabilities are products of choices along the path of a tree.

    log p(w | s) = sum over the nodes above w of log p(the child that leads to w | node, s)

They sum to one by construction, and the probability of one word needs the nodes above it alone, in
training as in exact scoring. :mod:`blackout.ops.tree` has the equation of a node.
:class:`blackout.Hierarchical` and :class:`blackout.Classes` are this layer over their own trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.autograd import path_objective
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Engine
from blackout.ops.plan import TreePlan
from blackout.ops.tree import Tree
from blackout.output import exact
from blackout.output.contract import OutputLayer
from blackout.output.geometry import wide
from blackout.output.labels import Labels
from blackout.output.maxent import Features
from blackout.output.options import require_one_of, takes_options_of
from blackout.output.results import TopK, best_of_tiles
from blackout.output.surroundings import undisturbed
from blackout.output.targets import by_state, checked_classes, checked_targets
from blackout.output.tree_features import log_prob_of_paths
from blackout.output.tree_tiles import Tile
from blackout.output.trees import check_tree, node_masses
from blackout.tables import STORAGE, Table


class TreeSoftmax(OutputLayer):
    """A table of V - 1 vectors, those of the nodes of a tree over the V classes.

    The tree is part of the layer's state: a loaded layer has the saved one's. It is no buffer, so
    that ``DistributedDataParallel`` does not send it round at every step.
    """

    @takes_options_of(OutputLayer)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        tree: Tree,
        *,
        bias: bool = False,
        sparse: bool = True,
        init_range: float | None = None,
        precision: Literal["fp32", "bf16"] = "fp32",
        storage: Literal["fp32", "bf16"] | None = None,
        impl: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        maxent: int = 0,
        maxent_bits: int = 22,
        **options: Any,
    ) -> None:
        """``bias``: whether each vector has a number that is added to its product.
        ``sparse``: whether the table's gradient is row-sparse (``torch.sparse_coo``) or dense.
        ``init_range``: vectors start uniformly in ± this, by default 1 / sqrt(in_features).
        ``precision``: as for the other layers; a path has too few products for bf16 to help, they
        are float32 always. ``impl``: which version of the arithmetic to use
        (:mod:`blackout.ops.dispatch`). ``device``, ``dtype``: as for every module of PyTorch.
        ``storage``: the number format of the table alone, "fp32" or "bf16".
        ``maxent``, ``maxent_bits``: hashed n-gram features of that many words before the target, at
        the nodes of the path, in 2^maxent_bits numbers; every call then takes their ``history``.
        """
        super().__init__(in_features, n_classes, **options)
        require_one_of("precision", precision, ("fp32", "bf16"))
        if storage is not None:
            require_one_of("storage", storage, STORAGE)
        dtype = dtype or torch.get_default_dtype()
        if not dtype.is_floating_point:
            raise UserError(f"dtype is {dtype}, must be a floating-point type")
        if tree.words != n_classes:
            raise UserError(f"the tree has {tree.words} words for {n_classes} classes")
        self.precision, self.impl = precision, impl
        common: dict[str, Any] = {"sparse": sparse, "impl": impl, "device": device}
        limit = in_features**-0.5 if init_range is None else init_range
        kind = dtype if storage is None else STORAGE[storage]
        rows = n_classes - 1
        self.table = Table(rows, in_features, init_range=limit, storage=kind, **common)
        self.biases = Table(rows, None, init_range=0.0, storage=dtype, **common) if bias else None
        self.features: Features | None = None
        if maxent:
            wide_type = torch.promote_types(dtype, torch.float32)
            self.features = Features(maxent, maxent_bits, dtype=wide_type, **common)
            self.history_words = maxent
        self.tree = tree
        """The nodes above each class, as arrays."""
        self._tiles: dict[int, Tile] = {}
        self._follow()

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, bias={self.bias is not None}"

    @property
    def weight(self) -> nn.Parameter:
        """The vectors of the nodes, (n_classes - 1, in_features)."""
        return self.table.weight

    @property
    def bias(self) -> nn.Parameter | None:
        """(n_classes - 1,)"""
        return None if self.biases is None else self.biases.weight

    @property
    def sparse(self) -> bool:
        return self.table.sparse

    def engine(self, hidden: Tensor) -> Engine:
        """The arithmetic for these hidden states and this table."""
        more = () if self.bias is None else (self.bias.dtype,)
        return engine_for(self.impl, hidden.device, hidden.dtype, self.weight.dtype, *more)

    def state_was_loaded(self) -> None:
        """Looks at the tree that came with the weights."""
        self._tiles.clear()
        check_tree(self.tree)

    def _follow(self) -> None:
        """The tree goes where the table goes, but for a table that is nowhere."""
        device = self.weight.device
        if device.type != "meta" and self.tree.up.device != device:
            self.tree = Tree(*(part.to(device) for part in self.tree))
            self._tiles.clear()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._follow()
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[no-untyped-call]
        for name, part in self.tree._asdict().items():
            destination[f"{prefix}tree.{name}"] = part

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        rest = dict(state_dict)
        for name, part in self.tree._asdict().items():
            key = f"{prefix}tree.{name}"
            found = rest.pop(key, None)
            if found is None:
                missing_keys.append(key)
            elif found.shape != part.shape or found.dtype != part.dtype:
                error_msgs.append(f"{key} must be {tuple(part.shape)}, {part.dtype}")
            else:
                part.copy_(found)
        super()._load_from_state_dict(  # type: ignore[no-untyped-call]
            rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self.state_was_loaded()

    def expect_blocks(self, unigram: Tensor, steps: int, streams: int) -> None:
        masses = node_masses(self.tree, unigram) / unigram.sum().cpu()
        per_row = torch.repeat_interleave(masses, self.tree.first.cpu().diff().long())
        self.table.update_rate = per_row * (streams * steps)
        if self.biases is not None:
            self.biases.update_rate = self.table.update_rate

    def plan(self) -> TreePlan | None:
        """Of row-sparse gradients; where a layer of one's own does nothing else."""
        own = type(self)
        plain = (
            self.sparse
            and self.features is None
            and own.forward is OutputLayer.forward
            and own.objective is TreeSoftmax.objective
        )
        if not plain:
            return None
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        return TreePlan(self.weight, self.bias, self.tree, dtype)

    # ------------------------------------------------------------------ along a path

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        states = wide(hidden.reshape(-1, self.in_features))
        return self._along_paths(states, target.reshape(-1), history).view(target.shape)

    def objective_of_labels(
        self, hidden: Tensor, labels: Labels, history: Tensor | None = None
    ) -> Tensor:
        """Among all classes but the example's others."""
        return labels.without_others(self.objective(hidden, labels.target, None, history))

    def _along_paths(self, states: Tensor, target: Tensor, history: Tensor | None) -> Tensor:
        """log p (N,) with gradients."""
        biases = self.biases
        if self.features is not None:
            past = None if history is None else history.reshape(len(target), -1)
            return log_prob_of_paths(
                states, target, past, self.tree, self.table, biases, self.features
            )
        gradients = (self.table.row_gradient, None if biases is None else biases.row_gradient)
        engine = self.engine(states)
        return path_objective(states, self.weight, self.bias, self.tree, target, engine, gradients)

    @undisturbed
    @torch.no_grad()
    def target_log_prob(
        self, hidden: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        words = checked_targets(hidden, target, self.n_classes, self.in_features)
        states = wide(hidden.detach().reshape(-1, self.in_features))
        engine = self.engine(states)
        if self.features is not None:
            return self._along_paths(states, words, history).view(target.shape)
        found = engine.path_log_prob(states, self.weight, self.bias, self.tree, words)
        return found.view(target.shape)

    def exact(
        self,
        hidden: Tensor,
        row: Tensor | None,
        target: Tensor,
        history: Tensor | None = None,
    ) -> Tensor:
        """With gradients where they are wanted."""
        states = hidden if row is None else hidden[row]
        if row is not None and history is not None:
            history = history[row]
        own = any(p.requires_grad for p in self.parameters())
        if torch.is_grad_enabled() and (own or hidden.requires_grad):
            return self.objective(states, target, None, history)
        return self.target_log_prob(states, target, history)

    # ------------------------------------------------------------------ all words

    def log_prob_tiles(
        self, hidden: Tensor, history: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        states = wide(hidden.reshape(-1, self.in_features))
        for first in range(0, self.n_classes, exact.TILE):
            tile = self._tile(first)
            rows = tile.rows
            bias = None if self.biases is None else self.biases(rows)
            logits = self.engine(states).logits(states, self.table(rows), bias)
            if self.features is not None:
                logits = logits + self.features.at(history, rows.expand(len(states), -1))
            yield first, tile.log_prob(logits)

    def _tile(self, first: int) -> Tile:
        """The nodes above the words of a tile, looked up once."""
        known = self._tiles.get(first)
        if known is None or known.order.device != self.tree.up.device:
            known = Tile.of(self.tree, first, min(first + exact.TILE, self.n_classes))
            self._tiles[first] = known
        return known

    @undisturbed
    def log_prob(
        self, hidden: Tensor, classes: Tensor | None = None, history: Tensor | None = None
    ) -> Tensor:
        """With gradients. Of some classes along their paths, where those are few."""
        if classes is None:
            return super().log_prob(hidden, None, history)
        classes = checked_classes(classes, hidden.shape[:-1], self.n_classes)
        states = wide(hidden.reshape(-1, self.in_features))
        wanted = by_state(classes).expand(len(states), -1)
        row = torch.arange(len(states), device=states.device).repeat_interleave(wanted.shape[1])
        past = None if history is None else history.reshape(len(states), -1)
        found = self.exact(states, row, wanted.reshape(-1), past)
        return found.view(*hidden.shape[:-1], classes.shape[-1])

    @undisturbed
    @torch.no_grad()
    def topk(
        self,
        hidden: Tensor,
        k: int,
        classes: Tensor | None = None,
        history: Tensor | None = None,
    ) -> TopK:
        if classes is not None:
            return super().topk(hidden, k, classes, history)
        states = hidden.reshape(-1, self.in_features)
        some = max(1, exact.LOGITS // min(4 * exact.TILE, 4 * self.n_classes))
        past = None if history is None else history.reshape(len(states), -1)
        found = []
        for begin in range(0, max(len(states), 1), some):
            here = slice(begin, begin + some)
            tiles = self.log_prob_tiles(states[here], None if past is None else past[here])
            found.append(best_of_tiles(tiles, k))
        shape = (*hidden.shape[:-1], k)
        return TopK(*(torch.cat(parts).view(shape) for parts in zip(*found, strict=True)))
