"""CloudEvents in HTTP requests, by the rules of CloudEvents 1.0; no module imports the SDK.

The SDK (1.12, pinned by functions-framework) neither reads nor writes events here. Its reader does not check id,
source, type, time or body, invents a missing time, and accepts a JSON object as an attribute. This module rejects a
malformed event with a 4xx that names the field and quotes at most a few words. Later modules get valid events only.
Its writer takes ten times as long as `to_http`, and invents a missing time too; tests/properties/test_cloudevents.py
holds `to_http` to its answer.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote as percent_encode
from urllib.parse import unquote as percent_decode

from pydantic import TypeAdapter, ValidationError

from shared.adapters.tracing.current import current_traceparent
from shared.core.values.jsontext import JSON_VALUES_MAX, count_at_most
from shared.core.values.objects import parse_instant, quote
from shared.core.values.traceparent import TRACEPARENT
from shared.errors import EventError
from shared.messages import Message, Timer

EVENT_BYTES_MAX = 2 * 1024 * 1024
"""Maximum size of a body: etcd limits an object to 1.5 MiB. The JSON parser also limits the depth, to 200 levels."""

TICK = "dev.knative.sources.ping"
"""The event type of a PingSource; each such event starts a sweep."""

SOURCED = tuple(f"dev.knative.apiserver.resource.{verb}" for verb in ("add", "update", "delete"))
"""The event types of an ApiServerSource, or of this project's watch source, about an object."""

_REQUIRED = ("specversion", "id", "source", "type")
KNOWN = {*_REQUIRED, "datacontenttype", "dataschema", "subject", "time"}
"""The attributes that CloudEvents 1.0 defines; all others are extensions."""

_ATTRIBUTE_NAME = re.compile("[a-z0-9]{1,64}")
_STRUCTURED = "application/cloudevents+json"
_JSON = "application/json"
_ANY_OBJECT = TypeAdapter(dict[str, Any])
_ANYTHING = TypeAdapter(Any)

