"""One process and R processes give the same losses, norms and weights: the central promise.

Ranks have different numbers of columns (7 streams over 2 to 4 ranks), some places are masked.
tests/train/test_ranks.py has the same for whole runs, one of them over 300 blocks.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.ranks.network import LOSSES, train, whole

STRATA = {"sampling": "strata"}
SLOWLY = {"settings": {"lr": 0.0005, "clip": 0.5}}


def _same(crew: Any, ranks: int, rtol: float, loss: str, count: int, **more: Any) -> None:
    one, parts = train(None, loss, count, **more), crew.run(train, ranks, loss, count, **more)
    for part in parts:  # every rank has the same numbers, to the bit
        assert part["losses"] == parts[0]["losses"]
        assert part["norms"] == parts[0]["norms"]
    for name in ("losses", "norms"):
        expected, found = torch.tensor(one[name]), torch.tensor(parts[0][name])
        torch.testing.assert_close(found, expected, rtol=rtol, atol=0)
    together = whole(parts)
    for name, weight in whole([one]).items():
        expected, found = weight.double(), together[name].double()
        assert float((found - expected).norm()) <= rtol * float(expected.norm()), name


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize(("loss", "more"), [("blackout", {}), ("nce", STRATA), ("full", {})])
def test_any_number_of_ranks(crew: Any, ranks: int, loss: str, more: dict[str, Any]) -> None:
    _same(crew, ranks, 1e-10, loss, 5, dtype=torch.float64, bias=True, **more)


@pytest.mark.parametrize("loss", LOSSES)
def test_all_losses(crew: Any, loss: str) -> None:
    _same(crew, 3, 1e-10, loss, 5, dtype=torch.float64)


@pytest.mark.parametrize("loss", ["blackout", "blackout-noise", "sampled"])
def test_all_losses_with_strata(crew: Any, loss: str) -> None:
    _same(crew, 3, 1e-10, loss, 5, dtype=torch.float64, bias=True, **STRATA)


@pytest.mark.parametrize("sharing", ["block", "word"])
def test_every_sharing(crew: Any, sharing: str) -> None:
    _same(crew, 2, 1e-10, "blackout", 3, dtype=torch.float64, sharing=sharing)


@pytest.mark.parametrize(
    "more",
    [
        {"normalize": True},
        {"temperature": 0.5},
        {"proposal": "batch"},
        {"sparse": False},
        {"tied": True, **STRATA},
    ],
    ids=str,
)
def test_every_kind_of_layer(crew: Any, more: dict[str, Any]) -> None:
    _same(crew, 2, 1e-10, "blackout", 3, dtype=torch.float64, bias=True, **more)


def test_bf16_tables(crew: Any) -> None:
    """Rounded at random by the number of the row, whoever holds it."""
    _same(crew, 2, 1e-4, "blackout", 60, storage="bf16", bias=True, **STRATA, **SLOWLY)


def test_bf16_products(crew: Any) -> None:
    _same(crew, 2, 1e-3, "blackout", 10, precision="bf16", **SLOWLY)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("Adam", {"damping": 1e-6}),
        ("Adagrad", {}),
        ("RMSProp", {"second_moment": "row", "weight_decay": 0.01}),
        ("RMSProp", {"decay": "none", "clip": 0.05, "impl": "reference"}),
    ],
)
def test_every_optimizer(crew: Any, optimizer: str, settings: dict[str, Any]) -> None:
    _same(crew, 2, 1e-5, "sampled", 20, optimizer=optimizer, settings=settings)
