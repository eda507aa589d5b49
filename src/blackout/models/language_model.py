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
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from blackout.config import Config, LossConfig, ModelConfig
from blackout.models.cells import GatedLayer, SimpleLayer
from blackout.models.embedding import Embedding
from blackout.ops.tables import STORAGE
from blackout.output import NCE, BlackOut, Full, OutputLayer, Sampled
from blackout.output.sampled_layer import SampledOutputLayer
from blackout.text.vocab import EOS, Vocab


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
        precision: Literal["fp32", "bf16"] = "fp32",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.config = config
        hidden, simple = config.hidden, config.cell in ("sigmoid", "tanh", "relu")
        self.embedding = Embedding(
            vocab_size,
            hidden,
            init_range=config.init_range,
            storage=STORAGE[config.storage],
            impl=impl,
        )
        self.layers = nn.ModuleList(
            SimpleLayer(config.cell, hidden if i else 0, hidden, config.bias, precision, impl)
            if simple
            else GatedLayer(config.cell, hidden, hidden, config.bias)
            for i in range(config.layers)
        )
        self.projection = (
            nn.Linear(hidden, config.projection, bias=False) if config.projection else None
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output = output
        self._reset_recurrence()  # the two tables have filled themselves: once is long enough

    def reset_parameters(self) -> None:
        self.embedding.reset_parameters()
        self.output.reset_parameters()
        self._reset_recurrence()

    def _reset_recurrence(self) -> None:
        init_range = self.config.init_range
        for layer in self.layers:
            layer.reset_parameters(init_range)  # type: ignore[operator]
        if self.projection is not None:
            nn.init.uniform_(self.projection.weight, -init_range, init_range)

    def initial_state(self, batch: int) -> Tensor:
        """The state before any word: zeros (layers, S, B, h)."""
        parts = int(self.layers[0].state_parts)  # type: ignore[arg-type]
        weight = self.embedding.weight
        shape = (self.config.layers, parts, batch, self.config.hidden)
        return weight.new_zeros(shape, dtype=torch.promote_types(weight.dtype, torch.float32))

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states (T, B, h) of a block of words (T, B), and the state after it.

        The state given is taken as a constant: gradients stop at the block's start.
        """
        keep = None
        if self.config.context == "sentence":
            keep = (inputs != EOS).to(state.dtype)[..., None]
        values = self.dropout(self.embedding(inputs))
        after = []
        for layer, before in zip(self.layers, state.detach(), strict=True):
            values, last = layer(values, before, keep)
            values = self.dropout(values)
            after.append(last)
        if self.projection is not None:
            values = self.projection(values)
        return values, torch.stack(after).detach()


def build_model(
    config: Config, counts: ArrayLike, always_sample: tuple[int, ...] = (), impl: str = "auto"
) -> LanguageModel:
    """The model of a run over a vocabulary with these word counts; weights follow the seed.

    ``always_sample``: the numbers of the words of ``config.loss.always_sample``.
    """
    word_counts = torch.as_tensor(np.asarray(counts, dtype=np.float64))
    torch.manual_seed(config.run.seed)
    output = build_output(config, word_counts, always_sample, impl)
    if isinstance(output, SampledOutputLayer):
        output.keep_bf16_row_gradients()  # our optimiser takes them
    return LanguageModel(len(word_counts), config.model, output, config.run.precision, impl)


def build_output(
    config: Config, counts: Tensor, always_sample: tuple[int, ...], impl: str
) -> OutputLayer:
    """The output layer that ``config.loss`` names."""
    loss, size = config.loss, config.model.projection or config.model.hidden
    common = {
        "bias": config.model.bias,
        "init_range": config.model.init_range,
        "precision": config.run.precision,
        "storage": config.model.storage,
        "impl": impl,
    }
    if loss.loss == "full":
        return Full(size, len(counts), **common)  # type: ignore[arg-type]
    kinds = {"blackout": BlackOut, "nce": NCE, "sampled": Sampled}
    sampling = {
        "counts": counts.clamp(min=1),  # a vocabulary without unknown words counts <unk> 0 times
        "alpha": loss.alpha,
        "proposal": loss.proposal,
        "sharing": loss.sharing,
        "always_sample": always_sample,
        "seed": config.run.seed,
    }
    return kinds[loss.loss](
        size, len(counts), loss.samples, **sampling, **_own_options(loss), **common
    )


def _own_options(loss: LossConfig) -> dict[str, object]:
    if loss.loss == "nce":
        return {"log_z": loss.log_z}
    own: dict[str, object] = {
        "target_weight": loss.target_weight,
        "collisions": loss.collisions,
    }
    if loss.loss == "blackout":
        own |= {"negatives": loss.negatives, "discriminative": loss.discriminative}
    return own
