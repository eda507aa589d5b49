"""The recurrent network: blocks of words in, hidden states out."""

from blackout.models.language_model import LanguageModel, build_model
from blackout.models.saved import load

__all__ = ["LanguageModel", "build_model", "load"]
