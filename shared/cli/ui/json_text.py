"""Texts of a cluster in the document of the page: printable, and bounded."""

from typing import Any

from shared.core.objects import printable

SHORT_TEXT_MAX = 500
"""Characters of a text; longer texts are cut."""


def short(value: Any) -> str:
    """Return a text without control characters, cut to the limit; empty if the value is no text."""
    text = printable(value) if isinstance(value, str) else ""
    return text if len(text) <= SHORT_TEXT_MAX else f"{text[:SHORT_TEXT_MAX]}…"
