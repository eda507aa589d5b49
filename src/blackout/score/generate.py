"""Text from a model, word by word from the exact softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from blackout.config import check_whole
from blackout.errors import UserError
from blackout.models.language_model import LanguageModel
from blackout.score.checked import checked
from blackout.text.vocab import EOS, EOS_WORD, UNK, Vocab


@dataclass
class Chooser:
    """Takes one word after another from their log-probabilities (V,); see :func:`generate`."""

    temperature: float = 1.0
    top_k: int = 0
    seed: int = 1
    allow_unknown: bool = False

    def __post_init__(self) -> None:
        for name, value in (("temperature", self.temperature), ("top-k", self.top_k)):
            if not 0 <= value < math.inf:
                raise UserError(f"{name} is {value}, must be 0 or more")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed is {self.seed}, must be 0 or more and below 2**63")
        self._generator = torch.Generator().manual_seed(self.seed)

    def __call__(self, scores: torch.Tensor) -> int:
        """The number of the word; without ``allow_unknown`` ``scores`` loses that of ``<unk>``."""
        if not self.allow_unknown:
            scores[UNK] = -torch.inf
        if self.temperature == 0 or self.top_k == 1:
            return int(scores.argmax())
        if 0 < self.top_k < len(scores):
            best = scores.topk(self.top_k)
            scores = torch.full_like(scores, -torch.inf).scatter(0, best.indices, best.values)
        # the best stays 0 however cold it is
        scores = (scores - scores.max()) / self.temperature
        return int(torch.multinomial(scores.softmax(-1), 1, generator=self._generator))


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
    check_whole("words", words, 0)
    chooser = Chooser(temperature, top_k, seed, allow_unknown)
    assert model.vocab is not None
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
            values = model.output.log_prob(hidden, history=history)[0].double().cpu().numpy()
            token = chooser(torch.from_numpy(checked(values, model, may_be_impossible=True)))
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
        pieces.append(piece(vocab.word(token), pieces[-1]))
    text = "".join(pieces).rstrip("\n")
    return text if prompt else text.lstrip("\n")


def piece(word: str, before: str) -> str:
    """A word as it goes on behind a text: a line break for a sentence end, else a space first.

    >>> piece("cat", "the"), piece("cat", ""), piece("</s>", "the cat")
    (' cat', 'cat', '\\n')
    """
    if word == EOS_WORD:
        return "\n"
    return word if not before or before[-1].isspace() else f" {word}"
