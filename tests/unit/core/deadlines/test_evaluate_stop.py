"""A start after a stop is a new run only if it cannot be the start of the run that was stopped."""

from datetime import timedelta

import pytest

from shared.core.deadlines.decide_stop import evaluate_stop
from shared.core.decision.facts import Context, Reason
from shared.core.decision.namespaces import plain_namespace
from tests.builders import JOB, NOW, annotated, having, job, stamp

STOPPED_AT = NOW.replace(microsecond=0) - timedelta(seconds=100)


@pytest.mark.parametrize("fraction", [0, 290_000], ids=["whole-second", "with-fraction"])
@pytest.mark.parametrize(
    ("started_after", "reason"),
    [(-1, Reason.STOP_UNDONE), (0, None), (1, None)],
    ids=["the-second-before", "the-same-second", "the-second-after"],
)
def test_start_within_the_second_of_the_stop_is_a_new_run(
    started_after: int, fraction: int, reason: Reason | None
) -> None:
    obj = having(job(active_deadline="1s"), "status.startTime", stamp(STOPPED_AT + timedelta(seconds=started_after)))
    marked = annotated(obj, deadline_exceeded=STOPPED_AT.replace(microsecond=fraction), stops="1")

    assert evaluate_stop(marked, JOB, Context(namespace=plain_namespace("ci")))[0] == reason
