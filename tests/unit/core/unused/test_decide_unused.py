"""The specification of decisions about unused Secrets and ConfigMaps.

Mutants that these tests were tried with; each makes at least one test fail:
- decide_unused.py: each reason of `_find_reason_to_keep`, `_find_rule` and `_find_use` left out; `_RESETS` without one
  of its reasons; a problem of the last pass ignored; `used_at` of earlier passes ignored; `now < due_at` replaced by
  `<=`; `is_confirmed` from the mark on; audit ignored; a change ignored
- passes.py: one pass is enough; passes before the end of the TTL count; overlapping passes count; other carriers count;
  older versions count; a pass without versions is complete
- unused_mark.py: an own write is a change; the second of the mark is no change; a mark before the creation counts
- policy/unused.py: a glob names the namespace; the annotation `false` is ignored
One survives, because `changed` covers it: a mark in the second of the creation does not count.
"""

from datetime import timedelta
from typing import Any

import pytest

from shared.core.namespaces import namespace_of
from shared.core.objects import format_instant
from shared.core.policy.unused import CONFIG_MAPS, SECRETS
from shared.core.unused.decide_unused import (
    DeleteUnused,
    Keep,
    RemoveMark,
    SetMark,
    UnusedContext,
    WaitUntil,
    decide_unused,
)
from shared.core.unused.unused_reasons import UnusedReason as Reason
from tests.builders import LONG_AGO, NOW, ago, annotated, having, later, namespace, without
from tests.unused import (
    DAY,
    LONG_UNUSED,
    VERSIONS,
    config_map,
    context,
    having_mark,
    kind_of,
    opted_in,
    passed,
    refer,
    secret,
    two_passes,
    unused_policy,
    written,
)

MARKED = config_map(marked=LONG_UNUSED)
UNMARKED = config_map()


def decide(obj, known=None, now=NOW, **more):
    return decide_unused(obj, kind_of(obj), now, known or context(), **more)


@pytest.mark.parametrize("obj", [MARKED, having_mark(secret(), LONG_UNUSED)], ids=["ConfigMap", "Secret"])
def test_object_that_is_unused_for_its_ttl_is_deleted_with_preconditions(obj):
    decision = decide(obj)

    assert isinstance(decision, DeleteUnused)
    assert decision.reason is Reason.UNUSED
    assert decision.since == LONG_UNUSED + timedelta(days=1)
    assert (decision.facts.ref.uid, decision.facts.resource_version) == ("5c6b0d2e", "42")


def test_object_without_a_mark_is_marked_with_the_current_instant():
    decision = decide(UNMARKED, context(passed(ago(20))))

    assert isinstance(decision, SetMark)
    assert (decision.at, decision.reason) == (NOW, Reason.NEWLY_UNUSED)


def test_marked_object_waits_for_its_ttl():
    decision = decide(config_map(marked=ago(60)))

    assert isinstance(decision, WaitUntil)
    assert (decision.until, decision.reason) == (later(DAY - 60), Reason.NOT_DUE)


def test_object_whose_ttl_is_over_exactly_now_is_deleted_once_it_is_confirmed():
    obj = config_map(marked=ago(DAY))

    assert decide(obj, context(passed(NOW), passed(later(5)))).reason is Reason.UNUSED
    assert decide(obj, now=ago(1)).reason is Reason.NOT_DUE


def test_object_waits_if_only_the_clock_of_the_server_is_at_the_end_of_its_ttl():
    assert decide(config_map(marked=ago(DAY - 60)), ahead=timedelta(minutes=2)).reason is Reason.SERVER_CLOCK_AHEAD


