"""What a proposal is: where the samples of a training step come from, and with which chance.

A proposal draws K words for each group of a block and says log Q of any word in such a draw. The
losses subtract log Q from the logits, so every proposal whose densities are right trains the same
model; a good one does it with fewer samples.

One of your own is a subclass with three methods:

>>> class Uniform(Proposal):
...     def sample(self, seed, step, groups, samples, impl):
...         bits = random_bits(seed, step, len(groups.target), samples, groups.target.device)
...         return random_below(bits, self.n_words)
...     def log_density(self, words, groups):
...         return torch.full(words.shape, -math.log(self.n_words), dtype=torch.float64)
...     def marginal(self):
...         return torch.full((self.n_words,), 1 / self.n_words, dtype=torch.float64)
>>> from blackout.ops.reference import random_below, random_bits
>>> drawn = Uniform(9).draw(seed=1, step=0, target=torch.tensor([[3, 5]]), samples=4)
>>> drawn.samples.shape, drawn.log_q_target.exp()
(torch.Size([1, 4]), tensor([[0.1111, 0.1111]], dtype=torch.float64))
"""

from __future__ import annotations

import math  # noqa: F401  (the example above)
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.engine import Scalar


class Groups(NamedTuple):
    """The words of a block in G groups of M; the words of a group share a sample set."""

    target: Tensor  # (G, M)
    history: Tensor | None = None  # (G, M, n), the words before each target, the latest first
    mask: Tensor | None = None  # (G, M), False where there is no word
    states: Tensor | None = None  # (G, M, h), where a proposal looks at them


class Draw(NamedTuple):
    """A sample set for each group, and log Q of the words in it and of the targets."""

    samples: Tensor  # (G, K)
    log_q_samples: Tensor  # (G, K)
    log_q_target: Tensor  # (G, M)


