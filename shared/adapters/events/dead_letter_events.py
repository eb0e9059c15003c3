"""Dead letters on the wire, read as far as they can be understood: that they are malformed may be why they are some."""

import base64
import re
from collections.abc import Mapping
from functools import partial
from urllib.parse import unquote as percent_decode
from urllib.parse import urlsplit

from shared.adapters.events.answers import answering
from shared.adapters.events.cloudevents import KNOWN, Event, parse_event
from shared.core.objects import printable
from shared.errors import EventError
from shared.usecases.deadletter import DeadLetter

_PART_CHARACTERS_MAX = 500


def read_letter(headers: Mapping[str, str], body: bytes) -> Event:
    """As much of a dead letter as can be understood; that it is malformed may be why it is one."""
    try:
        return parse_event(headers, body)
    except EventError:
        spoken = {name[3:]: percent_decode(value) for name, value in headers.items() if name.startswith("ce-")}
        return Event(
            id=spoken.get("id", ""),
            source=spoken.get("source", ""),
            type=spoken.get("type", ""),
            subject=spoken.get("subject", ""),
            extensions={name: value for name, value in spoken.items() if name not in KNOWN},
        )


def letter_of(event: Event) -> DeadLetter:
    """What Knative says with an event that it could not deliver: its extensions knativeerror*.

    Anybody may have made it up, and it is remembered and shown: so each part is short, and one line.
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
    """Whose URL it is; a Broker's own filter, at /triggers/NAMESPACE/NAME/UID, stands for the subscriber."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    trigger = re.match("/triggers/[^/]+/([^/]+)", parts.path)
    return trigger[1] if trigger else (parts.hostname or "").partition(".")[0]


def _plain(error_data: str) -> str:
    """The error data, which Knative sends in Base64 and may cut off."""
    try:
        return base64.b64decode(error_data[: len(error_data) // 4 * 4], validate=True).decode(errors="replace")
    except ValueError:
        return error_data


answering_letter = partial(answering, read=read_letter)
"""Makes an HTTP function of the one that takes what the others refuse."""
