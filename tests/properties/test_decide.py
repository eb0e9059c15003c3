"""Properties of `decide` for any object and any instant."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shared.core.archive.archiving import ChildrenFact
from shared.core.archive.gate import CHILD_REASONS
from shared.core.decision.decide import Context, Expire, Ignore, Reason, Wait, decide, may_expire
from shared.core.decision.namespaces import plain_namespace
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.ttl.ttl import InvalidTtlError, find_ttl
from shared.core.values.objects import ANNOTATION_DOMAIN, get_in, get_text
from tests.builders import JOB, POD, TRAINJOB, annotated, ended, having, job, not_none, pod
from tests.properties.strategies import (
    any_text,
    anything,
    fixtures,
    half_seen_pods,
    instant_texts,
    instants,
    json_values,
    keys,
    nested,
    objects,
    put,
    recent_instants,
    result_of,
    scalars,
)

HOME = plain_namespace("ci")
RULES = [JOB, POD, TRAINJOB]
rules = st.sampled_from(RULES)

searching = settings(max_examples=100, deadline=None)


def of_its_kind(obj: Any) -> KindRule:
    """The rule of the object's kind, or any rule if it has none."""
    kind = obj.get("kind") if isinstance(obj, dict) else None
    return next((rule for rule in RULES if rule.kind == kind), JOB)


def comparable(decision: Any) -> tuple:
    """A decision as a value that can be compared, also if a fact is nan."""
    return type(decision), decision.reason, repr(decision)


class TestTotal:
    @searching
    @given(obj=anything, rule=rules, now=instants, owner_unfinished=st.none() | st.booleans())
    def test_any_json_has_a_decision(self, obj, rule, now, owner_unfinished):
        decision = decide(obj, rule, now, Context(namespace=HOME, owner_unfinished=owner_unfinished))

        assert isinstance(decision, Ignore | Wait | Expire)
        assert isinstance(decision.facts.summary(), str)

    @searching
    @given(obj=objects, now=instants, owner_unfinished=st.none() | st.booleans())
    def test_almost_valid_objects_have_a_decision(self, obj, now, owner_unfinished):
        decision = decide(obj, of_its_kind(obj), now, Context(namespace=HOME, owner_unfinished=owner_unfinished))

        match decision:
            case Expire(since, reason):
                assert reason is Reason.EXPIRED
                assert since <= now
            case Wait(until, reason):
                assert reason is Reason.NOT_DUE
                assert until > now
            case Ignore(reason):
                assert reason not in {Reason.EXPIRED, Reason.NOT_DUE}

    @pytest.mark.parametrize("depth", [10, 300, 960, 5_000, 100_000])
    @pytest.mark.parametrize(
        "path",
        [
            ("status",),
            ("status", "conditions", 0),
            ("status", "conditions", 0, "lastTransitionTime"),
            ("status", "containerStatuses", 0, "state", "terminated", "finishedAt"),
            ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/ttl"),
            ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/expire-at"),
            ("spec", "ttlSecondsAfterFinished"),
            ("metadata", "creationTimestamp"),
        ],
        ids=lambda path: path[-1] if isinstance(path[-1], str) else path[-2],
    )
    def test_deeply_nested_object_has_a_decision(self, path, depth):
        for obj in (job(complete="2026-03-01T00:00:00Z", ttl=0), pod(containers=[ended(at=None)], ttl="0")):
            put(obj, path, nested(depth))
            decide(obj, of_its_kind(obj), datetime(2026, 3, 14, tzinfo=UTC), Context(namespace=HOME))

    @searching
    @given(obj=objects, now=instants)
    def test_decision_is_deterministic_and_changes_no_object(self, obj, now):
        rule = of_its_kind(obj)
        before = repr(obj)

        decisions = [decide(given_obj, rule, now, Context(namespace=HOME)) for given_obj in (obj, copy.deepcopy(obj))]

        assert comparable(decisions[0]) == comparable(decisions[1])
        assert repr(obj) == before

    @searching
    @given(obj=objects, now=instants, owner_unfinished=st.none() | st.booleans())
    def test_object_that_may_not_expire_is_ignored(self, obj, now, owner_unfinished):
        rule = of_its_kind(obj)

        if not may_expire(obj, rule):
            assert isinstance(
                decide(obj, rule, now, Context(namespace=HOME, owner_unfinished=owner_unfinished)), Ignore
            )


