"""Which timers are one message in the stream of NATS."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.adapters.timers.nats.schedules import message_of
from shared.core.values.objects import ObjectRef
from shared.core.values.timing import backoff_seconds
from shared.messages import Purpose, Timer
from tests.builders import NOW

REF = ObjectRef("batch/v1", "Job", "ci", "build-1", "uid-1")


def subject_of(timer: Timer, pause: float = 0.0, at=None) -> str:
    return message_of("timers", timer, at or timer.due_at, pause).subject


def timer_of(
    ref: ObjectRef = REF, *, attempts: int = 0, purpose: Purpose = Purpose.EXPIRE, later: float = 0.0
) -> Timer:
    return Timer(ref=ref, purpose=purpose, due_at=NOW + timedelta(seconds=later), attempts=attempts)


def test_same_timer_is_one_message_and_every_other_timer_another():
    others = [timer_of(later=0.000001), timer_of(purpose=Purpose.ENFORCE), timer_of(replace(REF, uid="uid-2"))]
    assert subject_of(timer_of()) == subject_of(timer_of())
    assert len({subject_of(one) for one in [timer_of(), *others]}) == 1 + len(others)


@pytest.mark.parametrize("changed", [{"name": "other"}, {"namespace": "other"}, {"kind": "Pod"}, {"api_version": "v1"}])
def test_forged_timer_of_another_object_replaces_none(changed):
    forged = replace(REF, **changed)
    assert subject_of(timer_of(forged)) != subject_of(timer_of())
    assert subject_of(timer_of(forged, attempts=9)) != subject_of(timer_of(attempts=9))


def test_retries_of_one_object_meet():
    """Each sweep and each event that arrives twice begins a chain of retries: at most four a minute stay."""
    chance = random.Random(1)
    subjects = set()
    for _ in range(500):
        failed_at, attempts = NOW + timedelta(minutes=10 * chance.random()), chance.randint(6, 1_000)
        pause = backoff_seconds(attempts, jitter=chance.random())
        subjects.add(subject_of(timer_of(attempts=attempts), pause, failed_at + timedelta(seconds=pause)))
    assert len(subjects) <= 4 * 12
