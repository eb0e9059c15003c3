"""The form of the log, read before all settings: an error in them must be logged in it."""

import os
from collections.abc import Mapping


def log_form(environment: Mapping[str, str] = os.environ) -> str:  # noqa: TID251 - needed before the settings
    """Return the form of the log (`json` or `text`) for settings errors; empty if TTL_LOG is neither."""
    form = environment.get("TTL_LOG", "")
    return form if form in ("json", "text") else ""
