"""A recurrent language model: words (T, B) → hidden states (T, B, h) → an output layer.

>>> import numpy
>>> from blackout.config import Config
>>> config = Config.from_dict({"model": {"hidden": 8}, "loss": {"samples": 5}})
>>> model = build_model(config, counts=numpy.arange(1, 31))
>>> inputs, targets = torch.randint(30, (4, 2)), torch.randint(30, (4, 2))
>>> hidden, state = model(inputs, model.initial_state(2))
>>> output, loss = model.output(hidden, targets)
>>> loss.backward()
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from blackout import losses
from blackout.config import Config, ModelConfig
from blackout.errors import UserError
from blackout.models import tied
from blackout.models.cells import GatedLayer, Linear, Precision, SimpleLayer
from blackout.models.dropout import Dropout
from blackout.models.state import State, histories
from blackout.ops.plan import NetworkPlan
from blackout.output import FlatSoftmax, LayerSpec, OutputLayer
from blackout.ranks import Ranks, strata_for
from blackout.tables import STORAGE, ShardedTable, Table
from blackout.text.vocab import EOS, Vocab


class Reading(NamedTuple):
    """What a model makes of words: all that its output layer looks at, and the state after."""

    hidden: Tensor  # (..., h)
    history: Tensor | None  # (..., n), the words before each target, the latest first
    state: State

    @classmethod
    def joined(cls, readings: Sequence[Reading]) -> Reading:
        """Streams that have each read a word, side by side: hidden states (B, h)."""
        pasts = [r.history for r in readings if r.history is not None]
        return cls(
            torch.cat([r.hidden for r in readings]),
            torch.cat(pasts) if pasts else None,
            State.joined([r.state for r in readings]),
        )

    def stream(self, i: int) -> Reading:
        """One of the streams, as small as if it had been alone."""
        index = torch.tensor([i], device=self.hidden.device)
        past = None if self.history is None else self.history[index]
        return Reading(self.hidden[index], past, self.state.of_streams(index))


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, optional projection; ``.output`` is the output layer.

    With ``context = "sentence"`` the state is forgotten when the input word is the sentence end,
    so every sentence is scored on its own; with ``"stream"`` it is carried on.
    """

    vocab: Vocab | None = None
    """The words of its numbers, where the model was made for a text."""
    folder: Path | None = None
    """Where its weights were read from."""
    ranks: Ranks = Ranks.alone()
    """Those that the tables are divided over; all of them call the model together."""

    def __init__(
        self,
        config: ModelConfig,
        embedding: Table,
        output: OutputLayer,
        precision: Precision = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.config = config
        self.impl = impl
        hidden, simple = config.hidden, config.cell in ("sigmoid", "tanh", "relu")
        self.embedding = embedding
        self.layers = nn.ModuleList(
            SimpleLayer(config.cell, hidden if i else 0, hidden, config.bias, precision, impl)
            if simple
            else GatedLayer(config.cell, hidden, hidden, config.bias, precision, impl)
            for i in range(config.layers)
        )
        self.projection = (
            Linear(hidden, config.projection, precision, impl) if config.projection else None
        )
        self.dropout = Dropout(config.dropout)
        self.output = output
        if config.tie:
            tied.save_once(self, "embedding.weight", "output.table.weight")
        self._reset_recurrence()  # the two tables have filled themselves: once is long enough

    def reset_parameters(self) -> None:
        self.embedding.reset_parameters()
        self.output.reset_parameters()
        self._reset_recurrence()

    def _reset_recurrence(self) -> None:
        for layer in self.layers:
            layer.reset_parameters(self.config.init_range)  # type: ignore[operator]
        if self.projection is not None:
            limit = self.config.init_range or self.config.hidden**-0.5
            nn.init.uniform_(self.projection.weight, -limit, limit)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.embedding.weight.device

    def plan(self) -> NetworkPlan | None:
        """What training computes, for engines that provide a step whole; None where it is more."""
        plain = (
            type(self) is LanguageModel
            and self.ranks.size == 1
            and self.projection is None
            and not self.config.tie
            and all(
                layer.precision == getattr(self.output, "precision", None) for layer in self.layers
            )
            and not any(m._forward_hooks or m._forward_pre_hooks for m in self.modules())
            and all(p.requires_grad and not p._backward_hooks for p in self.parameters())
        )
        output = self.output.plan() if plain else None
        if output is None:
            return None
        return NetworkPlan(
            cell=self.config.cell,
            embedding=self.embedding.weight,
            layers=[layer.plan() for layer in self.layers],  # type: ignore[operator]
            forget=self.config.context == "sentence",
            product_dtype=output.product_dtype,
            output=output,
            dropout=self.dropout.p,
        )

    def initial_state(self, batch: int) -> State:
        """The state before any word: zeros, and nothing but sentence ends behind."""
        parts = int(self.layers[0].state_parts)  # type: ignore[arg-type]
        weight = self.embedding.weight
        shape = (self.config.layers, parts, batch, self.config.hidden)
        dtype = torch.promote_types(weight.dtype, torch.float32)
        behind = max(self.output.history_words - 1, 0)
        words = torch.full((behind, batch), EOS, device=weight.device)
        return State(weight.new_zeros(shape, dtype=dtype), words)

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Hidden states (T, B, h) of a block of words (T, B), and the state after it.

        The state given is taken as a constant: gradients stop at the block's start.
        """
        keep = None
        if self.config.context == "sentence":
            keep = (inputs != EOS).to(state.layers.dtype)[..., None]
        values = self.dropout(self.embedding(inputs))
        after = []
        for layer, before in zip(self.layers, state.layers.detach(), strict=True):
            values, last = layer(values, before, keep)
            values = self.dropout(values)
            after.append(last)
        if self.projection is not None:
            values = self.projection(values)
        behind = len(state.words)
        words = torch.cat([state.words, inputs])[-behind:] if behind else state.words
        return values, State(torch.stack(after).detach(), words)

    def read(self, inputs: Tensor, state: State) -> Reading:
        """All that the output layer looks at after each word of a block (T, B)."""
        hidden, after = self(inputs, state)
        return Reading(hidden, self.history(inputs, state), after)

    def read_word(self, words: Tensor, state: State) -> Reading:
        """One step of B streams: words (B,) and the state before in, what follows out.

        The step of generation and of servers: ``model.output.log_prob(hidden, history=history)`` of
        what it gives are the log-probabilities of the next words.
        """
        hidden, history, after = self.read(words[None], state)
        return Reading(hidden[0], None if history is None else history[0], after)

    def history(self, inputs: Tensor, state: State) -> Tensor | None:
        """The words before each target (T, B, n) as far as the output layer looks back."""
        length = self.output.history_words
        if not length:
            return None
        return histories(inputs, state.words, length, self.config.context == "sentence")


def build_model(
    config: Config,
    counts: ArrayLike,
    always_sample: tuple[int, ...] = (),
    impl: str = "auto",
    ranks: Ranks | None = None,
    words: Sequence[str] | None = None,
) -> LanguageModel:
    """The model of a run over a vocabulary with these word counts; weights follow the seed.

    ``always_sample``: the numbers of the words of ``config.loss.always_sample``. ``ranks``: those
    that its tables are divided over; the weights are the same for every number of them. ``words``:
    the texts of all words (:class:`~blackout.output.LayerSpec`).
    """
    word_counts = torch.as_tensor(np.asarray(counts, dtype=np.float64))
    torch.manual_seed(config.run.seed)
    vocab_size, ranks = len(word_counts), ranks or Ranks.alone()

    def input_words() -> Table:
        return input_table(config, vocab_size, impl, ranks)

    shared = input_words() if config.model.tie else None
    output = build_output(config, word_counts, always_sample, impl, shared, ranks, words)
    embedding = input_words() if shared is None else shared
    precision = config.run.precision
    model = LanguageModel(config.model, embedding, output, precision, impl)
    model.ranks = ranks
    return model


def strata_of(config: Config, vocab_size: int) -> int:
    """How many strata the tables of a run have, whatever the number of ranks."""
    takes = "sampling" in losses.find(config.loss.loss).options
    by_strata = takes and config.loss.sampling == "strata"
    return strata_for(vocab_size, config.loss.samples if by_strata else None)


def input_table(config: Config, vocab_size: int, impl: str, ranks: Ranks) -> Table:
    """The input words; where they are the output words too, they begin as those do."""
    model = config.model
    options: dict[str, Any] = {
        "init_range": model.init_range or (model.hidden**-0.5 if model.tie else 0.3),
        "storage": STORAGE[model.storage],
        "impl": impl,
    }
    if ranks.size == 1:
        return Table(vocab_size, model.hidden, **options)
    strata = strata_of(config, vocab_size)
    return ShardedTable(vocab_size, model.hidden, ranks, strata=strata, **options)


def build_output(
    config: Config,
    counts: Tensor,
    always_sample: tuple[int, ...],
    impl: str,
    shared: Table | None = None,
    ranks: Ranks | None = None,
    words: Sequence[str] | None = None,
) -> OutputLayer:
    """The output layer that ``config.loss`` names, over the table ``shared`` where there is one."""
    loss = losses.find(config.loss.loss)
    divided: dict[str, Any] = {}
    if ranks is not None and ranks.size > 1:
        if not loss.layer().divisible:
            raise UserError(
                f"loss {loss.name} cannot be divided over ranks: it runs in one process"
            )
        divided = {"process_group": ranks}
    if shared is not None and not issubclass(loss.layer(), FlatSoftmax):
        raise UserError(f"tie: loss {loss.name} has no table of one row for each word to share")
    if config.loss.sampling == "strata" and "sampling" not in loss.options:
        raise UserError(f"sampling is strata, but loss {loss.name} draws no samples from strata")
    settings = {name: getattr(config.loss, name) for name in loss.options}
    if "sampling" in settings:
        settings["sampling"] = settings["sampling"] or "global"
    if "always_sample" in settings:
        settings["always_sample"] = always_sample  # numbers for words
    size = config.model.projection or config.model.hidden
    spec = LayerSpec(
        size,
        counts,
        config.run.seed,
        settings,
        {
            "bias": config.model.bias,
            "init_range": config.model.init_range or size**-0.5,
            "precision": config.run.precision,
            "storage": config.model.storage,
            "impl": impl,
            **({} if shared is None else {"tied_to": shared}),
            **divided,
        },
        words,
    )
    layer = loss.layer().from_spec(spec)
    layer.ignore_index = None  # every word of a text counts, and nobody needs to look
    return layer