@pytest.mark.parametrize(
    ("observations", "reason"),
    [
        ((), Reason.USE_UNKNOWN),
        ((passed(ago(20), problem="jobs.batch: 403"),), Reason.USE_UNKNOWN),
        ((passed(ago(40)), passed(ago(20), problem="jobs.batch: 403")), Reason.USE_UNKNOWN),
        ((passed(ago(40)), passed(ago(20), versions={})), Reason.USE_UNKNOWN),
        ((passed(ago(40)), passed(ago(20), versions=VERSIONS | {"pods": ""})), Reason.USE_UNKNOWN),
        ((passed(ago(40)), passed(ago(20), seconds=-1)), Reason.USE_UNKNOWN),
        ((passed(ago(40)), passed(ago(20), refer(problem="unreadable"))), Reason.USE_UNKNOWN),
        ((passed(ago(20)),), Reason.UNCONFIRMED),
        ((passed(ago(40), problem="jobs.batch: 403"), passed(ago(20))), Reason.UNCONFIRMED),
        ((passed(ago(40), refer(problem="unreadable")), passed(ago(20))), Reason.UNCONFIRMED),
        ((passed(ago(40), seconds=30), passed(ago(20))), Reason.UNCONFIRMED),
        ((passed(ago(40)), passed(ago(20), versions=VERSIONS | {"pods": "6"})), Reason.UNCONFIRMED),
        ((passed(ago(40)), passed(ago(20), versions=VERSIONS | {"cronjobs.batch": "7"})), Reason.UNCONFIRMED),
        ((passed(ago(40)), passed(ago(20), versions={"pods": "7"})), Reason.UNCONFIRMED),
        ((passed(ago(2 * DAY)), passed(ago(20))), Reason.UNCONFIRMED),
        ((passed(ago(40)), passed(ago(20), versions=VERSIONS | {"pods": "10"})), Reason.UNUSED),
        ((passed(ago(40)), passed(ago(20), versions=VERSIONS | {"pods": "opaque"})), Reason.UNUSED),
        ((passed(ago(40)), passed(ago(35))), Reason.UNUSED),
        ((passed(ago(90), problem="403"), passed(ago(40)), passed(ago(20))), Reason.UNUSED),
    ],
    ids=lambda value: str(value) if isinstance(value, Reason) else f"{len(value)} passes",
)
def test_two_complete_and_consistent_passes_have_to_confirm_a_deletion(observations, reason):
    known = UnusedContext(unused_policy(), opted_in(), observations)

    assert decide(MARKED, known).reason is reason


@pytest.mark.parametrize("obj", [MARKED, UNMARKED], ids=["marked", "unmarked"])
def test_reference_removes_the_mark_even_if_the_pass_is_not_complete(obj):
    known = context(*two_passes(refer()))
    decision = decide(obj, known)

    assert isinstance(decision, RemoveMark if obj is MARKED else Keep)
    assert decision.reason is Reason.USED
    assert decision.facts.references == (refer(),)
    assert decide(obj, context(passed(ago(20), refer(), problem="403"))).reason is Reason.USED
    assert decide(obj, context(passed(ago(20), refer(), refer(problem="unreadable")))).reason is Reason.USED


def test_reference_in_an_earlier_pass_starts_the_ttl_again():
    decision = decide(MARKED, context(passed(ago(60), refer()), passed(ago(40)), passed(ago(20))))

    assert isinstance(decision, SetMark)
    assert decision.reason is Reason.NEWLY_UNUSED


def test_reference_in_a_pass_before_the_mark_does_not_count():
    used = passed(ago(3 * DAY), refer())

    assert decide(MARKED, context(used, *two_passes())).reason is Reason.UNUSED


@pytest.mark.parametrize("problem", ["unknown", "incomplete"])
def test_mark_stays_while_the_use_is_unknown(problem):
    unknown = passed(ago(20), refer(problem="unreadable")) if problem == "unknown" else passed(ago(20), problem="403")

    assert isinstance(decide(MARKED, context(unknown)), Keep)
    assert isinstance(decide(UNMARKED, context(unknown)), Keep)


