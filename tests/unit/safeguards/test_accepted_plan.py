"""The accepted plan in the shared state: written beside the other values, and read totally."""

import pytest

from shared.safeguards.accepted_plan import ACCEPTED_PLAN, AcceptedPlan, parse_accepted_plan, with_accepted_plan
from shared.safeguards.state_schema import BrakeStop, parse_state, with_stop, without_stop
from tests.builders import NOW

PLAN = AcceptedPlan(NOW, "ann", frozenset(["0f3c", "9a1b"]))


def test_accepted_plan_is_read_as_it_was_written_and_replaces_an_earlier_one():
    data = with_accepted_plan(with_accepted_plan({}, AcceptedPlan(NOW, "bob", frozenset(["x"]))), PLAN)
    assert parse_accepted_plan(data) == PLAN
    assert str(PLAN).startswith("on 2026-")


def test_brake_and_accepted_plan_leave_each_other():
    stop = BrakeStop(NOW, "maintenance", "me")
    data = with_accepted_plan(with_stop({}, stop), PLAN)
    assert parse_state(data).stop == stop
    assert parse_accepted_plan(without_stop(data)) == PLAN


@pytest.mark.parametrize("text", ["", "yes", "[]", "{}", '{"rules":["a"]}', '{"at":"2026-01-02T03:04:05Z","rules":1}'])
def test_value_that_cannot_be_read_counts_as_none(text):
    assert parse_accepted_plan({ACCEPTED_PLAN: text}) is None
