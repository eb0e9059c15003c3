"""Events of the journal that a user has forged: each is read or left out, and none makes the others unreadable."""

import json
from datetime import timedelta
from typing import Any

import pytest

from shared.adapters.kubernetes.journal_events import COUNTED, RECORD, Sum, event_of, event_of_sum, key_of
from shared.adapters.kubernetes.journal_reading import COUNT_MAX, DATA_CHARACTERS_MAX, EVENT_AHEAD_MAX, parse_event
from shared.cli.objects.journal import entry_as_json
from shared.cli.ui.overview import deletions_as_json
from shared.core.values.objects import format_instant
from tests.builders import NOW, not_none
from tests.journals import entry


def forged(annotation: str, text: str) -> dict[str, Any]:
    total = event_of_sum(key_of(entry()), Sum(2, NOW, NOW), "x", number=1)
    made = event_of(entry(), "x") if annotation == RECORD else total
    return made | {"metadata": {**made["metadata"], "annotations": {annotation: text}}}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        '{"a":' * 2_000,
        '{"latenessSeconds": 1' + "0" * 400 + "}",
        '{"latenessSeconds": NaN}',
        '{"latenessSeconds": -Infinity}',
        '{"reason": "\\ud800", "ttlFrom": ["x"]}',
    ],
    ids=lambda text: text[:24],
)
def test_record_of_any_text_is_shown(text):
    one = not_none(parse_event(forged(RECORD, text)))
    shown = deletions_as_json([one], [])
    assert json.dumps(shown, ensure_ascii=False, allow_nan=False).encode()
    assert (shown["rows"][0]["name"], shown["rows"][0]["latenessSeconds"]) == ("a", None)
    assert json.dumps(entry_as_json(one))


def test_record_that_is_too_long_is_not_kept_in_memory():
    padding = "x" * DATA_CHARACTERS_MAX
    assert not_none(parse_event(forged(RECORD, json.dumps({"reason": padding})))).data == {}


@pytest.mark.parametrize(("place", "regarding"), [("evil", "ci"), ("evil", ""), ("default", "kube-system")])
def test_event_about_an_object_of_another_namespace_is_not_read(place, regarding):
    event = event_of(entry(namespace=regarding), "x")
    assert parse_event(event) is not None
    assert parse_event(event | {"metadata": {**event["metadata"], "namespace": place}}) is None


@pytest.mark.parametrize("count", ["9" * 4_300, "1e9", "true", "0", str(COUNT_MAX + 1)], ids=lambda text: text[:9])
def test_count_that_no_series_can_have_is_not_read(count):
    about = f'{{"count": {count}, "lastAt": "2026-01-02T03:04:05Z"}}'
    assert parse_event(forged(COUNTED, about)) is None


@pytest.mark.parametrize("annotation", [RECORD, COUNTED])
def test_event_of_the_future_is_as_old_as_the_api_server_says(annotation):
    far = "9999-01-01T00:00:00.000000Z"
    event = forged(annotation, f'{{"count": 2, "lastAt": "{far}"}}') | {"eventTime": far}
    stored = event | {"metadata": {**event["metadata"], "creationTimestamp": format_instant(NOW)}}
    assert not_none(parse_event(stored)).at == NOW


def test_process_whose_clock_is_ahead_keeps_its_time():
    event = event_of(entry(), "x")
    earlier = format_instant(NOW - EVENT_AHEAD_MAX + timedelta(seconds=1))
    stored = event | {"metadata": {**event["metadata"], "creationTimestamp": earlier}}
    assert not_none(parse_event(stored)).at == not_none(parse_event(event)).at
