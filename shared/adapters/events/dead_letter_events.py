"""Parse dead letter events as far as possible: a malformed event may be a dead letter because it is malformed."""

import base64
import re
from collections.abc import Mapping
from urllib.parse import unquote as percent_decode
from urllib.parse import urlsplit

from shared.adapters.events.cloudevents import KNOWN, Event, parse_event
from shared.core.values.objects import printable
from shared.errors import EventError
from shared.usecases.deadletter import DeadLetter

_PART_CHARACTERS_MAX = 500


def read_letter(headers: Mapping[str, str], body: bytes) -> Event:
    """Parse a dead letter event; return the readable attributes of a malformed one."""
    try:
        return parse_event(headers, body)
    except EventError:
        values = {name[3:]: percent_decode(value) for name, value in headers.items() if name.startswith("ce-")}
        return Event(
            id=values.get("id", ""),
            source=values.get("source", ""),
            type=values.get("type", ""),
            subject=values.get("subject", ""),
            extensions={name: value for name, value in values.items() if name not in KNOWN},
        )


def letter_of(event: Event) -> DeadLetter:
    """Read Knative's extensions knativeerror*, which describe an undelivered event.

    Any client may have sent these values, and they are stored and shown. So each is shortened, and printed on one line.
    """
    return DeadLetter(
        type=_legible(event.type),
        id=_legible(event.id),
        source=_legible(event.source),
        subject=_legible(event.subject),
        function=_legible(_function_at(event.extensions.get("knativeerrordest", ""))),
        status=_legible(event.extensions.get("knativeerrorcode", "")),
        detail=_legible(_plain(event.extensions.get("knativeerrordata", ""))),
    )


def _legible(text: str) -> str:
    return printable(" ".join(text.split())[:_PART_CHARACTERS_MAX])


def _function_at(url: str) -> str:
    """Return the function of a URL; for a Broker's filter, at /triggers/NAMESPACE/NAME/UID, the Trigger's name."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    trigger = re.match("/triggers/[^/]+/([^/]+)", parts.path)
    return trigger[1] if trigger else (parts.hostname or "").partition(".")[0]


def _plain(error_data: str) -> str:
    """Decode the error data; Knative sends it in Base64 and may truncate it."""
    try:
        return base64.b64decode(error_data[: len(error_data) // 4 * 4], validate=True).decode(errors="replace")
    except ValueError:
        return error_data
