"""Several processes that share one model: who they are, who owns which rows, what they exchange.

``torch.distributed`` moves the numbers; here is what the rest of the package calls by name.
"""

from blackout.ranks.division import MOST_STRATA, Division, divide, division_of, strata_for
from blackout.ranks.group import Ranks, Traffic

__all__ = [
    "MOST_STRATA",
    "Division",
    "Ranks",
    "Traffic",
    "divide",
    "division_of",
    "strata_for",
]
