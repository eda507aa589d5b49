"""Causal models of Hugging Face transformers that train with BlackOut.

:func:`use_blackout` turns a model with a huge vocabulary into one whose loss looks at K sampled
words. Nothing else changes: the weights keep their names, tied tables stay tied, ``generate`` and a
call without labels go through the model's own code, and what ``save_pretrained`` writes is a folder
that the model's own class loads too. :func:`from_pretrained` loads it to train on.

While training, a call with labels gives the loss alone, no logits: they would be words times
vocabulary. After ``eval()`` the loss is the exact one, over all words, in bounded memory.

The gradients of both word tables are row-sparse: in a loop of your own take an optimiser of
:mod:`blackout.optim`, else the ``Trainer`` of :mod:`blackout.integrations.huggingface.trainer`.

>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> config = GPT2Config(vocab_size=1000, n_embd=16, n_layer=1, n_head=2, bos_token_id=0)
>>> model = use_blackout(GPT2LMHeadModel(config), samples=50)
>>> words = torch.randint(1000, (2, 8))
>>> model(input_ids=words, labels=words).loss.backward()
>>> model.get_input_embeddings().weight.grad.is_sparse
True
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from blackout.errors import UserError
from blackout.output import BlackOut
from blackout.proposals import Draw, UnigramProposal

__all__ = ["from_pretrained", "use_blackout"]

_CHANGED_LOGITS = ("final_logit_softcapping", "logits_scaling", "logit_scale", "lm_head_multiplier")


def use_blackout(
    model: PreTrainedModel, samples: int = 500, *, counts: Tensor | None = None, **options: Any
) -> PreTrainedModel:
    """Turns a causal model, in place, into one that trains with BlackOut.

    ``counts`` (V,): how often each word occurs in the training text, by which samples are drawn;
    without them they are drawn uniformly, which learns more slowly. ``options``: others of
    :class:`blackout.BlackOut` (alpha, collisions, precision, ...).
    """
    if isinstance(model, _SampledCausalLM):
        raise UserError("the model trains with BlackOut already")
    _require_plain_logits(model)
    cast(Any, model.config).blackout = {"samples": samples, **options}
    own_class: Any = type(model)
    model.__class__ = _sampled_class(own_class)
    sampled = cast(_SampledCausalLM, model)
    try:
        sampled._add_head(counts)
    except Exception:  # options that are refused: the model is what it was
        model.__class__ = own_class
        del model.config.blackout
        raise
    sampled.tie_weights()
    return sampled


def from_pretrained(folder: str | Path, **options: Any) -> PreTrainedModel:
    """A model that was saved with BlackOut, ready to train on; ``options`` as the model's class."""
    config = AutoConfig.from_pretrained(folder)
    if not hasattr(config, "blackout"):
        raise UserError(
            f"{folder}: was not saved with BlackOut; load it with its own class, then use_blackout"
        )
    own_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    model: PreTrainedModel = _sampled_class(own_class).from_pretrained(folder, **options)
    return model


class _Head(BlackOut):
    """The loss over the model's own output table.

    The counts are a buffer, which is how transformers load a state; what samples are drawn from is
    made of them when they have changed.
    """

    counts: Tensor
    _tied_weights_keys: ClassVar[dict[str, str]] = {"table.weight": "", "biases.weight": ""}
    """What is not written when a model is saved: the model's own tables are."""

    def __init__(
        self, in_features: int, n_classes: int, samples: int, counts: Tensor | None, **options: Any
    ) -> None:
        super().__init__(in_features, n_classes, samples, counts=counts, **options)
        self.proposal.save_what_is_learned()
        if counts is None:
            counts = torch.ones(n_classes, device="cpu")
        # the bits of float64: a model that is cast or loaded in 16 bits leaves them alone
        bits = torch.as_tensor(counts, device="cpu").double().view(torch.int64)
        self.register_buffer("counts", bits)
        self._drawn_from = (bits, bits._version)

    def draw(
        self,
        target: Tensor,
        history: Tensor | None = None,
        mask: Tensor | None = None,
        states: Tensor | None = None,
    ) -> Draw:
        (made_of, version), proposal = self._drawn_from, self.proposal
        changed = made_of is not self.counts or version != self.counts._version
        if changed and isinstance(proposal, UnigramProposal):
            counts = self.counts.cpu().view(torch.float64)
            self.proposal = type(proposal)(counts, proposal.alpha)
            self._drawn_from = (self.counts, self.counts._version)
        return super().draw(target, history, mask, states)


