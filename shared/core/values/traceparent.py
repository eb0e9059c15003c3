"""The identity of a span in its trace, as text: https://www.w3.org/TR/trace-context-1/#traceparent-header.

It comes from senders that are not trusted, so a text of another form counts as no text. Version 00 is the only one.
"""

import re
from typing import Any

TRACEPARENT = "traceparent"
"""The name of the CloudEvents attribute, of the HTTP header and of the stored field."""

_FORM = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def find_traceparent(value: Any) -> str:
    """Return a traceparent as it is; an empty text for any other value, such as another version or an id of zeros."""
    return value if isinstance(value, str) and _FORM.fullmatch(value) else ""


def trace_id_of(traceparent: str) -> str:
    """Return the trace id of a traceparent: 32 hexadecimal digits."""
    return traceparent[3:35]


def span_id_of(traceparent: str) -> str:
    """Return the span id of a traceparent: 16 hexadecimal digits."""
    return traceparent[36:52]


def flags_of(traceparent: str) -> int:
    """Return the flags of a traceparent; bit 0 is set if the trace is sampled."""
    return int(traceparent[53:], 16)
