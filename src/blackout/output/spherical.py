"""The spherical softmax, trained exactly at a cost that does not know the number of classes.

    p_w = (u_w² + epsilon) / (q + V epsilon),   u = W s,   q = sum over all classes of u²

The sum q is sᵀ Q s with Q = WᵀW, h × h, which is kept beside W (Vincent, de Brébisson, Bouthillier
2015). The gradient of a block by W is W M, with M = sum of c s sᵀ, and a row for each target: W is
kept as a product R U of a table and an h × h matrix, so that the step W <- W (I - M) + rows is

    U <- U (I - M),    R[targets] += rows U⁻¹,    Q from Q, M and the targets' rows,

O(h²) a word and O(h³) a block. It is plain SGD, taken in ``backward()`` by the layer itself: no
optimiser sees R or U, and no other can be used.

U shrinks along states that are seen often. Now and then its singular values are looked at; those
that have left [1/limit, limit] are moved into R, O(V h) for each of them, which leaves W as it is.
Q is made anew from the table before each evaluation.

>>> layer = Spherical(4, 100, lr=0.1)
>>> output, loss = layer(torch.randn(8, 4), torch.randint(100, (8,)))
>>> loss.backward()  # and the layer has learnt
>>> layer.log_prob(torch.randn(2, 4)).exp().sum(1).round(decimals=3)
tensor([1., 1.])
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.autograd import refuse_second_derivatives
from blackout.output.contract import LayerSpec, OutputLayer
from blackout.output.geometry import wide
from blackout.output.options import takes_options_of
from blackout.output.targets import checked_targets
from blackout.tables import Table

_TILE = 8192  # classes scored together
_LONGEST = 0.5  # of a step, as the norm of M: above 1 it could turn a direction round
_LOOK = 64  # updates between two looks at the singular values of U
_LIMIT = 16.0  # they stay within this and its inverse


class Spherical(OutputLayer):
    """A table whose classes are scored by the squares of their products."""

    rows: Tensor  # R, (V, h)
    mix: Tensor  # U, (h, h)
    gram: Tensor  # Q, (h, h), float64
    updates: Tensor  # (), how many there were

    @takes_options_of(OutputLayer)
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        lr: float = 0.1,
        epsilon: float = 0.01,
        init_range: float | None = None,
        impl: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        """``lr``: of the layer's own SGD on the loss as it is given to ``backward``.
        ``epsilon``: added to each square, so that no class is impossible.
        ``init_range``: W starts uniformly in ± this, by default 1 / sqrt(in_features).
        """
        super().__init__(in_features, n_classes, **options)
        for name, value in (("lr", lr), ("epsilon", epsilon)):
            if not 0 < value < math.inf:
                raise UserError(f"spherical: {name} is {value}, must be above 0")
        dtype = dtype or torch.get_default_dtype()
        self.lr, self.epsilon, self.rate = lr, epsilon, 1.0
        first = Table(
            n_classes,
            in_features,
            init_range=in_features**-0.5 if init_range is None else init_range,
            storage=dtype,
            impl=impl,
            device=device,
        )
        made: dict[str, Any] = {"device": first.weight.device}
        self.register_buffer("rows", first.weight.detach())
        self.register_buffer("mix", torch.eye(in_features, dtype=dtype, **made))
        self.register_buffer("gram", torch.eye(in_features, dtype=torch.float64, **made))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64, **made))
        self._stale = False
        self.renew_gram()

    @classmethod
    def from_spec(cls, spec: LayerSpec) -> Self:
        common = dict(spec.common)
        for name, only in (("precision", "fp32"), ("storage", "fp32"), ("bias", False)):
            if common.pop(name, only) != only:
                raise UserError(f"loss spherical: {name} must be {only}")
        common.pop("ranks", None)
        settings = {name.removeprefix("spherical_"): v for name, v in spec.settings.items()}
        return cls(spec.in_features, spec.n_classes, **settings, **common)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, lr={self.lr}, epsilon={self.epsilon}"

    @property
    def weight(self) -> Tensor:
        """W = R U, (n_classes, in_features), as a new array."""
        return self.rows @ self.mix

    def reset_parameters(self) -> None:
        raise UserError("a spherical layer gets its initial values when it is made")

    def set_rate(self, rate: float) -> None:
        """What ``lr`` is multiplied with from now on."""
        self.rate = rate

    # ------------------------------------------------------------------ training

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        """log p of each target; its backward pass is a step of SGD."""
        states = wide(hidden).reshape(-1, self.in_features)
        anchor = torch.zeros((), device=states.device, requires_grad=True)  # states need not learn
        value: Tensor = _Objective.apply(states, anchor, target.reshape(-1), self)
        return value.view(target.shape)

    def _parts(self, states: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """u of the targets (N,), q + V epsilon (N,) and Q s (N, h)."""
        turned = states.to(wide(self.rows[:0]).dtype) @ wide(self.mix).mT
        logit = (wide(self.rows[target]) * turned).sum(1).double()
        product = states.double() @ self.gram
        total = (product * states).sum(1).clamp(min=0) + self.n_classes * self.epsilon
        return logit, total, product

    @torch.no_grad()
    def learn(self, states: Tensor, target: Tensor, grad: Tensor) -> None:
        """One step: W <- W - lr sum of grad dJ/dW, for states (N, h) and gradients (N,) of J."""
        logit, total, _ = self._parts(states, target)
        step = -self.lr * self.rate * grad.double()
        s = states.double()
        shrink = (s * (step * 2 / total)[:, None]).mT @ s  # M, (h, h)
        norm = float(torch.linalg.matrix_norm(shrink))
        scale = min(1.0, _LONGEST / max(norm, 1e-300))
        pull = scale * step * 2 * logit / (logit.square() + self.epsilon)
        which, place = target.unique(return_inverse=True)
        added = s.new_zeros(len(which), s.shape[1]).index_add_(0, place, pull[:, None] * s)
        keep = torch.eye(len(shrink), dtype=s.dtype, device=s.device) - scale * shrink
        before = (self.rows[which] @ self.mix).double() @ keep  # the targets' rows of W (I - M)
        gram = keep @ self.gram @ keep
        cross = before.mT @ added
        self.gram.copy_(gram + cross + cross.mT + added.mT @ added)
        mix = self.mix.double() @ keep
        self.mix.copy_(mix)
        inverse = torch.linalg.solve(self.mix.double().mT, added.mT).mT
        self.rows.index_add_(0, which, inverse.to(self.rows.dtype))
        self.updates += 1
        self._stale = True
        if int(self.updates) % _LOOK == 0:
            self.balance()

    @torch.no_grad()
    def balance(self, limit: float = _LIMIT) -> int:
        """Moves singular values of U that have left [1/limit, limit] into R; how many there were.

        With U = P S Tᵀ and D = S where it is moved, else 1: R <- R P D Pᵀ, U <- P D⁻¹ S Tᵀ.
        """
        left, values, right = torch.linalg.svd(self.mix.double())
        moved = (values > limit) | (values < 1 / limit)
        count = int(moved.sum())
        if count:
            axes = left[:, moved].to(self.rows.dtype)
            change = axes * (values[moved] - 1).to(axes.dtype)
            for tile in self.rows.split(_TILE):
                tile += (tile @ axes) @ change.mT
            self.mix.copy_((left * torch.where(moved, 1, values)) @ right)
        return count

    @torch.no_grad()
    def renew_gram(self) -> None:
        """Q = WᵀW from the table itself: O(V h²)."""
        mix, inner = self.mix.double(), torch.zeros_like(self.gram)
        for tile in self.rows.split(_TILE):
            tile = tile.double()
            inner += tile.mT @ tile
        self.gram.copy_(mix.mT @ inner @ mix)
        self._stale = False

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """A cast changes the table's type; the sum over it stays float64, and is made again."""
        super()._apply(fn, recurse)
        if self.gram.dtype != torch.float64:
            self.gram = self.gram.double()
            if not self.gram.is_meta:
                self.renew_gram()
        return self

    def train(self, mode: bool = True) -> Self:
        """Before an evaluation the sum is made exact."""
        if not mode and self._stale:
            self.renew_gram()
        return super().train(mode)

    # ------------------------------------------------------------------ exact scoring

    @torch.no_grad()
    def target_log_prob(
        self, hidden: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        """O(h²) a word, whatever the number of classes."""
        words = checked_targets(hidden, target, self.n_classes, self.in_features)
        states = wide(hidden).reshape(-1, self.in_features)
        logit, total, _ = self._parts(states, words)
        value = (logit.square() + self.epsilon).log() - total.log()
        return value.to(states.dtype).view(target.shape)

    def exact(
        self,
        hidden: Tensor,
        row: Tensor | None,
        target: Tensor,
        history: Tensor | None = None,
    ) -> Tensor:
        """With gradients by the states; the table learns by itself, and only while training."""
        states = hidden if row is None else hidden[row]
        if self.training or not (torch.is_grad_enabled() and states.requires_grad):
            return self.target_log_prob(states, target, history)
        return self.objective(states, target)

    @torch.no_grad()
    def log_prob_tiles(
        self, hidden: Tensor, history: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        states = wide(hidden)
        turned = states.to(wide(self.rows[:0]).dtype) @ wide(self.mix).mT
        product = states.double() @ self.gram
        total = (product * states).sum(1).clamp(min=0) + self.n_classes * self.epsilon
        for first in range(0, self.n_classes, _TILE):
            logits = turned @ wide(self.rows[first : first + _TILE]).mT
            log_square = (logits.square() + self.epsilon).log()
            yield first, log_square - total.log()[:, None].to(logits.dtype)


class _Objective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, anchor: Tensor, target: Tensor, layer: Spherical
    ) -> Tensor:
        ctx.save_for_backward(states, target)
        ctx.layer = layer
        logit, total, _ = layer._parts(states, target)
        return ((logit.square() + layer.epsilon).log() - total.log()).to(states.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states, target = ctx.saved_tensors
        layer = ctx.layer
        if layer.training:  # what is learned below is not there any more for another pass
            refuse_second_derivatives()
        logit, total, product = layer._parts(states, target)
        pull = 2 * logit / (logit.square() + layer.epsilon)
        own = (wide(layer.rows[target]) @ wide(layer.mix)).double()
        d_states = grad.double()[:, None] * (pull[:, None] * own - 2 * product / total[:, None])
        if layer.training:
            layer.learn(states, target, grad)
        return d_states.to(states.dtype), None, None, None