class _SampledCausalLM(PreTrainedModel):
    """What a causal model gets on top; mixed into its class by :func:`_sampled_class`."""

    blackout: _Head

    def __init__(self, config: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self._add_head(None)
        self.all_tied_weights_keys = self.get_expanded_tied_weights_keys(all_submodels=True)
        self.tie_weights(recompute_mapping=False)

    def _add_head(self, counts: Tensor | None) -> None:
        weight, bias = self._output.weight, getattr(self._output, "bias", None)
        vocabulary, width = weight.shape
        options = {"bias": bias is not None, "dtype": weight.dtype, **self.config.blackout}
        with torch.device("meta"):  # its tables are the model's
            self.blackout = _Head(width, vocabulary, counts=counts, **options)
        self.blackout.train(self.training)
        if not weight.is_meta:
            self.blackout.step = torch.zeros((), dtype=torch.int64, device=weight.device)
            self.blackout.counts = self.blackout.counts.to(weight.device)
        cast(Any, self.get_input_embeddings()).sparse = self.blackout.sparse
        self.all_tied_weights_keys = self.get_expanded_tied_weights_keys(all_submodels=True)

    def resize_token_embeddings(self, *arguments: Any, **named: Any) -> Any:
        """The loss follows: its tables are the new ones, and words that are new count as often as
        the rarest known one."""
        embedding = super().resize_token_embeddings(*arguments, **named)
        known = self.blackout.counts.cpu().view(torch.float64)
        size = len(self._output.weight)
        if size != len(known):
            more = known.min().expand(max(size - len(known), 0))
            step = self.blackout.step
            self._add_head(torch.cat([known[:size], more]))
            self.blackout.step = step
            self.tie_weights()
        return embedding

    @property
    def _output(self) -> Any:
        return self.get_output_embeddings()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """The tables of the loss are those of the model, whether its own are tied or not."""
        keys: dict[str, str] = super().get_expanded_tied_weights_keys(all_submodels)
        if not hasattr(self, "blackout"):  # the model's own __init__ has not come to its end
            return keys
        (name,) = (name for name, module in self.named_modules() if module is self._output)
        ours = {"blackout.table.weight": f"{name}.weight"}
        if self.blackout.biases is not None:
            ours["blackout.biases.weight"] = f"{name}.bias"
        return keys | {target: keys.get(source, source) for target, source in ours.items()}

    def _sampled_loss(
        self, labels: Tensor, num_items_in_batch: Tensor | int | None, inputs: dict[str, Any]
    ) -> CausalLMOutput:
        hidden = self.base_model(**inputs)[0]
        _, loss = self.blackout(hidden[:, :-1], labels[:, 1:], divisor=num_items_in_batch)
        return CausalLMOutput(loss=loss)


@functools.cache
def _sampled_class(own_class: Any) -> type[_SampledCausalLM]:
    """The model's class with our loss; of the same name, so that a saved model says what it is."""

    @functools.wraps(own_class.forward)  # trainers look at its arguments
    def forward(self: _SampledCausalLM, *arguments: Any, **named: Any) -> Any:
        given = inspect.signature(own_class.forward).bind(self, *arguments, **named).arguments
        given = {**given.pop("kwargs", {}), **given}
        given.pop("self")
        labels, items = given.pop("labels", None), given.pop("num_items_in_batch", None)
        if labels is None:
            return own_class.forward(self, **given)
        given.pop("logits_to_keep", None)
        return self._sampled_loss(labels, items, given)

    members = {"forward": forward, "__module__": own_class.__module__}
    return type(own_class.__name__, (_SampledCausalLM, own_class), members)


def _require_plain_logits(model: PreTrainedModel) -> None:
    """Refuses models whose logits are more than a product with the output table."""
    if not isinstance(model, PreTrainedModel):
        raise UserError(f"a {type(model).__name__} is no model of transformers")
    if getattr(model.get_output_embeddings(), "weight", None) is None:
        raise UserError(f"{type(model).__name__} has no output table: not a causal model")
    for name in _CHANGED_LOGITS:
        if getattr(model.config, name, None) not in (None, 1.0):
            raise UserError(
                f"{type(model).__name__} changes its logits by {name}, which BlackOut does not know"
            )
