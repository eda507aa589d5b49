"""JSON that every reader accepts: an infinity or a NaN, which JSON has not, is null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(values: Mapping[str, Any]) -> str:
    """One line of JSON.

    >>> to_json({"words": 3, "perplexity": math.inf, "rows": [{"speed": math.nan}]})
    '{"words": 3, "perplexity": null, "rows": [{"speed": null}]}'
    """
    return json.dumps(_finite(values), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