@pytest.mark.parametrize("change", [LONG_UNUSED, LONG_UNUSED + timedelta(seconds=1), NOW], ids=str)
def test_change_after_the_mark_starts_the_ttl_again(change):
    entries = [written(LONG_AGO, "helm"), written(change), *MARKED["metadata"]["managedFields"][1:]]
    decision = decide(having(MARKED, "metadata.managedFields", entries))

    assert isinstance(decision, SetMark)
    assert (decision.at, decision.reason) == (NOW, Reason.CHANGED)


def test_change_before_the_mark_does_not_count():
    entries = [written(LONG_UNUSED - timedelta(seconds=1)), *MARKED["metadata"]["managedFields"][1:]]

    assert decide(having(MARKED, "metadata.managedFields", entries)).reason is Reason.UNUSED


def test_write_of_the_mark_by_another_manager_is_no_change():
    alone: Any = {"f:metadata": {"f:annotations": {"f:ttlafterfinished.dev/unused-since": {}}}}
    entries = [written(LONG_AGO), written(LONG_UNUSED, "kubectl-annotate", alone)]

    assert decide(having(MARKED, "metadata.managedFields", entries)).reason is Reason.UNUSED


@pytest.mark.parametrize(
    "mark",
    ["", "yes", "2026-13-01T00:00:00Z", format_instant(LONG_AGO - timedelta(seconds=1))],
)
def test_mark_that_is_malformed_or_older_than_the_object_is_written_again(mark):
    decision = decide(config_map(marked=mark))

    assert isinstance(decision, SetMark)
    assert decision.reason is Reason.NEWLY_UNUSED


def test_audit_marks_and_does_not_delete():
    audit = unused_policy(unused={"ttl": "1d", "audit": True})
    decision = decide(MARKED, context(policy=audit))

    assert isinstance(decision, Keep)
    assert decision.reason is Reason.AUDIT_ONLY
    assert decision.facts.due_at == LONG_UNUSED + timedelta(days=1)
    assert isinstance(decide(UNMARKED, context(policy=audit)), SetMark)


@pytest.mark.parametrize(
    ("obj", "reason", "resets"),
    [
        (annotated(MARKED, hold="the release"), Reason.HELD, True),
        (having(MARKED, "metadata.ownerReferences", [{"kind": "Deployment", "name": "web"}]), Reason.OWNED, True),
        (having(MARKED, "metadata.ownerReferences", "web"), Reason.OWNED, True),
        (MARKED | {"immutable": True}, Reason.IMMUTABLE, True),
        (having(MARKED, "metadata.deletionTimestamp", "2026-03-14T00:00:00Z"), Reason.TERMINATING, False),
        (having(MARKED, "metadata.namespace", "kube-system"), Reason.SYSTEM_NAMESPACE, False),
        (having(MARKED, "metadata.name", "kube-root-ca.crt"), Reason.CLUSTER_CONFIG, False),
        (without(MARKED, "metadata.managedFields"), Reason.UNKNOWN_SHAPE, False),
        (having(MARKED, "metadata.managedFields", []), Reason.UNKNOWN_SHAPE, False),
        (having(MARKED, "metadata.managedFields", [7]), Reason.UNKNOWN_SHAPE, False),
        (having(MARKED, "metadata.managedFields", [written("now")]), Reason.UNKNOWN_SHAPE, False),
        (having(MARKED, "metadata.managedFields", [written(NOW) | {"fieldsV1": 7}]), Reason.UNKNOWN_SHAPE, False),
        (without(MARKED, "metadata.uid"), Reason.UNKNOWN_SHAPE, False),
        (without(MARKED, "metadata.resourceVersion"), Reason.UNKNOWN_SHAPE, False),
        (without(MARKED, "metadata.name"), Reason.UNKNOWN_SHAPE, False),
        (MARKED | {"kind": "Pod"}, Reason.UNKNOWN_SHAPE, False),
        (None, Reason.UNKNOWN_SHAPE, False),
    ],
    ids=lambda value: str(value) if isinstance(value, Reason) else None,
)
def test_object_is_kept_for_a_reason_of_its_own(obj, reason, resets):
    decision = decide(obj)

    assert decision.reason is reason
    assert isinstance(decision, RemoveMark if resets else Keep)


