"""The texts of Kubernetes Events about deadlines."""

from datetime import timedelta
from typing import Any

import pytest

from shared.core.deadlines.decide_stop import decide_stop
from shared.core.decision.facts import Context
from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.usecases.reports import describe_stop, find_stop_event
from tests.builders import JOB, NOW, annotated, having, job, namespace, not_none, stamp

STARTED_AT = NOW.replace(microsecond=0) - timedelta(hours=2)
STOPPED_AT = STARTED_AT + timedelta(hours=1)
RUNNING = having(job(active_deadline="1h"), "status.startTime", stamp(STARTED_AT))


SOURCE = "ttlafterfinished.dev/active-deadline"
SHORTENED = "ran for longer than 30m; the namespace's max-active-deadline shortens 1h, its deadline by"
FIND = "Find the controller or client that"
UNDONE = f"it was stopped at {{at}}, and runs on without a new start. {FIND} undoes the patch {{patch}}"
RESUMED = f"it was stopped 3 times, the last time at {{at}}, and was resumed each time. {FIND} resumes it"
AGAIN = "To let it be stopped again, remove its annotation ttlafterfinished.dev/deadline-exceeded"
PATCH = '{"spec": {"activeDeadlineSeconds": 1}}'


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({}, f"ran for longer than 1h, its deadline by {SOURCE}"),
        ({"max_active_deadline": "30m"}, f"{SHORTENED} {SOURCE}"),
    ],
    ids=["own", "shortened"],
)
def test_stop_names_the_deadline_its_source_and_the_patch(annotations: dict[str, Any], text: str) -> None:
    context = Context(namespace=namespace_of(namespace(**annotations)))
    facts = decide_stop(RUNNING, JOB, NOW, context).facts

    assert describe_stop(JOB, facts) == f"{text}; stopped by the patch {PATCH}"


@pytest.mark.parametrize(("stops", "text"), [("1", UNDONE), ("3", RESUMED)], ids=["undone", "resumed"])
def test_stop_that_was_undone_names_the_cause_and_what_to_do(stops: str, text: str) -> None:
    marked = annotated(RUNNING, deadline_exceeded=STOPPED_AT, stops=stops)
    decision = decide_stop(marked, JOB, NOW, Context(namespace=plain_namespace("ci")))

    described = text.format(at=stamp(STOPPED_AT), patch=PATCH)
    assert not_none(find_stop_event(JOB, marked, decision)).message == f"not stopped again: {described}. {AGAIN}"
