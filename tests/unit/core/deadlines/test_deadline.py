"""Deadlines as annotations set them."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.core.deadlines.deadline import Deadline, InvalidDeadlineError, Stage, annotated_deadlines, read_deadline
from tests.builders import NOW

LAST = datetime.max.replace(tzinfo=UTC)
SOURCE = "ttlafterfinished.dev/active-deadline"


@pytest.mark.parametrize(("text", "seconds"), [("1", 1), ("90s", 90), ("1h30m", 5_400), ("36500d", 36_500 * 86_400)])
def test_deadline_is_a_duration(text, seconds):
    assert annotated_deadlines({"active-deadline": text}) == {
        Stage.ACTIVE: Deadline(SOURCE, timedelta(seconds=seconds))
    }


@pytest.mark.parametrize("action", ["stop", "suspend", "delete"])
def test_action_alone_sets_no_deadline(action):
    assert annotated_deadlines({"on-deadline": action}) == {}


def test_deadline_may_be_never():
    assert annotated_deadlines({"active-deadline": "never"}) == {Stage.ACTIVE: Deadline(SOURCE, None)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", "expected a duration of more than 0, got '0'"),
        ("0h0m", "expected a duration of more than 0"),
        ("-1", "expected never, seconds (3600) or a duration"),
        ("soon", "expected never, seconds (3600) or a duration"),
        (str(10**20), "expected never, at most 36500d"),
        ("36501d", "expected never, at most 36500d"),
        ([], "expected text, got a list"),
        (60, "expected text, got 60"),
        (None, "expected text, got null"),
    ],
)
def test_value_that_is_no_deadline_is_named_with_what_was_expected(value, expected):
    with pytest.raises(InvalidDeadlineError) as raised:
        annotated_deadlines({"active-deadline": value})
    assert str(raised.value).startswith(f"annotation {SOURCE}: ")
    assert expected.replace("'", '"') in str(raised.value).replace("'", '"')


@pytest.mark.parametrize("value", ["never", "0", "soon"])
def test_maximum_is_a_duration_and_not_never(value):
    with pytest.raises(InvalidDeadlineError, match=r"max-active-deadline: expected (seconds|a duration)"):
        read_deadline("max-active-deadline", value, may_be_never=False)


@pytest.mark.parametrize("action", ["", "STOP", 5, None, [], {}])
def test_other_action_is_an_error_that_names_the_actions(action):
    with pytest.raises(InvalidDeadlineError, match="on-deadline: expected one of stop, suspend, delete, got"):
        annotated_deadlines({"active-deadline": "1h", "on-deadline": action})


@pytest.mark.parametrize(
    ("after", "started_at", "due_at"),
    [
        (timedelta(hours=1), NOW, NOW + timedelta(hours=1)),
        (timedelta(hours=1), LAST, LAST),
        (timedelta(hours=1), None, None),
        (None, NOW, None),
    ],
)
def test_object_is_due_its_deadline_after_its_start(after, started_at, due_at):
    assert Deadline(SOURCE, after).due_at(started_at) == due_at


def test_annotations_set_the_deadline_of_each_stage():
    found = annotated_deadlines({"active-deadline": "never", "pending-deadline": "1m"})

    assert {stage: one.after for stage, one in found.items()} == {
        Stage.ACTIVE: None,
        Stage.PENDING: timedelta(minutes=1),
    }