@pytest.mark.parametrize(
    ("known", "reason", "resets"),
    [
        (UnusedContext(unused_policy(), None, two_passes()), Reason.NAMESPACE_UNREAD, False),
        (context(of=namespace_of(namespace("other", unused="true"))), Reason.NAMESPACE_UNREAD, False),
        (context(of=opted_in(exempt="true")), Reason.EXEMPT, True),
        (context(of=opted_in(exempt="yes")), Reason.INVALID_POLICY, False),
        (context(of=opted_in(unused="yes")), Reason.INVALID_POLICY, False),
        (UnusedContext(namespace=opted_in(), observations=two_passes()), Reason.NOT_ENABLED, True),
        (context(policy=unused_policy(match={"kinds": ["secrets"]})), Reason.NOT_ENABLED, True),
        (
            context(policy=unused_policy(match={"kinds": ["cm"], "namespaces": {"names": ["cd"]}})),
            Reason.NOT_ENABLED,
            True,
        ),
        (context(policy=unused_policy(when="object.metadata.absent == 'x'")), Reason.INVALID_POLICY, False),
        (context(policy=unused_policy(when="object.metadata.name == 'x'")), Reason.NOT_ENABLED, True),
        (context(of=namespace_of(namespace("ci"))), Reason.NOT_OPTED_IN, True),
        (context(of=opted_in(unused="false")), Reason.NOT_OPTED_IN, True),
    ],
    ids=lambda value: str(value) if isinstance(value, Reason) else None,
)
def test_object_is_kept_for_a_reason_of_its_namespace_or_the_policy(known, reason, resets):
    assert decide(MARKED, known).reason is reason
    assert isinstance(decide(MARKED, known), RemoveMark if resets else Keep)
    assert isinstance(decide(UNMARKED, known), Keep)


@pytest.mark.parametrize(
    ("names", "annotations", "reason"),
    [
        (["ci"], {}, Reason.UNUSED),
        (["c*", "ci"], {}, Reason.UNUSED),
        (["c*"], {}, Reason.UNUSED),
        (["c*"], {"unused": "false"}, Reason.NOT_OPTED_IN),
        (["*"], {"unused": "true"}, Reason.UNUSED),
        (["ci"], {"unused": "false"}, Reason.NOT_OPTED_IN),
    ],
)
def test_namespace_opts_in_by_its_annotation_or_by_the_namespaces_of_the_rule(names, annotations, reason):
    policy = unused_policy(match={"kinds": ["configmaps"], "namespaces": {"names": names}})
    known = context(policy=policy, of=namespace_of(namespace("ci", **annotations)))

    assert decide(MARKED, known).reason is reason


def test_first_rule_that_matches_sets_the_ttl():
    rules = unused_policy(match={"kinds": ["cm"], "labels": {"matchLabels": {"app": "web"}}}, unused={"ttl": "9d"})
    both = rules.model_copy(update={"rules": (*rules.rules, *unused_policy(name="others").rules)})

    assert decide(MARKED, context(policy=both)).reason is Reason.UNUSED
    assert decide(having(MARKED, "metadata.labels", {"app": "web"}), context(policy=both)).reason is Reason.NOT_DUE


@pytest.mark.parametrize("kind", [CONFIG_MAPS, SECRETS], ids=["ConfigMap", "Secret"])
def test_object_of_another_kind_than_the_rule_is_kept(kind):
    other = MARKED if kind is SECRETS else secret()

    assert decide_unused(other, kind, NOW, context()).reason is Reason.UNKNOWN_SHAPE
