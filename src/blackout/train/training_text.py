"""What output layers may want to see of the training text: pairs of words, hidden states."""

from __future__ import annotations

import numpy as np
import torch

from blackout.models.language_model import LanguageModel
from blackout.text.streams import Streams, TokenText

_STREAMS, _STEPS = 50, 20  # about a thousand contexts from 50 places of the text


def read_training_text(model: LanguageModel, text: TokenText) -> None:
    """Once for a run: the output layer sees which word follows which."""
    if model.output.reads_text:
        # The last word of a text is a sentence end, which is what stands before its first word.
        model.output.read_text(np.roll(text.tokens, 1), text.tokens)


def follow_model(model: LanguageModel, text: TokenText, seed: int, epoch: int) -> None:
    """Once for an epoch but the first: the output layer looks at the model as it is now."""
    if not model.output.follows_states:
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
    was_training = model.training
    model.eval()
    with torch.no_grad():
        inputs = torch.from_numpy(block.inputs).to(model.device)
        hidden, _ = model(inputs, model.initial_state(_STREAMS))
        model.output.follow_states(hidden[torch.from_numpy(block.mask).to(model.device)])
    model.train(was_training)
