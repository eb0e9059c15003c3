"""An event as this project writes it, and as the SDK of CloudEvents writes it."""

from datetime import UTC, datetime

from cloudevents.conversion import to_binary
from cloudevents.http import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.events.cloudevents import _PLAIN, Event, to_http

PLAIN = "".join(chr(code) for code in range(0x20, 0x7F))
TEXT = (st.text(PLAIN, min_size=1, max_size=30) | st.text(min_size=1, max_size=12)).filter(str.isprintable)
INSTANTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
# The SDK writes no extension of these names: they are parts of its own event.
NAMES = st.from_regex("[a-z0-9]{1,9}", fullmatch=True).filter(
    lambda name: name not in {"data", "extensions", "datacontenttype", "specversion", "id", "source", "type", "time"}
)
EVENTS = st.builds(
    Event,
    id=TEXT,
    source=TEXT,
    type=TEXT,
    subject=st.just("") | TEXT,
    time=INSTANTS,  # for an event without a time, the SDK invents one
    data=st.sampled_from([b"", b"{}", b'{"a": "\xc3\xa9"}', b"[1]"]),
    extensions=st.dictionaries(NAMES, TEXT, max_size=4),
)


def written_by_the_sdk(event):
    headers, body = to_binary(CloudEvent(event.attributes(), event.data), data_marshaller=lambda data: data)
    return {name: percent_encoded(value) for name, value in headers.items()}, body


def percent_encoded(value):
    """As CloudEvents' binding to HTTP requires; the SDK leaves this to its caller."""
    return "".join(one if one in _PLAIN else "".join(f"%{byte:02X}" for byte in one.encode()) for one in value)


@given(EVENTS)
def test_written_event_equals_that_of_the_sdk(event):
    assert to_http(event) == written_by_the_sdk(event)
