"""CloudEvents in HTTP: written and read in both modes."""

import base64
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.events.cloudevents import (
    EVENT_BYTES_MAX,
    Event,
    event_of,
    parse_event,
    parse_message,
    parse_object,
    parse_sweep,
    to_http,
)
from shared.core.values.objects import ObjectRef
from shared.errors import EventError
from shared.messages import ObjectDeleted, Purpose, SweepStep, Timer, TimersSet
from tests.builders import NOW

HEADERS = {"content-type": "application/json", "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
PRINTABLE = st.text(min_size=1, max_size=30).filter(str.isprintable)
INSTANTS = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def envelope(**attributes):
    written = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **attributes}
    return {"content-type": "application/cloudevents+json; charset=utf-8"}, json.dumps(written).encode()


@given(
    st.builds(
        Event,
        id=PRINTABLE,
        source=PRINTABLE,
        type=PRINTABLE,
        subject=st.just("") | PRINTABLE,
        time=INSTANTS,
        data=st.sampled_from([b"", b"{}", b'{"a": "\xc3\xa9"}', b"[1]"]),
        extensions=st.dictionaries(st.sampled_from(["kind", "namespace", "knativebrokerttl"]), PRINTABLE),
    )
)
def test_written_event_can_be_read(event):
    headers, body = to_http(event)

    assert all(value.isascii() and value.isprintable() and " " not in value for value in headers.values())
    assert parse_event(headers, body) == event


@pytest.mark.parametrize(
    ("text", "encoded"),
    [("a b", "a%20b"), ('"', "%22"), ("50%", "50%25"), ("%41", "%2541"), ("é", "%C3%A9"), ("a/b:c+d", "a/b:c+d")],
)
def test_headers_are_percent_encoded_as_cloudevents_requires(text, encoded):
    headers, _ = to_http(Event(id=text, source="/s", type="t"))

    assert headers["ce-id"] == encoded


@pytest.mark.parametrize("percent", ["100%", "%", "%zz", "%4"])
def test_unencoded_header_is_accepted_if_printable(percent):
    assert parse_event({**HEADERS, "ce-id": percent}, b"").id == percent


@pytest.mark.parametrize("character", ["\n", "\r", "\0", "\x7f", "\ud800"], ids=ascii)
def test_unprintable_attribute_is_not_written(character):
    with pytest.raises(EventError, match=r"^subject: expected printable text"):
        to_http(Event(id="1", source="/s", type="t", subject=f"a{character}ce-id: 2"))


def test_binary_mode_data_is_unchanged():
    data = b'{"b":1, "a":1.50, "a":2}'

    assert parse_event(HEADERS, data).data == data


def test_structured_mode_data_equals_binary_mode_data():
    data = {"a": [1, None, "é", {"b": 1.5}], "big": 10**40}

    assert json.loads(parse_event(*envelope(data=data)).data) == data


def test_base64_data_is_decoded():
    encoded = base64.b64encode(b'{"a":1}').decode()

    assert parse_event(*envelope(data_base64=encoded)).data == b'{"a":1}'


def test_absent_data_is_empty_and_null_data_is_null():
    assert parse_event(*envelope()).data == b""
    assert parse_event(*envelope(data=None)).data == b"null"


def test_absent_time_is_none():
    assert parse_event(HEADERS, b"").time is None
    assert parse_event(*envelope()).time is None


def test_optional_attributes_are_read_in_both_modes():
    written = {"time": "2026-03-14T16:09:26+01:00", "subject": "s", "dataschema": "x:y", "kind": "Job"}
    wanted = Event("1", "/s", "t", "s", NOW, b"", {"kind": "Job"})

    assert parse_event({**HEADERS, **{f"ce-{name}": value for name, value in written.items()}}, b"") == wanted
    assert parse_event(*envelope(**written)) == wanted


def test_null_attribute_is_absent():
    assert parse_event(*envelope(subject=None, time=None, kind=None)) == Event("1", "/s", "t")


def test_extensions_are_text_for_any_json_value():
    event = parse_event(*envelope(sampled=True, knativebrokerttl=255, kind="Job"))

    assert event.extensions == {"sampled": "true", "knativebrokerttl": "255", "kind": "Job"}