class Proposal(nn.Module, ABC):
    """Draws are a pure function of (seed, step, group, place).

    So they are the same whatever the threads and devices, and a resumed run goes on with the same
    sequence.

    Tables are plain attributes, no buffers: a layer that is cast keeps them as they are, and
    ``DistributedDataParallel`` does not send them round at every step. Those named in ``tables``
    are part of the layer's state all the same, as 64 bits a number, which no cast of a state
    changes either: a layer that is loaded draws what the saved one would have drawn.
    """

    tables: ClassVar[dict[str, torch.dtype]] = {}
    """Attributes that are saved: float64 or int64, of any length; not those that are None."""
    learned: ClassVar[frozenset[str]] = frozenset()
    """Those among them that training changes."""
    one_a_word: ClassVar[frozenset[str]] = frozenset()
    """Those that have a number for each word: a state of another vocabulary is refused."""

    history_words = 0
    """Words before each target that it looks at."""
    reads_text = False
    """Whether :meth:`read_text` wants the training text before the first draw."""
    looks_at_states = False
    """Whether it draws by the hidden states of the block, and wants :meth:`see_rows`."""
    follows_model = False
    """Whether :meth:`adapt` wants to see the model from time to time."""

    def __init__(self, n_words: int) -> None:
        super().__init__()
        self.n_words = n_words
        self._saved = set(self.tables)
        self._distinct: dict[int, float] = {}
        self._device = torch.device("cpu")

    def __len__(self) -> int:
        return self.n_words

    @abstractmethod
    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        """(G, samples) words, drawn with replacement."""

    @abstractmethod
    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        """log of the chance of words (G, n) in a draw for their group."""

    @abstractmethod
    def marginal(self) -> Tensor:
        """How often a draw is expected to be each word (V,), whatever the group."""

    def distinct_share(self, samples: int) -> float:
        """How many different words ``samples`` draws are expected to give, for each of them.

        >>> from blackout.proposals import UnigramProposal
        >>> UnigramProposal(torch.ones(2), alpha=1.0).distinct_share(2)  # 2 or, as often, 1
        0.75
        """
        if samples not in self._distinct:
            found = -torch.expm1(samples * torch.log1p(-self.marginal()))
            self._distinct[samples] = float(found.sum()) / samples
        return self._distinct[samples]

    def read_text(self, context: ArrayLike, follower: ArrayLike) -> None:
        """Takes the pairs of a text: ``follower`` (N,) comes after ``context`` (N,)."""

    def adapt(self, root_mean_square: Tensor) -> None:
        """Takes the model's sqrt(mean p²) (V,) over some hidden states, up to a factor."""

    def see_rows(self, weight: Tensor, step: Scalar) -> None:
        """Looks at the class vectors (V, h) before the draws of a step."""

    def save_what_is_learned(self) -> None:
        """Leaves out of the state what the owner of the layer keeps anyway, such as counts."""
        self._saved = set(self.learned)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[no-untyped-call]
        for name in self.tables:
            if name in self._saved and getattr(self, name) is not None:
                destination[prefix + name] = getattr(self, name).view(torch.int64)

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
        self._distinct.clear()
        for name, dtype in self.tables.items():
            found, now = rest.pop(prefix + name, None), getattr(self, name)
            if found is None:
                if name in self._saved and now is not None:
                    missing_keys.append(prefix + name)
            elif found.dtype != torch.int64:
                error_msgs.append(f"{prefix + name} is {found.dtype}, must be torch.int64")
            elif name in self.one_a_word and found.shape != (self.n_words,):
                shape = tuple(found.shape)
                error_msgs.append(f"size mismatch for {prefix + name}: {shape}, not {now.shape}")
            else:
                value = found.detach().to(self._device, copy=True).view(dtype)
                setattr(self, name, value)
        super()._load_from_state_dict(  # type: ignore[no-untyped-call]
            rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def follow(self, device: torch.device) -> None:
        """Moves the tables to where the layer computes."""
        if self._device != device:
            for name, value in vars(self).items():
                if isinstance(value, Tensor):
                    setattr(self, name, value.to(device))
            self._device = device

    def draw(
        self,
        seed: int,
        step: Scalar,
        target: Tensor,
        samples: int,
        *,
        history: Tensor | None = None,
        mask: Tensor | None = None,
        states: Tensor | None = None,
        always: tuple[int, ...] = (),
        impl: str = "auto",
    ) -> Draw:
        """Sample sets of ``samples`` words and those of ``always``, for targets (G, M)."""
        groups = Groups(target, history, mask, states)
        words = self.sample(seed, step, groups, samples, impl)
        self._check_words(words, (len(target), samples))
        if always:
            words = torch.cat([words, words.new_tensor(always).expand(len(target), -1)], 1)
        density = [self.log_density(part, groups) for part in (words, target)]
        for part, log_q in zip((words, target), density, strict=True):
            if not isinstance(log_q, Tensor) or log_q.shape != part.shape:
                given = tuple(log_q.shape) if isinstance(log_q, Tensor) else log_q
                raise UserError(
                    f"{type(self).__name__}.log_density gave {given} for words {tuple(part.shape)}"
                )
        return Draw(words, *density)

    def _check_words(self, words: Tensor, shape: tuple[int, int]) -> None:
        """Refuses what a proposal gave for samples; a GPU is not asked which they are."""
        name = f"{type(self).__name__}.sample"
        if not isinstance(words, Tensor):
            raise UserError(f"{name} gave {words!r}, must be {shape} of torch.int64")
        if words.shape != shape or words.dtype != torch.int64:
            raise UserError(
                f"{name} gave {tuple(words.shape)} of {words.dtype}, must be {shape} of torch.int64"
            )
        if words.device.type == "cpu" and words.numel():
            low, high = (int(x) for x in words.aminmax())
            if low < 0 or high >= self.n_words:
                wrong = low if low < 0 else high
                raise UserError(f"{name} gave word {wrong}, which is not in 0 … {self.n_words - 1}")
