"""Durations and instants: formatted values can be parsed, and other texts only raise ValueError."""

from datetime import UTC, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.values.objects import format_instant, parse_instant, quote
from shared.core.values.timing import DURATION_MAX, format_duration, parse_duration
from tests.properties.strategies import any_text, anything, duration_texts, instant_texts, instants, result_of

searching = settings(max_examples=150, deadline=None)
texts = any_text | duration_texts | instant_texts
durations = st.integers(0, int(DURATION_MAX.total_seconds())).map(lambda seconds: timedelta(seconds=seconds))


class TestDurations:
    @searching
    @given(durations)
    def test_written_duration_is_read_back(self, duration):
        assert parse_duration(format_duration(duration)) == duration

    @searching
    @given(durations)
    def test_plain_seconds_are_read(self, duration):
        assert parse_duration(str(int(duration.total_seconds()))) == duration

    @searching
    @given(texts)
    def test_any_text_is_a_duration_within_bounds_or_a_value_error(self, text):
        duration = result_of(ValueError, parse_duration, text)

        if isinstance(duration, ValueError):
            assert str(duration).startswith("expected ")
            assert str(duration).isprintable()
        else:
            assert timedelta(0) <= duration <= DURATION_MAX
            assert text.isascii()
            assert text == text.strip()

    @searching
    @given(st.timedeltas())
    def test_any_duration_can_be_written(self, duration):
        assert format_duration(duration).lstrip("-")[0].isdigit()

    @searching
    @given(durations, durations)
    def test_different_durations_are_written_differently(self, one, other):
        assert (format_duration(one) == format_duration(other)) == (one == other)


class TestInstants:
    @searching
    @given(instants)
    def test_written_instant_is_read_back(self, instant):
        assert parse_instant(format_instant(instant)) == instant

    @searching
    @given(anything)
    def test_any_json_is_an_instant_or_a_value_error(self, value):
        instant = result_of(ValueError, parse_instant, value)

        if isinstance(instant, ValueError):
            assert str(instant).startswith("expected an RFC 3339 time")
            assert str(instant).isprintable()
        else:
            assert instant.tzinfo is UTC

    @searching
    @given(instant_texts)
    def test_instant_of_any_text_is_unchanged_by_writing_and_reading(self, text):
        instant = result_of(ValueError, parse_instant, text)

        assert isinstance(instant, ValueError) or parse_instant(format_instant(instant)) == instant


class TestQuotes:
    @searching
    @given(anything)
    def test_any_json_is_quoted_in_short(self, value):
        assert len(quote(value)) < 800
        assert quote(value).isprintable()
