"""Text from a model, word by word from the exact softmax."""

from __future__ import annotations

import torch

from blackout.errors import UserError
from blackout.models.language_model import LanguageModel
from blackout.text.vocab import EOS, UNK


def generate(
    model: LanguageModel,
    *,
    prompt: str = "",
    words: int = 100,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 1,
    allow_unknown: bool = False,
) -> str:
    """``words`` words after ``prompt``; each sentence on a line of its own.

    ``temperature``: below 1 safer, above 1 bolder, 0 always the most probable word. ``top_k``:
    choose among the k most probable words only; 0 for all. The same seed gives the same text.
    """
    if temperature < 0 or top_k < 0 or words < 0:
        raise UserError("temperature, top-k and words must be 0 or more")
    assert model.vocab is not None
    generator = torch.Generator().manual_seed(seed)
    device = model.embedding.weight.device
    tokens = [model.vocab.id(word) for word in prompt.split()]
    context = torch.tensor([EOS, *tokens], device=device)[:, None]
    state = model.initial_state(1)
    model.eval()
    with torch.no_grad():
        for _ in range(words):
            hidden, state = model(context, state)
            scores = model.output.log_prob(hidden[-1, 0]).double().cpu()
            if not allow_unknown:
                scores[UNK] = -torch.inf
            token = _choose(scores, temperature, top_k, generator)
            tokens.append(token)
            context = torch.tensor([[token]], device=device)
    text = " ".join("\n" if t == EOS else model.vocab.word(t) for t in tokens)
    return text.replace(" \n ", "\n").replace(" \n", "\n").replace("\n ", "\n").strip()


def _choose(
    scores: torch.Tensor, temperature: float, top_k: int, generator: torch.Generator
) -> int:
    if temperature == 0:
        return int(scores.argmax())
    if 0 < top_k < len(scores):
        scores = scores.masked_fill(scores < scores.topk(top_k).values[-1], -torch.inf)
    return int(torch.multinomial((scores / temperature).softmax(-1), 1, generator=generator))