class TestMonotone:
    @searching
    @given(obj=objects, now=instants, after=instants, owner_unfinished=st.none() | st.booleans())
    def test_later_decision_differs_only_from_wait_to_expire(self, obj, now, after, owner_unfinished):
        now, after = sorted([now, after])
        rule = of_its_kind(obj)
        first = decide(obj, rule, now, Context(namespace=HOME, owner_unfinished=owner_unfinished))
        second = decide(obj, rule, after, Context(namespace=HOME, owner_unfinished=owner_unfinished))

        assert repr(first.facts) == repr(second.facts)
        match first:
            case Ignore() | Expire():
                assert comparable(second) == comparable(first)
            case Wait(until):
                assert (
                    comparable(second) == comparable(first)
                    if after < until
                    else second == Expire(until, Reason.EXPIRED, first.facts)
                )

    @searching
    @given(obj=objects, now=instants)
    def test_waiting_object_expires_exactly_at_its_due_instant(self, obj, now):
        rule = of_its_kind(obj)
        decision = decide(obj, rule, now, Context(namespace=HOME))

        if isinstance(decision, Wait):
            until = decision.until
            assert decide(obj, rule, until, Context(namespace=HOME)) == Expire(until, Reason.EXPIRED, decision.facts)
            just_before = decide(obj, rule, until - timedelta(microseconds=1), Context(namespace=HOME))
            assert just_before == decision


class TestChildren:
    """S6: children only keep an object longer, and what is decided about it stays monotone."""

    @searching
    @given(
        obj=objects,
        now=instants,
        after=instants,
        reason=st.sampled_from([None, *CHILD_REASONS]),
        ready_at=st.none() | instants,
        is_other=st.booleans(),
    )
    def test_children_only_delay_a_deletion(self, obj, now, after, reason, ready_at, is_other):
        now, after = sorted([now, after])
        rule = of_its_kind(obj)
        uid = "another" if is_other else get_text(obj, "metadata.uid")
        children = ChildrenFact(uid, reason, ready_at=ready_at)
        alone = decide(obj, rule, now, Context(namespace=HOME))
        first, second = (decide(obj, rule, at, Context(namespace=HOME, children=children)) for at in (now, after))

        if isinstance(first, Expire):
            assert isinstance(alone, Expire)
            assert (uid, reason) == (get_text(obj, "metadata.uid"), None)
            assert ready_at is None or ready_at <= now
            assert isinstance(second, Expire)
            assert second.since == first.since
        elif not isinstance(alone, Expire):
            assert comparable(first) == comparable(alone)


class TestUnreadFields:
    """Fields that `decide` does not read change nothing."""

    @searching
    @given(
        obj=objects,
        now=instants,
        place=st.sampled_from([("metadata",), ("metadata", "labels"), ("spec",), ("status",), ()]),
        key=any_text.map("x-{}".format),
        value=json_values,
    )
    def test_foreign_field_changes_no_decision(self, obj, now, place, key, value):
        there = get_in(obj, ".".join(place)) if place else obj
        assume(isinstance(there, dict) or (there is None and place not in [("status",), ("metadata",)]))
        assume(isinstance(obj.get("metadata"), dict))  # a value put into it would change its shape
        before = decide(obj, of_its_kind(obj), now, Context(namespace=HOME))
        put(obj, (*place, key), value)

        assert comparable(decide(obj, of_its_kind(obj), now, Context(namespace=HOME))) == comparable(before)

    @searching
    @given(obj=objects, now=instants, name=any_text, value=scalars, domain=any_text)
    def test_foreign_annotation_changes_no_decision(self, obj, now, name, value, domain):
        key = f"{domain}/{name}"
        assume(not key.startswith(f"{ANNOTATION_DOMAIN}/"))
        assume(isinstance(get_in(obj, "metadata.annotations"), dict | None))
        assume(isinstance(obj.get("metadata"), dict))  # as above
        before = decide(obj, of_its_kind(obj), now, Context(namespace=HOME))
        put(obj, ("metadata", "annotations", key), value)

        assert comparable(decide(obj, of_its_kind(obj), now, Context(namespace=HOME))) == comparable(before)

    @searching
    @given(obj=fixtures, now=instants, labels=st.dictionaries(keys, scalars, max_size=3), version=any_text)
    def test_foreign_metadata_of_a_real_object_changes_no_decision(self, obj, now, labels, version):
        changed = having(having(obj, "metadata.labels", labels), "metadata.resourceVersion", version)
        rule = of_its_kind(obj)

        assert decide(changed, rule, now, Context(namespace=HOME)) == decide(obj, rule, now, Context(namespace=HOME))


