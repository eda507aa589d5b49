"""Hugging Face transformers with BlackOut: the models here, their trainer in ``trainer``."""

from blackout.integrations.huggingface.causal import from_pretrained, use_blackout

__all__ = ["from_pretrained", "use_blackout"]
