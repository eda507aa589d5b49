"""What output layers and people may want to see of the training text before training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from blackout.models.language_model import LanguageModel
from blackout.models.state import histories
from blackout.output.maxent import Features, Shared, count_shared
from blackout.text.streams import Streams, TokenText
from blackout.text.vocab import EOS

_PIECE, _MOST = 1 << 18, 1 << 24  # words looked at together, and in all
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


def shared_features(model: LanguageModel, text: TokenText) -> Shared | None:
    """How crowded the hashed features of the text's n-grams are; None where there are none."""
    parts = [part for part in model.output.modules() if isinstance(part, Features)]
    if not parts:
        return None
    (features,) = parts
    words = min(len(text.tokens), _MOST)
    pieces = _with_histories(text, words, features.order, model.config.context == "sentence")
    return count_shared(pieces, words * features.order, features.bits)


def _with_histories(
    text: TokenText, words: int, order: int, forget: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Histories (N, order) and words (N,) of a text's beginning, a piece at a time."""
    before = torch.full((order, 1), EOS)
    for first in range(0, words, _PIECE):
        some = np.asarray(text.tokens[first : min(first + _PIECE, words)]).astype(np.int64)
        joined = torch.cat([before, torch.from_numpy(some)[:, None]])
        past = histories(joined[order - 1 : -1], joined[: order - 1], order, forget)
        yield past[:, 0], joined[order:, 0]
        before = joined[-order:]
