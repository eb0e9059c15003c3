"""Properties of `decide_stop` for any object and any instant."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.deadlines.deadline import mark_annotations
from shared.core.deadlines.decide_stop import Stop, decide_stop, may_stop
from shared.core.decision.decide import Context, Expire, Ignore, Reason, Wait, decide
from shared.core.decision.finish import finish_of
from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.kinds.rule import Outcome
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import ANNOTATION_DOMAIN, format_instant
from shared.usecases.reports import find_stop_event
from tests.builders import JOB, LONG_AGO, POD, annotated, condition, having, job, namespace, not_none
from tests.properties.strategies import (
    anything,
    instant_texts,
    instants,
    json_values,
    nested,
    put,
    recent_instants,
)
from tests.properties.test_decide import RULES, comparable, of_its_kind, searching

HOME = plain_namespace("ci")
EXEMPT = namespace_of(namespace(exempt="true"))
PREFIX = ("metadata", "annotations")
FIELDS = [
    ("status", "startTime"),
    ("status", "conditions"),
    ("spec", "suspend"),
    ("spec", "activeDeadlineSeconds"),
    ("metadata", "generation"),
    ("metadata", "creationTimestamp"),
    ("metadata", "deletionTimestamp"),
    ("metadata", "ownerReferences"),
    ("metadata", "labels"),
    *(
        (*PREFIX, f"{ANNOTATION_DOMAIN}/{name}")
        for name in (
            "active-deadline",
            "pending-deadline",
            "on-deadline",
            "deadline-exceeded",
            "stops",
            "stopped-generation",
            "hold",
        )
    ),
]
LIKELY = st.sampled_from(
    [
        "1",
        "3",
        "1m",
        "never",
        "delete",
        "stop",
        0,
        1,
        60,
        True,
        False,
        None,
        [condition("Suspended", LONG_AGO)],
        [condition("Suspended", LONG_AGO, status="False")],
    ]
)
POLICIES = st.sampled_from(
    [
        NO_POLICY,
        *(
            Policy.model_validate({"rules": [{"name": "one", "match": {"kinds": ["*"]}, **settings}]})
            for settings in (
                {"activeDeadline": "1h"},
                {"activeDeadline": "never"},
                {"activeDeadline": "1s", "onDeadline": "delete"},
                {"pendingDeadline": "1s", "onDeadline": "delete"},
                {"activeDeadline": "1s", "when": "object.status.active > 0"},
            )
        ),
    ]
)
PLACES = st.sampled_from(
    [
        HOME,
        None,
        namespace_of(namespace(default_active_deadline="1h")),
        namespace_of(namespace(default_pending_deadline="1h")),
        namespace_of(namespace(max_active_deadline="5s", default_active_deadline="1h")),
    ]
)
contexts = st.builds(
    Context,
    policy=POLICIES,
    namespace=PLACES,
    owner_unfinished=st.none() | st.booleans(),
    aggregated=st.none() | st.booleans(),
)


@st.composite
def running_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """A Job that runs and has a deadline; a few fields that a decision reads have any value."""
    obj = annotated(job(), active_deadline=draw(st.sampled_from(["1s", "60", "1h", "36500d"])))
    for path in draw(st.lists(st.sampled_from(FIELDS), max_size=5)):
        put(obj, path, draw(LIKELY | instant_texts | json_values))
    return obj


candidates = running_jobs() | anything


@searching
@given(obj=candidates, rule=st.sampled_from(RULES), now=instants, context=contexts)
def test_any_json_has_a_decision(obj, rule, now, context):
    decision = decide_stop(obj, rule, now, context)

    assert isinstance(decision.facts.summary(), str)
    match decision:
        case Stop(since, reason):
            assert since <= now
            assert reason is Reason.DEADLINE_EXCEEDED
        case Wait(until, reason):
            assert until > now
            assert reason is Reason.NOT_DUE
        case Ignore(reason):
            assert reason not in {Reason.DEADLINE_EXCEEDED, Reason.NOT_DUE, Reason.EXPIRED}


@pytest.mark.parametrize("depth", [10, 960, 100_000])
@pytest.mark.parametrize("path", FIELDS, ids=lambda path: path[-1])
def test_deeply_nested_object_has_a_decision(path, depth):
    obj = annotated(job(), active_deadline="1h", deadline_exceeded=LONG_AGO)
    put(obj, path, nested(depth))

    decide_stop(obj, JOB, LONG_AGO, Context(namespace=HOME))


@searching
@given(obj=candidates, now=instants, context=contexts)
def test_decision_is_deterministic_and_changes_no_object(obj, now, context):
    rule, before = of_its_kind(obj), repr(obj)

    first, second = (decide_stop(one, rule, now, context) for one in (obj, copy.deepcopy(obj)))

    assert comparable(first) == comparable(second)
    assert repr(obj) == before


@searching
@given(obj=candidates, now=instants, context=contexts)
def test_finish_that_was_read_before_changes_nothing(obj, now, context):
    rule = of_its_kind(obj)
    known = decide_stop(obj, rule, now, context, finish=decide(obj, rule, now, context).facts.finish)

    assert comparable(known) == comparable(decide_stop(obj, rule, now, context))


@settings(searching, max_examples=300)
@given(obj=candidates, now=instants, after=instants, context=contexts)
def test_later_decision_differs_only_from_wait_to_stop(obj, now, after, context):
    now, after = sorted([now, after])
    rule = of_its_kind(obj)
    first, second = decide_stop(obj, rule, now, context), decide_stop(obj, rule, after, context)

    assert repr(first.facts) == repr(second.facts)
    if isinstance(first, Wait) and after >= first.until:
        assert second == Stop(first.until, Reason.DEADLINE_EXCEEDED, first.facts)
    else:
        assert comparable(second) == comparable(first)


@searching
@given(obj=running_jobs(), now=instants, context=contexts, why=json_values)
def test_held_object_is_never_stopped(obj, now, context, why):
    put(obj, (*PREFIX, f"{ANNOTATION_DOMAIN}/hold"), why)

    assert isinstance(decide_stop(obj, JOB, now, context), Ignore)
    assert not may_stop(obj, JOB, context)


@searching
@given(obj=candidates, now=instants, policy=POLICIES)
def test_nothing_in_an_exempt_namespace_is_stopped(obj, now, policy):
    assert isinstance(decide_stop(obj, of_its_kind(obj), now, Context(policy, EXEMPT)), Ignore)


@searching
@given(obj=candidates, now=instants, context=contexts)
def test_object_that_may_not_be_stopped_is_ignored_with_nothing_to_report(obj, now, context):
    rule = of_its_kind(obj)
    if may_stop(obj, rule, context):
        return

    decision = decide_stop(obj, rule, now, context)
    assert isinstance(decision, Ignore)
    assert find_stop_event(rule, obj, decision) is None if isinstance(obj, dict) else True


@settings(searching, max_examples=300)
@given(
    created=recent_instants,
    waits=st.integers(0, 10**5),
    ran=st.lists(st.tuples(st.integers(1, 10**5), st.integers(1, 10**5)), max_size=4),
    deadline=st.integers(1, 10**5),
    late=st.integers(-(10**5), 10**5),
    data=st.data(),
)
def test_object_is_never_stopped_before_its_deadline_after_each_suspend_and_resume(
    created, waits, ran, deadline, late, data
):
    """The object starts, is suspended and resumed at any instant; the clock counts from the last resume alone."""
    started = created + timedelta(seconds=waits)
    obj = annotated(job(), active_deadline=f"{deadline}s")
    obj = having(obj, "metadata.creationTimestamp", format_instant(created))
    for running, suspended in ran:
        started += timedelta(seconds=running + suspended)
        conditions = [condition("Suspended", started, status="False")]
        obj = having(having(obj, "status.conditions", conditions), "spec.suspend", False)
    obj = having(obj, "status.startTime", format_instant(started))
    now = started + timedelta(seconds=deadline + late)
    expected = Stop if late >= 0 else Wait

    assert type(decide_stop(obj, JOB, now, Context(namespace=HOME))) is expected
    asked, confirmed = data.draw(st.sampled_from([(True, False), (True, True), (False, True)]))
    again = having(obj, "spec.suspend", asked)
    again = having(again, "status.conditions", [condition("Suspended", now)] if confirmed else [])
    decision = decide_stop(again, JOB, now, Context(namespace=HOME))
    assert decision.reason is Reason.SUSPENDED


@searching
@given(started=recent_instants, later=st.integers(0, 10**6), now=instants, deadline=st.integers(1, 10**6))
def test_later_start_never_makes_an_earlier_stop(started, later, now, deadline):
    """If one source is later than the other, the later one counts."""
    obj = annotated(job(), active_deadline=f"{deadline}s")
    obj = having(obj, "metadata.creationTimestamp", "2000-01-01T00:00:00Z")
    obj = having(obj, "status.startTime", format_instant(started))
    resumed = [condition("Suspended", started + timedelta(seconds=later), status="False")]

    first = decide_stop(obj, JOB, now, Context(namespace=HOME))
    second = decide_stop(having(obj, "status.conditions", resumed), JOB, now, Context(namespace=HOME))
    assert second.facts.due_at == not_none(first.facts.due_at) + timedelta(seconds=later)
    assert not (isinstance(second, Stop) and isinstance(first, Wait))


@searching
@given(
    at=recent_instants,
    seen_after=st.integers(-100, 10**5),
    ttl=st.integers(0, 10**6),
    now=instants,
)
def test_after_the_stop_the_ttl_counts_from_the_condition_and_a_resume_ends_it(at, seen_after, ttl, now):
    """A stopped object fails at the later of the stop and its condition; as soon as it is resumed, it is unfinished."""
    confirmed = at + timedelta(seconds=seen_after)
    obj = having(annotated(job(), ttl=f"{ttl}s"), "metadata.generation", 3)
    obj = having(obj, "metadata.creationTimestamp", "2000-01-01T00:00:00Z")
    obj["status"]["startTime"] = None
    obj["metadata"]["annotations"] |= mark_annotations(obj, at, None)
    obj = having(having(obj, "spec.suspend", True), "metadata.generation", 4)
    unseen = having(obj, "status.conditions", [])
    stopped = having(obj, "status.conditions", [condition("Suspended", confirmed)])

    finish = finish_of(stopped, JOB)
    assert (finish.finished, finish.at, finish.outcome) == (True, max(at, confirmed), Outcome.FAILED)
    due_at = max(at, confirmed) + timedelta(seconds=ttl)
    assert isinstance(decide(stopped, JOB, now, Context(namespace=HOME)), Expire if now >= due_at else Wait)
    for unfinished in (unseen, having(having(stopped, "spec.suspend", False), "metadata.generation", 5)):
        assert finish_of(unfinished, JOB).finished is False
        assert isinstance(decide(unfinished, JOB, datetime.max.replace(tzinfo=UTC), Context(namespace=HOME)), Ignore)


WAITING = [{}, *({"waiting": {"reason": why}} for why in ("ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff"))]
HAVE_RUN = [{"running": {"startedAt": "2026-01-02T03:04:05Z"}}, {"running": {}}, {"terminated": {"exitCode": 1}}]


def often(usual: Any, others: list[Any]) -> st.SearchStrategy[Any]:
    """Mostly one value: an example where all values are usual ones has to be frequent."""
    return st.sampled_from([usual] * 10 * len(others) + others)


RAN = frozenset({"running", "terminated"})
STATUSES = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("main")},
        optional={
            "state": st.sampled_from(WAITING * 5 + HAVE_RUN),
            "lastState": often({}, HAVE_RUN),
            "restartCount": often(0, [1]),
        },
    ),
    max_size=3,
)
CONTAINERS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


@st.composite
def waiting_pods(draw: st.DrawFn) -> tuple[dict[str, Any], datetime]:
    """A Pod with a pending deadline, as a client and the kubelet may write it, and its creation."""
    created = draw(recent_instants)
    at = st.none() | st.integers(-100, 10**5).map(lambda seconds: format_instant(created + timedelta(seconds=seconds)))
    conditions = [
        {"type": "PodScheduled", "status": status, "lastTransitionTime": draw(at)}
        for status in draw(st.lists(st.sampled_from(["True", "False", "Unknown"]), max_size=2))
    ]
    status: dict[str, Any] = {"phase": draw(often("Pending", ["Running", "Unknown", None, ""]))}
    status |= {"conditions": conditions, "startTime": draw(at)} | {name: draw(STATUSES) for name in CONTAINERS}
    gates = draw(often([], [None, [{"name": "kueue.x-k8s.io/admission"}]]))
    metadata = {"name": "web", "namespace": "ci", "uid": "1", "creationTimestamp": format_instant(created)}
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulingGates": gates},
        "status": status,
    }
    return annotated(obj, on_deadline=draw(often("delete", ["stop"]))), created


def has_ever_run(pod: dict[str, Any]) -> bool:
    """Whether any container of a Pod runs or has ended, now or before."""
    statuses = [one for part in CONTAINERS for one in pod["status"][part]]
    states = [one.get(name, {}) for one in statuses for name in ("state", "lastState")]
    return any(one.get("restartCount") for one in statuses) or any(not RAN.isdisjoint(state) for state in states)


@settings(searching, max_examples=500)
@given(
    pod=waiting_pods(),
    deadline=st.integers(1, 10**5),
    after=st.integers(0, 3 * 10**5),
    source=st.sampled_from(["annotation", "policy", "namespace"]),
)
def test_pod_is_never_stopped_before_its_pending_deadline_nor_once_a_container_has_run(pod, deadline, after, source):
    obj, created = pod
    now, text, context = created + timedelta(seconds=after), f"{deadline}s", Context(namespace=HOME)
    if source == "annotation":
        obj = annotated(obj, pending_deadline=text)
    elif source == "policy":
        rule = {"name": "one", "match": {"kinds": ["pods"]}, "pendingDeadline": text}
        context = Context(Policy.model_validate({"rules": [rule]}), HOME)
    else:
        context = Context(namespace=namespace_of(namespace(default_pending_deadline=text)))

    decision = decide_stop(obj, POD, now, context)

    is_acted_on = isinstance(decision, Stop | Wait)
    if has_ever_run(obj) or obj["status"]["phase"] != "Pending" or obj["spec"]["schedulingGates"]:
        assert not is_acted_on
    if isinstance(decision, Stop):
        assert now >= created + timedelta(seconds=deadline)
    if is_acted_on:
        assert may_stop(obj, POD, context)
        assert decision.facts.active.started_at is None


@searching
@given(pod=waiting_pods(), now=instants, context=contexts)
def test_pod_that_waits_has_a_decision_that_differs_later_only_from_wait_to_stop(pod, now, context):
    obj, created = pod
    obj = annotated(obj, pending_deadline="1h")
    first = decide_stop(obj, POD, now, context)
    later = decide_stop(obj, POD, max(now, created + timedelta(days=9)), context)

    assert repr(first.facts) == repr(later.facts)
    if isinstance(first, Wait) and later != first:
        assert later == Stop(first.until, Reason.DEADLINE_EXCEEDED, first.facts)
    elif not isinstance(first, Wait):
        assert comparable(later) == comparable(first)