_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""Characters that a header carries unencoded; CloudEvents requires percent-encoding of all others."""
_ALL_PLAIN = re.compile("[!#$&-~]*")
"""Matches a text of `_PLAIN` characters only, which nearly all attributes are."""

_MessageT = TypeVar("_MessageT", bound=Message)


@dataclass(frozen=True, slots=True)
class Event:
    """A CloudEvent 1.0.

    Attributes:
        id: Not empty, like `source` and `type`.
        subject: Empty if absent.
        time: When it occurred; None if absent.
        data: JSON; empty if absent.
        extensions: Extension attributes as text, such as `kind`, `namespace` and `knativebrokerttl`.
    """

    id: str
    source: str
    type: str
    subject: str = ""
    time: datetime | None = None
    data: bytes = b""
    extensions: Mapping[str, str] = field(default_factory=dict)

    def attributes(self) -> dict[str, str]:
        """Return all context attributes as text, without absent ones; a Trigger can filter on them."""
        attributes = {"specversion": "1.0", "id": self.id, "source": self.source, "type": self.type}
        if self.subject:
            attributes["subject"] = self.subject
        if self.time is not None:
            attributes["time"] = self.time.isoformat().replace("+00:00", "Z")
        if self.data:
            attributes["datacontenttype"] = _JSON
        return {**attributes, **self.extensions}


def event_of(message: Message, *, source: str) -> Event:
    """Make an event from a message; the same fact always gets the same id. A timer has a trace of its own."""
    traceparent = message.traceparent if isinstance(message, Timer) else current_traceparent()
    return Event(
        id=message.id,
        source=source,
        type=message.type,
        subject=message.subject,
        time=message.occurred_at,
        data=message.model_dump_json(by_alias=True).encode(),
        extensions={**message.extensions, TRACEPARENT: traceparent} if traceparent else message.extensions,
    )


def to_http(event: Event) -> tuple[dict[str, str], bytes]:
    """Return headers and body in binary mode.

    Raises:
        EventError: An attribute has characters that CloudEvents does not allow.
    """
    headers = {f"ce-{name.lower()}": _encode(name, value) for name, value in event.attributes().items()}
    if "ce-datacontenttype" in headers:
        headers["content-type"] = headers.pop("ce-datacontenttype")
    return headers, event.data


def _encode(name: str, value: str) -> str:
    """Return an attribute as the value of a header: percent-encoded, so that no value ends the header."""
    return value if _ALL_PLAIN.fullmatch(value) else percent_encode(_printable(name, value), safe=_PLAIN)


def parse_event(headers: Mapping[str, str], body: bytes) -> Event:
    """Parse the event of an HTTP request or answer, in binary or structured mode.

    Args:
        headers: Headers with lower-case names.
        body: The body as received.

    Raises:
        EventError: The request is not one well-formed CloudEvent 1.0 with a JSON body; the message names the field.
    """
    if len(body) > EVENT_BYTES_MAX:
        raise EventError(f"body: expected at most {EVENT_BYTES_MAX} bytes, got {len(body)}", status=413)
    if count_at_most(body) > JSON_VALUES_MAX:
        raise EventError(f"body: expected at most {JSON_VALUES_MAX} values", status=413)
    content_type = _media_type(headers.get("content-type", ""))
    if content_type == _STRUCTURED:
        return _parse_envelope(body)
    if content_type.startswith("application/cloudevents"):
        expected = f"one event, binary or {_STRUCTURED}"
        raise EventError(f"content-type: expected {expected}, got {quote(content_type)}", status=415)
    if content_type != _JSON and body:
        raise EventError(f"content-type: expected {_JSON}, got {quote(content_type)}", status=415)
    attributes = {name[3:]: percent_decode(value) for name, value in headers.items() if name.startswith("ce-")}
    return _parse_attributes(attributes, body)


def _parse_envelope(body: bytes) -> Event:
    try:
        attributes = _ANY_OBJECT.validate_json(body)
    except ValidationError as error:
        raise EventError(_first_problem("body", error), status=400) from None
    data = _ANYTHING.dump_json(attributes.pop("data")) if "data" in attributes else b""
    if "data_base64" in attributes:
        data = _decode_base64(attributes.pop("data_base64"))
    return _parse_attributes(attributes, data)


def _decode_base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise EventError(f"data_base64: expected Base64, got {quote(text)}", status=400) from None


def _parse_attributes(attributes: Mapping[str, Any], data: bytes) -> Event:
    values = {name: _parse_attribute(name, value) for name, value in attributes.items() if value is not None}
    for name in _REQUIRED:
        if not values.get(name):
            raise EventError(f"{name}: expected a text that is not empty, got none", status=400)
    if values["specversion"] != "1.0":
        raise EventError(f"specversion: expected 1.0, got {quote(values['specversion'])}", status=400)
    if _media_type(values.get("datacontenttype", _JSON)) != _JSON:
        raise EventError(f"datacontenttype: expected {_JSON}, got {quote(values['datacontenttype'])}", status=415)
    return Event(
        id=values["id"],
        source=values["source"],
        type=values["type"],
        subject=values.get("subject", ""),
        time=_parse_time(values["time"]) if "time" in values else None,
        data=data,
        extensions={name: value for name, value in values.items() if name not in KNOWN},
    )


def _parse_attribute(name: str, value: Any) -> str:
    """Return an attribute as text. In JSON, an extension may also be a boolean or a number."""
    if name not in KNOWN:
        if not _ATTRIBUTE_NAME.fullmatch(name):
            raise EventError(f"{quote(name)}: expected an attribute name of a-z and 0-9", status=400)
        if isinstance(value, bool | int):
            return _ANYTHING.dump_json(value).decode()
    if not isinstance(value, str):
        raise EventError(f"{name}: expected text, got {quote(value)}", status=400)
    return _printable(name, value)


def _printable(name: str, value: str) -> str:
    if not value.isprintable():
        raise EventError(f"{name}: expected printable text, got {quote(value)}", status=400)
    return value


def _parse_time(text: str) -> datetime:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise EventError(f"time: {error}", status=400) from None


def _media_type(content_type: str) -> str:
    """Return the media type without parameters: `application/json` from `application/json; charset=utf-8`."""
    return content_type.partition(";")[0].strip().lower()


def parse_message(event: Event, expected: type[_MessageT]) -> _MessageT:
    """Parse the message in an event.

    Raises:
        EventError: The event has another type, or its data is invalid; the message names the field.
    """
    if event.type != expected.type:
        raise EventError(f"type: expected {expected.type}, got {quote(event.type)}")
    try:
        return expected.model_validate_json(event.data)
    except ValidationError as error:
        raise EventError(_first_problem("data", error)) from None


def parse_object(event: Event) -> dict[str, Any]:
    """Parse the Kubernetes object in an event of an ApiServerSource in Resource mode, or of this project's watch.

    Raises:
        EventError: The event has another type, or its data is not a Kubernetes object.
    """
    if not event.type.startswith("dev.knative.apiserver.resource."):
        raise EventError(f"type: expected dev.knative.apiserver.resource.*, got {quote(event.type)}")
    try:
        obj = _ANY_OBJECT.validate_json(event.data)
    except ValidationError as error:
        raise EventError(_first_problem("data", error)) from None
    for name in ("apiVersion", "kind", "metadata"):
        if name not in obj:
            raise EventError(f"data.{name}: expected the field of a Kubernetes object, got none")
    return obj


def _first_problem(root: str, error: ValidationError) -> str:
    """Return pydantic's first error as one line: the field, and the expected value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in (root, *first["loc"]))
    return f"{place}: {first['msg'][0].lower()}{first['msg'][1:]}"
