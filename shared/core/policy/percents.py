"""Read the percentages of policy rules."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from shared.core.objects import quote

_PERCENT = re.compile(r"([1-9][0-9]?)%")


def _read_percent(value: Any) -> int:
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected a percentage from 1% to 99%, such as 90%, got {quote(value)}")
    return int(found[1])


Percent = Annotated[
    int,
    BeforeValidator(_read_percent),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]?%$", "description": "A percentage from 1% to 99%."}),
]
"""A field of a policy: a whole percentage from 1% to 99%."""
