"""Check each CloudEvent that the code under test sends by its JSON Schema in docs/reference."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

from jsonschema import Draft202012Validator, FormatChecker

from shared.adapters.archive import webhook
from shared.adapters.events import answers, publisher
from shared.adapters.events.cloudevents import Event, event_of, to_http
from shared.adapters.timers.cloudtasks import tasks
from shared.core.values.objects import parse_instant
from shared.messages import Message
from shared.standalone import broker
from tests.reference.asyncapi import document
from tests.reference.pages import FOLDER

SENDERS = (answers, publisher, broker, webhook, tasks)
"""The modules that make an event of a message and send it."""


_FORMATS = FormatChecker(())


@_FORMATS.checks("date-time", raises=ValueError)
def _is_instant(value: object) -> bool:
    """An instant in UTC, as the pages of docs/reference say."""
    return not isinstance(value, str) or (value.endswith("Z") and parse_instant(value).tzinfo is not None)


@cache
def data_validator(event_type: str) -> Draft202012Validator:
    """The validator of the committed schema of a type."""
    name = event_type.removeprefix("dev.ttlafterfinished.")
    schema = json.loads((FOLDER / "schemas" / f"{name}.json").read_text())
    return Draft202012Validator(schema, format_checker=_FORMATS)


@cache
def header_validator(event_type: str) -> Draft202012Validator:
    """The validator of the attributes, by the AsyncAPI document."""
    messages = document()["components"]["messages"]
    (headers,) = [one["headers"] for one in messages.values() if one["name"] == event_type]
    return Draft202012Validator(headers)


@dataclass
class SentEvents:
    """What was sent.

    Attributes:
        types: How many events of each type.
        problems: What their schemas do not allow.
    """

    types: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def check(self, message: Message, *, source: str) -> Event:
        """Make the event, as the code does, and check it."""
        event = event_of(message, source=source)
        headers, body = to_http(event)
        self.types[event.type] += 1
        found: list[Any] = [*data_validator(event.type).iter_errors(json.loads(body))]
        found += header_validator(event.type).iter_errors(headers)
        self.problems += [f"{event.type}: {error.json_path}: {error.message}" for error in found]
        return event


@contextmanager
def checking_sent_events(*more: ModuleType) -> Iterator[SentEvents]:
    """Check each event that is sent meanwhile; fail at the end if a schema does not allow one.

    Args:
        more: Other modules that make events of messages.
    """
    sent = SentEvents()
    patches = [patch.object(module, "event_of", sent.check) for module in (*SENDERS, *more)]
    for one in patches:
        one.start()
    try:
        yield sent
    finally:
        for one in patches:
            one.stop()
    assert sent.problems == []
