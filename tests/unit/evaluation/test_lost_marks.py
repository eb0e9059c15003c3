"""Objects that lose their mark with each stop."""

from datetime import timedelta

import pytest

from shared.core.deadlines.deadline import STOPS_MAX
from shared.core.deadlines.decide_stop import Stop, decide_stop
from shared.core.decision.decide import Ignore
from shared.core.decision.facts import Context
from shared.core.decision.namespaces import namespace_of
from shared.core.decision.reasons import Reason
from shared.evaluation import memories
from shared.evaluation.memories import LostMarks
from tests.builders import JOB, NOW, having, job, namespace, not_none, stamp


def due(**annotations):
    obj = having(job(active_deadline="1h", **annotations), "status.startTime", stamp(NOW - timedelta(hours=2)))
    decision = decide_stop(obj, JOB, NOW, Context(namespace=namespace_of(namespace())))
    assert isinstance(decision, Stop)
    return decision


@pytest.fixture
def lost():
    marks = LostMarks()
    for _ in range(STOPS_MAX):
        marks.stopped("a", due(), NOW)
    return marks


def test_object_that_lost_its_mark_too_often_is_left_alone_with_that_mark(lost):
    decision = lost.checked("a", due())

    assert isinstance(decision, Ignore)
    assert decision.reason is Reason.STOP_UNDONE
    mark = not_none(decision.facts.active.mark)
    assert (mark.at, mark.stops) == (NOW, STOPS_MAX)


def test_deletion_at_the_deadline_and_other_objects_are_not_concerned(lost):
    assert lost.checked("a", due(on_deadline="delete")) == due(on_deadline="delete")
    assert lost.checked("b", due()) == due()


def test_marked_stops_are_left_to_the_mark():
    marks, marked = LostMarks(), due(deadline_exceeded=stamp(NOW - timedelta(hours=3)), stops="1")
    for _ in range(STOPS_MAX):
        marks.stopped("a", marked, NOW)

    assert marks.checked("a", due()) == due()


def test_number_of_objects_is_bounded(lost, monkeypatch):
    monkeypatch.setattr(memories, "OBJECTS_MAX", 1)
    lost.stopped("b", due(), NOW)

    assert lost.checked("a", due()) == due()
