"""What proposals need of the training text: bigram counts, hidden states."""

from __future__ import annotations

import numpy as np
import torch

from blackout.models.language_model import LanguageModel
from blackout.output.bigram_proposal import BigramProposal
from blackout.output.model_proposal import ModelProposal
from blackout.output.sampled_layer import SampledOutputLayer
from blackout.text.streams import Streams, TokenText

_STREAMS, _STEPS = 50, 20  # about a thousand contexts from 50 places of the text


def prepare_proposal(model: LanguageModel, text: TokenText) -> None:
    """Once for a run: a bigram proposal counts the pairs of the training text."""
    output = model.output
    if isinstance(output, SampledOutputLayer) and isinstance(output.proposal, BigramProposal):
        # The last word of a text is a sentence end, which is what stands before its first word.
        output.proposal.count(np.roll(text.tokens, 1), text.tokens)


def adapt_proposal(model: LanguageModel, text: TokenText, seed: int, epoch: int) -> None:
    """Once for an epoch but the first: a model proposal looks at the model as it is now."""
    output = model.output
    if not isinstance(output, SampledOutputLayer) or not isinstance(output.proposal, ModelProposal):
        return
    carried = model.config.context == "stream"
    block = next(
        Streams(
            text,
            _STREAMS,
            _STEPS,
            shuffle=not carried,
            seed=seed,
            epoch=epoch,
            contiguous=carried,
        )
    )
    device = model.embedding.weight.device
    was_training = model.training
    model.eval()
    with torch.no_grad():
        inputs = torch.from_numpy(block.inputs).to(device)
        hidden, _ = model(inputs, model.initial_state(_STREAMS))
        output.adapt_proposal(hidden[torch.from_numpy(block.mask).to(device)])
    model.train(was_training)