class TestKept:
    """S3: objects that must be kept with any other fields."""

    @searching
    @given(obj=objects, now=instants, why=scalars)
    def test_held_object_is_kept(self, obj, now, why):
        put(obj, ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/hold"), why)

        assert isinstance(decide(obj, of_its_kind(obj), now, Context(namespace=HOME)), Ignore)

    @searching
    @given(obj=objects, now=instants, at=instant_texts)
    def test_terminating_object_is_ignored(self, obj, now, at):
        put(obj, ("metadata", "deletionTimestamp"), at)

        assert isinstance(decide(obj, of_its_kind(obj), now, Context(namespace=HOME)), Ignore)

    @searching
    @given(obj=objects, now=instants)
    def test_object_without_a_ttl_is_kept(self, obj, now):
        put(obj, ("metadata", "annotations"), {"example.com/ttl": "0"})
        put(obj, ("spec", "ttlSecondsAfterFinished"), None)

        assert isinstance(decide(obj, of_its_kind(obj), now, Context(namespace=HOME)), Ignore)

    @searching
    @given(obj=objects, now=instants, phase=scalars, status=scalars)
    def test_unfinished_object_is_kept(self, obj, now, phase, status):
        assume(phase not in ("Succeeded", "Failed"))
        assume(status != "True")
        put(obj, ("status", "phase"), phase)
        conditions = get_in(obj, "status.conditions")
        for entry in conditions if isinstance(conditions, list) else ():
            if isinstance(entry, dict):
                entry["status"] = status

        assert isinstance(decide(obj, of_its_kind(obj), now, Context(namespace=HOME)), Ignore)

    @searching
    @given(obj=objects, now=instants)
    def test_unfinished_owner_keeps_a_pod(self, obj, now):
        put(obj, ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/owner"), "keep")

        decision = decide(obj, POD, now, Context(namespace=HOME, owner_unfinished=True))

        assert isinstance(decision, Ignore)

    @searching
    @given(
        obj=fixtures,
        now=instants,
        name=st.sampled_from(["ttl", "ttl-succeeded", "ttl-failed", "expire-at"]),
        value=json_values.filter(lambda value: not isinstance(value, str)),
    )
    def test_ttl_annotation_that_is_no_text_keeps_the_object(self, obj, now, name, value):
        put(obj, ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/{name}"), value)

        assert decide(obj, of_its_kind(obj), now, Context(namespace=HOME)).reason is Reason.INVALID_TTL


class TestNeverEarly:
    @searching
    @given(
        finished_at=recent_instants,
        now=recent_instants,
        ttl=st.integers(0, 2**31 - 1),
        kind=st.sampled_from(["complete", "failed"]),
    )
    def test_job_is_due_exactly_at_finish_plus_ttl(self, finished_at, now, ttl, kind):
        obj = having(job(ttl=ttl, **{kind: finished_at}), "metadata.creationTimestamp", None)
        obj = having(obj, "status.startTime", None)
        due_at = finished_at + timedelta(seconds=ttl)

        decision = decide(obj, JOB, now, Context(namespace=HOME))

        assert decision.reason is (Reason.EXPIRED if (now - finished_at).total_seconds() >= ttl else Reason.NOT_DUE)
        assert decision.facts.due_at == due_at

    @searching
    @given(seen=half_seen_pods(), ttl=st.integers(0, 10**6), now=recent_instants)
    def test_pod_with_missing_times_is_never_due_before_its_finish_plus_ttl(self, seen, ttl, now):
        obj, end = seen

        decision = decide(annotated(obj, ttl=str(ttl)), POD, now, Context(namespace=HOME))

        assert decision.facts.due_at >= end + timedelta(seconds=ttl)
        assert now >= end + timedelta(seconds=ttl) or not isinstance(decision, Expire)

    @searching
    @given(obj=fixtures, more=st.integers(1, 10**9), less=st.integers(0, 10**9), now=instants)
    def test_longer_ttl_never_expires_earlier(self, obj, more, less, now):
        rule = of_its_kind(obj)
        short, long = (annotated(obj, ttl_failed=str(s), ttl_succeeded=str(s)) for s in (less, less + more))

        if isinstance(decide(long, rule, now, Context(namespace=HOME)), Expire):
            assert isinstance(decide(short, rule, now, Context(namespace=HOME)), Expire)

    @searching
    @given(obj=objects, now=instants)
    def test_object_never_expires_before_its_creation_or_start(self, obj, now):
        begun = datetime(2026, 3, 2, 12, tzinfo=UTC)
        put(obj, ("metadata", "creationTimestamp"), "2026-03-02T12:00:00Z")
        decision = decide(obj, of_its_kind(obj), now, Context(namespace=HOME))

        if isinstance(decision, Expire) and "expire-at" not in not_none(decision.facts.ttl).source:
            assert now >= decision.since >= begun


class TestFindTtl:
    @searching
    @given(obj=anything, rule=rules, outcome=st.sampled_from([None, *Outcome]))
    def test_ttl_is_read_or_an_error_with_what_was_expected(self, obj, rule, outcome):
        ttl = result_of(InvalidTtlError, find_ttl, obj, rule, outcome)

        if isinstance(ttl, InvalidTtlError):
            assert str(ttl).startswith((f"annotation {ANNOTATION_DOMAIN}/", "spec.ttlSecondsAfterFinished: "))
            assert "expected " in str(ttl)
            assert len(str(ttl)) < 1024  # what a Kubernetes Event can hold
        else:
            assert ttl is None or ttl.source

    @searching
    @given(value=json_values, name=st.sampled_from(["ttl", "ttl-succeeded", "ttl-failed", "expire-at"]))
    def test_any_value_of_an_annotation_is_read_or_named(self, value, name):
        obj = job()
        put(obj, ("metadata", "annotations", f"{ANNOTATION_DOMAIN}/{name}"), value)
        ttl = result_of(InvalidTtlError, find_ttl, obj, JOB, None)

        if isinstance(ttl, InvalidTtlError):
            assert str(ttl).startswith(f"annotation {ANNOTATION_DOMAIN}/{name}: expected ")
