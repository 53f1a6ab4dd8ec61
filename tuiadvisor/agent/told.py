"""JSON that a stranger's process wrote, taken for what it can be.

In: bytes.  Out: a dict, empty where they are nothing of the kind; its values are not to be believed yet.
"""

from __future__ import annotations

from typing import Any

import orjson


def json_object(raw: bytes) -> dict[str, Any]:
    """The object in it; {} where there is none."""
    try:
        told = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}
