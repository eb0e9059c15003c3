"""CloudEvents on the wire: the only `import cloudevents`.

The SDK (1.12, pinned by functions-framework) checks neither id, source, type, time nor body: an unparsable JSON body
arrives as bytes without an error. Everything it lets through is checked here, once, so that a malformed event is
answered with a 4xx that names the field, and nothing behind this module meets one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from cloudevents.conversion import to_binary
from cloudevents.exceptions import GenericException
from cloudevents.http import CloudEvent, from_http
from pydantic import TypeAdapter, ValidationError

from shared.core.objects import parse_instant
from shared.errors import EventError
from shared.messages import Message, SweepStep

BODY_BYTES_MAX = 2 * 1024 * 1024
"""An object is at most 1.5 MiB in etcd; more than this is no object."""

TICK = "dev.knative.sources.ping"
"""What a PingSource sends; each tick is a sweep."""

_REQUIRED = ("id", "source", "type")
_STRUCTURED = "application/cloudevents+json"
_JSON = "application/json"
_MessageT = TypeVar("_MessageT", bound=Message)


@dataclass(frozen=True, slots=True)
class Event:
    """One CloudEvent 1.0.

    Attributes:
        id: Not empty, as `source` and `type`.
        subject: Empty where absent.
        data: The raw JSON; empty where there is none.
        extensions: `kind`, `namespace`, `knativebrokerttl` and the like, as text.
    """

    id: str
    source: str
    type: str
    subject: str = ""
    time: datetime | None = None
    data: bytes = b""
    extensions: Mapping[str, str] = field(default_factory=dict)

    def attributes(self) -> dict[str, str]:
        """All context attributes as text, absent ones left out: what a Trigger can filter on."""
        attributes = {"specversion": "1.0", "id": self.id, "source": self.source, "type": self.type}
        if self.subject:
            attributes["subject"] = self.subject
        if self.time is not None:
            attributes["time"] = self.time.isoformat().replace("+00:00", "Z")
        if self.data:
            attributes["datacontenttype"] = _JSON
        return {**attributes, **self.extensions}


def event_of(message: Message, *, source: str) -> Event:
    """One of our messages as an event; its id is the same for the same fact."""
    return Event(
        id=message.id,
        source=source,
        type=message.type,
        subject=message.subject,
        data=message.model_dump_json(by_alias=True).encode(),
    )


def to_http(event: Event) -> tuple[dict[str, str], bytes]:
    """Headers and body in binary mode.

    Raises:
        EventError: An attribute has characters that would break out of its header.
    """
    attributes = event.attributes()
    for name, value in attributes.items():
        if not value.isprintable():
            raise EventError(f"{name}: expected printable text, got {value!r}")
    headers, _ = to_binary(CloudEvent(attributes, event.data), data_marshaller=_as_it_is)
    return dict(headers), event.data


def parse_event(headers: Mapping[str, str], body: bytes) -> Event:
    """The event in an HTTP request or answer, in binary or structured mode.

    Args:
        headers: With lower-case names.
        body: As received.

    Raises:
        EventError: It is not one well-formed CloudEvent 1.0 with a JSON body; the message names the field.
    """
    if len(body) > BODY_BYTES_MAX:
        raise EventError(f"body: expected at most {BODY_BYTES_MAX} bytes, got {len(body)}", status=413)
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == _STRUCTURED:
        return _parse_structured(headers, body)
    if content_type.startswith("application/cloudevents"):
        raise EventError(f"content-type: expected one event, binary or {_STRUCTURED}, got {content_type}", status=415)
    if content_type != _JSON and body:
        raise EventError(f"content-type: expected {_JSON}, got {content_type or 'none'}", status=415)
    for name in ("specversion", *_REQUIRED):
        if not headers.get(f"ce-{name}"):
            raise EventError(f"ce-{name}: expected a value, got none", status=400)
    return _checked(headers, body)


def _parse_structured(headers: Mapping[str, str], body: bytes) -> Event:
    try:
        envelope = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise EventError(f"body: expected JSON, got {error}", status=400) from None
    if not isinstance(envelope, dict):
        raise EventError("body: expected a JSON object with the event's attributes", status=400)
    for name in ("specversion", *_REQUIRED):
        if not isinstance(envelope.get(name), str) or not envelope[name]:
            raise EventError(f"{name}: expected text that is not empty, got {envelope.get(name)!r}", status=400)
    return _checked(headers, body)


def _checked(headers: Mapping[str, str], body: bytes) -> Event:
    try:
        event = from_http(headers, body, data_unmarshaller=_as_it_is)
    except (GenericException, ValueError, TypeError, KeyError) as error:
        raise EventError(f"expected a CloudEvent, got {error}", status=400) from None
    attributes = {name: value for name, value in event.get_attributes().items() if value is not None}
    if attributes.get("specversion") != "1.0":
        raise EventError(f"specversion: expected 1.0, got {attributes.get('specversion')!r}", status=400)
    if not str(attributes.get("datacontenttype", _JSON)).startswith(_JSON):
        raise EventError(f"datacontenttype: expected {_JSON}, got {attributes['datacontenttype']!r}", status=415)
    known = {*_REQUIRED, "specversion", "datacontenttype", "dataschema", "subject", "time"}
    return Event(
        id=str(attributes["id"]),
        source=str(attributes["source"]),
        type=str(attributes["type"]),
        subject=str(attributes.get("subject", "")),
        time=_parse_time(attributes.get("time")),
        data=_raw(event.data),
        extensions={name: str(value) for name, value in attributes.items() if name not in known},
    )


def _parse_time(value: Any) -> datetime | None:
    try:
        return None if value is None else parse_instant(value)
    except ValueError as error:
        raise EventError(f"time: {error}", status=400) from None


def _raw(data: Any) -> bytes:
    """The data as bytes; a structured event's data was decoded with its envelope."""
    if isinstance(data, bytes):
        return data
    return b"" if data is None else json.dumps(data).encode()


