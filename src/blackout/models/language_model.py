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

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from blackout import losses
from blackout.config import Config, ModelConfig
from blackout.models.cells import GatedLayer, Linear, Precision, SimpleLayer
from blackout.models.state import State, histories
from blackout.output import LayerSpec, OutputLayer
from blackout.tables import STORAGE, Table
from blackout.text.vocab import EOS, Vocab


class Reading(NamedTuple):
    """What a model makes of words: all that its output layer looks at, and the state after."""

    hidden: Tensor  # (..., h)
    history: Tensor | None  # (..., n), the words before each target, the latest first
    state: State


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, optional projection; ``.output`` is the output layer.

    With ``context = "sentence"`` the state is forgotten when the input word is the sentence end,
    so every sentence is scored on its own; with ``"stream"`` it is carried on.
    """

    vocab: Vocab | None = None
    """The words of its numbers, where the model was made for a text."""
    folder: Path | None = None
    """Where its weights were read from."""

    def __init__(
        self,
        vocab_size: int,
        config: ModelConfig,
        output: OutputLayer,
        precision: Precision = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.config = config
        self.impl = impl
        hidden, simple = config.hidden, config.cell in ("sigmoid", "tanh", "relu")
        self.embedding = Table(
            vocab_size,
            hidden,
            init_range=0.3 if config.init_range is None else config.init_range,
            storage=STORAGE[config.storage],
            impl=impl,
        )
        self.layers = nn.ModuleList(
            SimpleLayer(config.cell, hidden if i else 0, hidden, config.bias, precision, impl)
            if simple
            else GatedLayer(config.cell, hidden, hidden, config.bias, precision, impl)
            for i in range(config.layers)
        )
        self.projection = (
            Linear(hidden, config.projection, precision) if config.projection else None
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output = output
        self._reset_recurrence()  # the two tables have filled themselves: once is long enough

    def reset_parameters(self) -> None:
        self.embedding.reset_parameters()
        self.output.reset_parameters()
        self._reset_recurrence()

    def _reset_recurrence(self) -> None:
        init_range = self.config.init_range or self.config.hidden**-0.5
        for layer in self.layers:
            layer.reset_parameters(init_range)  # type: ignore[operator]
        if self.projection is not None:
            nn.init.uniform_(self.projection.weight, -init_range, init_range)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.embedding.weight.device

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

        The step of generation and of servers: ``model.output.log_prob(hidden, history)`` of what it
        gives are the log-probabilities of the next words.
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
    config: Config, counts: ArrayLike, always_sample: tuple[int, ...] = (), impl: str = "auto"
) -> LanguageModel:
    """The model of a run over a vocabulary with these word counts; weights follow the seed.

    ``always_sample``: the numbers of the words of ``config.loss.always_sample``.
    """
    word_counts = torch.as_tensor(np.asarray(counts, dtype=np.float64))
    torch.manual_seed(config.run.seed)
    output = build_output(config, word_counts, always_sample, impl)
    return LanguageModel(len(word_counts), config.model, output, config.run.precision, impl)


def build_output(
    config: Config, counts: Tensor, always_sample: tuple[int, ...], impl: str
) -> OutputLayer:
    """The output layer that ``config.loss`` names."""
    loss = losses.find(config.loss.loss)
    settings = {name: getattr(config.loss, name) for name in loss.options}
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
        },
    )
    return loss.layer().from_spec(spec)