def test_body_beyond_the_limit_is_not_parsed():
    with pytest.raises(EventError, match=r"^body: ") as error:
        parse_event(HEADERS, b"{" * (EVENT_BYTES_MAX + 1))

    assert error.value.status == 413


def test_body_with_too_many_values_is_not_parsed():
    with pytest.raises(EventError, match=r"^body: expected at most 400000 values") as error:
        parse_event(HEADERS, b'{"a":[' + b"{}," * 250_000 + b"1]}")

    assert error.value.status == 413


@pytest.mark.parametrize("levels", [201, 7_000, 100_000])
def test_deeply_nested_object_is_an_event_error(levels):
    """The parser takes 200 levels, which CEL reads without harm."""
    event = Event("1", "/s", "dev.knative.apiserver.resource.add", data=b'{"a":' * levels + b"1" + b"}" * levels)
    with pytest.raises(EventError, match="recursion limit"):
        parse_object(event)


@pytest.mark.parametrize("wrong", [["x" * 10_000], "x" * 10_000, {"y" * 10_000: 1}])
@pytest.mark.parametrize("field", ["id", "type", "specversion", "datacontenttype", "time"])
def test_error_quotes_only_a_few_words(field, wrong):
    with pytest.raises(EventError) as error:
        parse_message(parse_event(*envelope(**{field: wrong})), Timer)

    assert len(str(error.value)) < 250


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12)), st.binary(max_size=80))
def test_any_request_is_an_event_or_an_event_error(headers, body):
    with suppress(EventError):
        assert parse_event({**HEADERS, **headers}, body).id


COUNTS = st.dictionaries(st.text(), st.integers(min_value=0, max_value=1_000_000), max_size=10)
NAMES = st.lists(PRINTABLE).map(tuple)


@given(st.builds(SweepStep, kinds=NAMES, continueToken=..., step=..., whole=..., passedOver=NAMES, counts=COUNTS))
def test_message_is_unchanged_by_writing_and_reading(message):
    event = parse_event(*to_http(event_of(message.model_copy(update={"sweep_id": "s"}), source="/s")))

    assert parse_sweep(event) == message.model_copy(update={"sweep_id": "s"})


def test_ping_event_starts_a_sweep_from_the_beginning():
    assert parse_sweep(Event("1", "/s", "dev.knative.sources.ping", data=b"whatever")) == SweepStep()


def test_json_names_are_camel_case():
    ref = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "n", "uid": "u"}
    timers = TimersSet.model_validate({"timers": [{"ref": ref, "purpose": "expire", "dueAt": "2026-01-01T00:00:00Z"}]})

    written = json.loads(event_of(timers, source="/s").data)

    timer = {"ref": ref, "purpose": "expire", "dueAt": "2026-01-01T00:00:00Z", "attempts": 0}
    assert written == {"timers": [timer]}


def test_only_what_occurred_has_a_time():
    ref = ObjectRef("batch/v1", "Job", "ci", "build", "uid-1")
    timer = Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=NOW)
    about = {"ref": ref, "outcome": None, "finished_at": None, "ttl_from": "a", "lateness_seconds": 1.5}
    deleted = ObjectDeleted(**about, due_at=NOW, deleted_at=NOW + timedelta(seconds=1.5))

    assert to_http(event_of(deleted, source="/s"))[0]["ce-time"] == "2026-03-14T15:09:27.500000Z"
    assert "ce-time" not in to_http(event_of(timer, source="/s"))[0]


def test_timer_of_a_later_version_is_sent_with_its_purpose():
    """A stored purpose that this version does not know is plain text."""
    ref = ObjectRef("batch/v1", "Job", "ci", "build", "uid-1")
    due_at = datetime(2026, 1, 1, tzinfo=UTC)
    timer = Timer.model_construct(ref=ref, purpose=cast("Purpose", "later"), due_at=due_at, attempts=0)

    headers, body = to_http(event_of(timer, source="/s"))

    assert headers["ce-purpose"] == json.loads(body)["purpose"] == "later"
    assert headers["ce-id"] == "uid-1/later/2026-01-01T00:00:00+00:00"
