"""Text from a model, word by word from the exact softmax."""

from __future__ import annotations

import math

import torch

from blackout.config import check_whole
from blackout.errors import UserError
from blackout.models.language_model import LanguageModel
from blackout.score.checked import checked
from blackout.text.vocab import EOS, UNK, Vocab


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
    """``words`` words after ``prompt``, which stays as typed; each sentence on a line of its own.

    ``temperature``: below 1 safer, above 1 bolder, 0 always the most probable word. ``top_k``:
    choose among the k most probable words only; 0 for all. The same seed gives the same text.
    """
    for name, value in (("temperature", temperature), ("top-k", top_k)):
        if not 0 <= value < math.inf:
            raise UserError(f"{name} is {value}, must be 0 or more")
    check_whole("words", words, 0)
    if not 0 <= seed < 2**63:
        raise UserError(f"seed is {seed}, must be 0 or more and below 2**63")
    assert model.vocab is not None
    generator = torch.Generator().manual_seed(seed)
    prompt_words = torch.tensor(_read(prompt, model.vocab), device=model.device)
    tokens = []
    model.eval()
    with torch.no_grad():
        *before, last = prompt_words.split(1)
        state = model.initial_state(1)
        if before:
            _, state = model(torch.stack(before), state)
        for _ in range(words):
            hidden, history, state = model.read_word(last, state)
            values = model.output.log_prob(hidden, history)[0].double().cpu().numpy()
            scores = torch.from_numpy(checked(values, model, may_be_impossible=True))
            if not allow_unknown:
                scores[UNK] = -torch.inf
            token = _choose(scores, temperature, top_k, generator)
            tokens.append(token)
            last = torch.tensor([token], device=model.device)
    return _write(prompt, tokens, model.vocab)


def _read(prompt: str, vocab: Vocab) -> list[int]:
    """The words of the prompt; the end of each of its lines but the last is a sentence end."""
    *lines, last = prompt.split("\n")
    tokens = [EOS]
    for line in lines:
        words = vocab.ids(line.split())
        tokens += [*words, EOS] if words else []
    return tokens + vocab.ids(last.split())


def _write(prompt: str, tokens: list[int], vocab: Vocab) -> str:
    """The prompt with the words behind it, a line break for each sentence end."""
    pieces = [prompt]
    for token in tokens:
        begins_line = not pieces[-1] or pieces[-1][-1].isspace()
        word = "\n" if token == EOS else vocab.word(token)
        pieces.append(word if begins_line or token == EOS else f" {word}")
    text = "".join(pieces).rstrip("\n")
    return text if prompt else text.lstrip("\n")


def _choose(
    scores: torch.Tensor, temperature: float, top_k: int, generator: torch.Generator
) -> int:
    if temperature == 0 or top_k == 1:
        return int(scores.argmax())
    if 0 < top_k < len(scores):
        best = scores.topk(top_k)
        scores = torch.full_like(scores, -torch.inf).scatter(0, best.indices, best.values)
    scores = (scores - scores.max()) / temperature  # the best stays 0 however cold it is
    return int(torch.multinomial(scores.softmax(-1), 1, generator=generator))
