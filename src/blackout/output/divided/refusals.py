"""What cannot be had with tables divided over ranks or samples in strata: said in one line each."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from blackout.errors import UserError
from blackout.proposals import Draw
from blackout.ranks import Ranks

if TYPE_CHECKING:
    from blackout.output.sampling import SamplingLayer


def agreed(group: ProcessGroup | Ranks | None, facts: dict[str, Any]) -> Ranks | None:
    """The ranks of a group, after all have been found to be given the same."""
    if group is None:
        return None
    ranks = Ranks.of(group)
    ranks.require_same(facts)
    return ranks


def checksum(counts: Tensor) -> str:
    """Of word counts: other ones have another."""
    numbers = torch.as_tensor(counts, device="cpu").double().contiguous()
    return f"{zlib.crc32(numbers.numpy().tobytes()):08x}"


def refuse_with_strata(proposal: object, always_sample: tuple[int, ...]) -> None:
    """Before a layer with strata is made."""
    if proposal != "unigram":
        raise UserError('sampling "strata" draws from word counts: proposal must be "unigram"')
    if always_sample:
        raise UserError('sampling "strata" has no place for always_sample')


def refuse_with_ranks(layer: SamplingLayer) -> None:
    """After a layer was made."""
    own = layer.proposal
    if layer.divided and (own.history_words or own.follows_model or own.looks_at_states):
        raise UserError("with process_group proposal must be unigram or batch")


def refuse_line_up(layer: SamplingLayer) -> None:
    """Line-ups that strata, or ranks, do not have."""
    if layer.sampling == "strata" and layer.collisions != "keep":
        raise UserError('sampling "strata" needs collisions "keep"')
    if layer.sampling == "strata" and layer.target_weight != "proposal":
        raise UserError('sampling "strata" needs target_weight "proposal"')
    if (layer.divided or layer.sampling == "strata") and layer.own_objective is not None:
        raise UserError("an objective of your own needs all samples in one place: no process_group")


def refuse_given(samples: Tensor | Draw | None) -> None:
    if samples is not None:
        raise UserError("samples= has no meaning with process_group or strata: they draw their own")
