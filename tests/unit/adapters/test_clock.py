"""The estimate of the API server's clock: it may be late, but is never ahead."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.clock import SAMPLE_AGE_MAX, SERVER_AHEAD_MAX, ServerClock

START = datetime(2026, 3, 14, 15, 9, 26, 535_000, tzinfo=UTC)
ROUNDING = timedelta(microseconds=2)
"""The resolution of a float of seconds since 1970."""


class Machine:
    """A monotonic clock, and a server whose wall clock may be set."""

    def __init__(self):
        self.seconds = 1_000.25
        self.set_by = 0.0

    def monotonic(self):
        return self.seconds

    def server_now(self):
        return START + timedelta(seconds=self.seconds - 1_000.25 + self.set_by)

    def date(self):
        return format_datetime(self.server_now().replace(microsecond=0), usegmt=True)


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def clock(machine):
    return ServerClock(machine.monotonic)


def test_clock_is_unknown_before_the_first_answer(clock):
    assert clock.now() is None


def test_answer_sets_the_time_of_its_date_header(clock, machine):
    assert clock.observe(machine.date()) == machine.server_now().replace(microsecond=0)


def test_clock_advances_between_answers(clock, machine):
    clock.observe(machine.date())
    machine.seconds += 5

    behind = machine.server_now() - clock.now()
    assert timedelta(0) <= behind <= timedelta(seconds=1)


def test_closest_of_many_answers_is_used(clock, machine):
    for _ in range(40):
        clock.observe(machine.date())
        machine.seconds += 0.13

    assert machine.server_now() - clock.now() < timedelta(seconds=0.2)


def test_old_sample_is_not_used(clock, machine):
    clock.observe(machine.date())
    machine.seconds += SAMPLE_AGE_MAX + 0.001

    assert clock.now() is None


def test_server_clock_set_back_is_followed_within_the_age_of_a_sample(clock, machine):
    clock.observe(machine.date())
    machine.set_by = -3_600.0
    for _ in range(int(SAMPLE_AGE_MAX) + 2):
        machine.seconds += 1
        clock.observe(machine.date())

    assert clock.now() <= machine.server_now() + ROUNDING


def test_server_clock_set_forward_is_followed_at_once(clock, machine):
    clock.observe(machine.date())
    machine.set_by = 3_600.0
    clock.observe(machine.date())

    assert machine.server_now() - clock.now() <= timedelta(seconds=1)


@pytest.mark.parametrize(
    "date",
    [
        None,
        "",
        "soon",
        "0",
        "Sat, 99 Foo 2026 00:00:00 GMT",
        "Sat, 14 Mar 99999999999999 15:09:26 GMT",
        "Sat, 14 Mar 2026 15:09:26",  # of no zone: read as local time it could be hours ahead
        "Sat, 14 Mar 2026 15:09:26 -0000",
        "Sat Mar 14 15:09:26 2026",
        "2026-03-14T15:09:26Z",
        "Sat, 14 Mar 2026 15:09:26 +9999",
    ],
)
def test_invalid_date_header_is_no_sample(clock, machine, date):
    assert clock.observe(date) is None
    assert clock.now() is None


def test_date_header_of_another_zone_is_the_same_time(clock):
    assert clock.observe("Sat, 14 Mar 2026 17:09:26 +0200") == datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)


@given(st.text(max_size=40) | st.from_regex(r"[A-Z][a-z]{2}, \d{1,2} Mar \d{1,9} \d\d:\d\d:\d\d [+-]\d{4}"))
def test_any_date_header_is_a_time_or_none(date):
    observed = ServerClock(lambda: 1.0).observe(date)

    assert observed is None or observed.utcoffset() == timedelta(0)


seconds = st.floats(0, 90, allow_nan=False)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("answer"), seconds),
            st.tuples(st.just("pass"), seconds),
            st.tuples(st.just("set"), st.floats(0, 7_200)),
        ),
        max_size=40,
    )
)
def test_clock_is_never_ahead_of_a_server_that_only_steps_forward(steps):
    machine = Machine()
    clock = ServerClock(machine.monotonic)
    for what, amount in steps:
        if what == "set":
            machine.set_by += amount
        date = machine.date()
        machine.seconds += 0.0 if what == "set" else amount
        if what == "answer":  # written by the server first, arrived that much later
            clock.observe(date)
        known = clock.now()
        assert known is None or known <= machine.server_now() + ROUNDING


@given(st.lists(st.tuples(seconds, st.floats(-7_200, 7_200) | st.just(0.0)), max_size=40))
def test_clock_is_ahead_of_a_server_set_back_for_the_age_of_a_sample_at_most(steps):
    machine = Machine()
    clock = ServerClock(machine.monotonic)
    set_back_at = -1_000_000.0
    for amount, set_by in steps:
        machine.seconds += amount
        machine.set_by += set_by
        set_back_at = machine.seconds if set_by < 0 else set_back_at
        clock.observe(machine.date())
        known = clock.now()
        if machine.seconds - set_back_at > SAMPLE_AGE_MAX:
            assert known is None or known <= machine.server_now() + ROUNDING


# A Date that is far ahead of this machine's clock


def test_date_beyond_the_lead_limit_is_replaced_by_this_machines_clock(machine):
    clock = ServerClock(machine.monotonic, lambda: START)
    machine.set_by = SERVER_AHEAD_MAX.total_seconds()
    assert clock.observe(machine.date()) == machine.server_now().replace(microsecond=0)
    assert clock.ahead == timedelta(0)

    machine.set_by = 3_600.0
    assert clock.observe(machine.date()) == START
    assert abs(clock.ahead - timedelta(hours=1)) < timedelta(seconds=1)
    assert clock.now() == START
    assert abs(clock.ahead - timedelta(hours=1)) < timedelta(seconds=1)

    machine.set_by = 0.0
    assert clock.observe(machine.date()) == machine.server_now().replace(microsecond=0)
    assert clock.ahead == timedelta(0)
    assert clock.now() <= machine.server_now()


def test_date_behind_this_machines_clock_is_used(machine):
    clock = ServerClock(machine.monotonic, lambda: START + timedelta(hours=1))
    assert clock.observe(machine.date()) == machine.server_now().replace(microsecond=0)
    assert clock.ahead == timedelta(0)
