"""JSON that every reader accepts.

An infinity or a NaN, which JSON has not, is null; half a character (of a name that is not UTF-8),
which strict readers refuse, is U+FFFD.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_HALF = re.compile("[\ud800-\udfff]")


def to_json(values: Mapping[str, Any]) -> str:
    """One line of JSON.

    >>> to_json({"words": 3, "perplexity": math.inf, "rows": [{"speed": math.nan}]})
    '{"words": 3, "perplexity": null, "rows": [{"speed": null}]}'
    >>> print(json.loads(to_json({"name": "caf\\udce9"}))["name"])
    caf�
    """
    return json.dumps(_plain(values), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
