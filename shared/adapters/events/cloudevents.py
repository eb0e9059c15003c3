"""CloudEvents in HTTP requests, by the rules of CloudEvents 1.0, what functions parse of them, and their spans.

No module imports the SDK (1.12, pinned by functions-framework). Its reader does not check id, source, type, time or
body, invents a missing time, and accepts a JSON object as an attribute. This module rejects a malformed event with a
4xx that names the field and quotes at most a few words. Later modules get valid events only. The SDK's writer takes ten
times as long as `to_http`, and invents a missing time too; tests/properties/test_cloudevents.py compares both.

An event carries the span that made it in `traceparent`, the distributed tracing extension of CloudEvents. Its handling
is a child of that span, and linked to it: docs/decisions/0038-one-trace.md. `tracestate` is dropped. The attributes are
those of https://opentelemetry.io/docs/specs/semconv/cloudevents/cloudevents-spans/ and
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.
"""

import base64
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote as percent_encode
from urllib.parse import unquote as percent_decode

from pydantic import TypeAdapter, ValidationError

from shared.adapters.tracing.current import (
    NAMESPACE,
    Kind,
    Span,
    current_traceparent,
    get_name_attribute,
    get_tracer,
    within,
    within_span,
)
from shared.core.values.jsontext import JSON_VALUES_MAX, count_at_most
from shared.core.values.objects import parse_instant, quote
from shared.core.values.traceparent import TRACEPARENT, find_traceparent
from shared.errors import EventError
from shared.messages import ArchiveDone, Message, ObjectArchived, Proof, Purpose, SweepStep, Timer, TimersSet
from shared.ports import FiredTask

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


def parse_timers(event: Event) -> TimersSet | FiredTask | None:
    """Parse the timers to set: those of a `timer.set` event, or that of an `object.archived` event, if it has one.

    The timers carry the trace of the event.

    A `timer.fired` event with the attribute `task` is a task of Cloud Tasks. The Broker's `timer.fired` has none.

    Raises:
        EventError: The event has another type, or its data is invalid.
    """
    if event.type == Timer.type and event.extensions.get("task"):
        return _parse_task(event)
    if event.type != ObjectArchived.type:
        return _traced(parse_message(event, TimersSet))
    timer = parse_message(event, ObjectArchived).timer
    return None if timer is None else _traced(TimersSet(timers=(timer,)))


def _traced(wanted: TimersSet) -> TimersSet:
    update = {"traceparent": current_traceparent()}
    if not update["traceparent"]:
        return wanted
    return wanted.model_copy(update={"timers": tuple(one.model_copy(update=update) for one in wanted.timers)})


def _parse_task(event: Event) -> FiredTask:
    try:
        scheduled_at = parse_instant(event.extensions.get("scheduledat"))
    except ValueError as error:
        raise EventError(f"scheduledat: {error}") from None
    timer = parse_message(event, Timer).model_copy(update={"traceparent": current_traceparent()})
    return FiredTask(timer, event.extensions["task"], scheduled_at)


def parse_archive_timer(event: Event) -> Timer:
    """Parse what has an object archived: a `timer.fired` event, or `archive.done`, after which it is looked up again.

    Raises:
        EventError: The event has another type, or its data is invalid.
    """
    if event.type != ArchiveDone.type:
        return parse_message(event, Timer)
    done = parse_message(event, ArchiveDone)
    return Timer(ref=done.ref, purpose=Purpose.ARCHIVE, due_at=done.archived_at)


_PROOF = "proof"


def with_proof(event: Event, proof: Proof) -> Event:
    """Return the event of a changed object with the proof of the decision about it."""
    return replace(event, extensions={**event.extensions, _PROOF: proof.dump()})


def parse_proof(event: Event) -> Proof | None:
    """Return the proof of the decision about the object of an event; None without one that can be read."""
    try:
        return Proof.read(json.loads(event.extensions.get(_PROOF, "null")))  # noqa: TID251 - a short header
    except (ValueError, RecursionError):
        return None


PURPOSE = "purpose"
"""The extension attribute of a tick on which the Triggers filter: `usage`, or absent for a sweep."""


def check_tick(event: Event) -> None:
    """Check that an event is a tick; it has no data.

    Raises:
        EventError: The event has another type.
    """
    if event.type != TICK:
        raise EventError(f"type: expected {TICK}, got {quote(event.type)}")


def parse_sweep(event: Event) -> SweepStep:
    """Parse the step of a sweep: the one in a `sweep.continue` event, or the first step for a PingSource event.

    Raises:
        EventError: The event has another type, or its data is invalid.
    """
    return SweepStep() if event.type == TICK else parse_message(event, SweepStep)


_CHARACTERS_MAX = 500
"""Characters of an attribute of a span, since a sender sets those of its events."""


def is_traced(event: Event) -> bool:
    """Return whether an event has a trace, or starts one."""
    return TRACEPARENT in event.extensions or get_tracer() is not None


@contextmanager
def handling(event: Event, function: str, headers: Mapping[str, str]) -> Iterator[Span | None]:
    """Handle an event within its trace; in a span, if this process sends traces.

    Args:
        event: The event.
        function: The name of the function that handles it.
        headers: Those of the request. A source or a Broker that traces its requests names its span in them.
    """
    tracer = get_tracer()
    parent = find_traceparent(event.extensions.get(TRACEPARENT))
    if tracer is None:
        with within(parent):
            yield None
        return
    parent = parent or find_traceparent(headers.get(TRACEPARENT))
    about = _about(event, "process") | {"code.function.name": f"functions.{function}"}
    name = f"CloudEvents Process {about['cloudevents.event_type']}"
    with within_span(tracer.start(name, Kind.CONSUMER, about, parent=parent, is_linked=bool(parent))) as span:
        yield span


async def send_traced(send: Callable[[Event], Awaitable[object]], event: Event) -> None:
    """Send an event of this process's own; the span of its sending starts its trace, if this process sends traces."""
    tracer = get_tracer()
    if tracer is None:
        await send(event)
        return
    about = _about(event, "send")
    name = f"CloudEvents Create {about['cloudevents.event_type']}"
    parent = current_traceparent()
    with within_span(tracer.start(name, Kind.PRODUCER, about, parent=parent, is_linked=False)) as span:
        await send(replace(event, extensions={**event.extensions, TRACEPARENT: span.traceparent}))


def _about(event: Event, operation: str) -> dict[str, str]:
    values = {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": event.source,
        "cloudevents.event_spec_version": "1.0",
        "cloudevents.event_type": event.type,
        "cloudevents.event_subject": event.subject,
        "messaging.system": "knative",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.message.id": event.id,
        NAMESPACE: event.extensions.get("namespace", ""),
    }
    group = event.extensions.get("apiversion", "").rpartition("/")[0]
    if attribute := get_name_attribute(group, event.extensions.get("kind", "")):
        values[attribute] = event.extensions.get("name", "")
    return {name: value[:_CHARACTERS_MAX] for name, value in values.items() if value}