def _as_it_is(data: Any) -> Any:
    return data


def parse_message(event: Event, expected: type[_MessageT]) -> _MessageT:
    """The message an event carries.

    Raises:
        EventError: Another type of event, or data that does not fit; the message names the field.
    """
    if event.type != expected.type:
        raise EventError(f"type: expected {expected.type}, got {event.type!r}")
    try:
        return expected.model_validate_json(event.data)
    except ValidationError as error:
        raise EventError(_first_problem(error)) from None


_ANY_OBJECT = TypeAdapter(dict[str, Any])


def parse_object(event: Event) -> dict[str, Any]:
    """The Kubernetes object in an event of an ApiServerSource in Resource mode, or of our own watch.

    Raises:
        EventError: Another type of event, or data that is no object.
    """
    if not event.type.startswith("dev.knative.apiserver.resource."):
        raise EventError(f"type: expected dev.knative.apiserver.resource.*, got {event.type!r}")
    try:
        obj = _ANY_OBJECT.validate_json(event.data)
    except ValidationError as error:
        raise EventError(_first_problem(error)) from None
    for name in ("apiVersion", "kind", "metadata"):
        if name not in obj:
            raise EventError(f"data.{name}: expected a Kubernetes object, got none")
    return obj


def parse_sweep(event: Event) -> SweepStep:
    """Where to sweep on: what `sweep.continue` says, or from the beginning at a tick of a PingSource.

    Raises:
        EventError: Another type of event, or data that does not fit.
    """
    return SweepStep() if event.type == TICK else parse_message(event, SweepStep)


def _first_problem(error: ValidationError) -> str:
    """One line of pydantic's findings: where, and what was expected."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in ("data", *first["loc"]))
    return f"{place}: {first['msg'][0].lower()}{first['msg'][1:]}"
