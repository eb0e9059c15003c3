"""The specification of decisions about unused Secrets and ConfigMaps.

Mutants that these tests were tried with; each makes at least one test fail:
- decide_unused.py: each reason of `_find_reason_to_keep`, `_find_rule` and `_find_use` left out; `_RESETS` without one
  of its reasons; a problem of the last pass ignored; `used_at` of earlier passes ignored; `now < due_at` replaced by
  `<=`; `is_confirmed` from the mark on; audit ignored; a change ignored
- passes.py: one pass is enough; passes before the end of the TTL count; overlapping passes count; other carriers count;
  older versions count; a pass without versions is complete
- mark.py: the second of the mark is no change; a mark before the creation counts; no slack; the TTL counts from
  the value of the mark
- field_writes.py: any manager, operation or subresource attests a mark; one annotation is enough; the hash without each
  part of an entry; own fields count; other fields of our manager do not count
- mark.py, passes.py, reference.py: a record that our field manager did not write counts; so does one that is
  older than the object; a mention, a pattern, another namespace or a pass that is not complete proves a use
- policy/unused.py: a glob names the namespace; the annotation `false` is ignored
One survives, because `changed` covers it: a mark in the second of the creation does not count.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.core.decision.namespaces import namespace_of
from shared.core.policy.usage import CONFIG_MAPS, SECRETS
from shared.core.references.reference import ANY, Requires, Selector
from shared.core.usage.decide_unused import (
    DeleteUnused,
    Keep,
    RecordUse,
    RemoveMark,
    SetMark,
    UnusedContext,
    WaitUntil,
    decide_unused,
)
from shared.core.usage.mark import ANNOUNCEMENT_MANAGER, ATTESTED_SLACK, MARK_MANAGER, hash_foreign_writes
from shared.core.usage.unused_reasons import UnusedReason as Reason
from shared.core.values.objects import format_instant
from tests.builders import LONG_AGO, NOW, ago, annotated, copied, having, later, namespace, without
from tests.usage import (
    DAY,
    LONG_UNUSED,
    POD,
    VERSIONS,
    config_map,
    context,
    having_mark,
    having_use,
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


def written_by(*entries: dict[str, Any]) -> dict[str, Any]:
    """A ConfigMap with a record of use, that other clients have written."""
    return having_use(having(config_map(used=None), "metadata.managedFields", [*entries]))


def decide(obj, known=None, now=NOW, **more):
    return decide_unused(obj, kind_of(obj), now, known or context(), **more)


@pytest.mark.parametrize("obj", [MARKED, having_mark(secret(), LONG_UNUSED)], ids=["ConfigMap", "Secret"])
def test_object_that_is_unused_for_its_ttl_is_deleted_with_preconditions(obj):
    decision = decide(obj)

    assert isinstance(decision, DeleteUnused)
    assert decision.reason is Reason.UNUSED
    assert decision.since == LONG_UNUSED + timedelta(days=1)
    assert (decision.facts.ref.uid, decision.facts.resource_version) == ("5c6b0d2e", "42")


NEVER_USED = config_map(used=None)
BY_RULE = unused_policy(
    match={"kinds": ["cm"], "namespaces": {"names": ["ci"]}}, unused={"ttl": "1d", "neverUsed": True}
)


@pytest.mark.parametrize(
    "obj",
    [
        NEVER_USED,
        having_use(NEVER_USED, by="kubectl-annotate"),
        having_use(NEVER_USED, by=MARK_MANAGER),
        having_use(NEVER_USED, LONG_AGO - timedelta(seconds=1)),
        having_use(NEVER_USED, written_at=NOW),
    ],
    ids=["no record", "of another client", "of another of our managers", "of the object that was copied", "late"],
)
def test_object_that_was_never_seen_used_is_kept_and_loses_its_mark(obj):
    for known in (context(), context(passed(ago(20)))):
        assert decide(obj, known) == Keep(Reason.NEVER_USED, decide(obj, known).facts)
        assert isinstance(decide(having_mark(obj, LONG_UNUSED), known), RemoveMark)


def test_rule_may_take_objects_that_were_never_seen_used():
    assert isinstance(decide(NEVER_USED, context(policy=BY_RULE)), SetMark)
    assert decide(having_mark(NEVER_USED, LONG_UNUSED), context(policy=BY_RULE)).reason is Reason.UNUSED


def test_older_generation_of_a_used_object_was_used():
    newer = replace(passed(ago(40)), used_newer="web-8f2d5")

    assert isinstance(decide(NEVER_USED, context(newer)), SetMark)
    assert decide(having_mark(NEVER_USED, LONG_UNUSED), context(newer, passed(ago(20)))).reason is Reason.UNUSED


@pytest.mark.parametrize("obj", [NEVER_USED, having_mark(NEVER_USED, LONG_UNUSED)], ids=["unmarked", "marked"])
def test_first_use_is_recorded_once(obj):
    seen = context(passed(ago(20), refer()))

    decision = decide(obj, seen)

    assert isinstance(decision, RecordUse)
    assert (decision.at, decision.reason) == (NOW, Reason.USED)
    assert not isinstance(decide(having_use(obj, NOW), seen, now=later(60)), RecordUse)


OF_CLUSTER, ELSEWHERE = replace(POD, namespace=""), replace(POD, namespace="web")
EVERY = Selector((Requires("app", "Exists"),))


@pytest.mark.parametrize(
    ("reference", "proves"),
    [
        (refer(), True),
        (replace(refer(), source=OF_CLUSTER), True),
        (replace(refer(), source=ELSEWHERE), False),
        (refer(is_field=False), False),
        (replace(refer(), name="web-*"), False),
        (replace(refer(), name=ANY, selector=EVERY), False),
    ],
    ids=["field", "of the cluster", "other namespace", "mention", "template", "selector"],
)
def test_only_a_field_that_names_the_object_proves_its_use(reference, proves):
    assert isinstance(decide(NEVER_USED, context(passed(ago(20), reference))), RecordUse) is proves
    assert decide(NEVER_USED, context(passed(ago(20), reference))).reason is Reason.USED


@pytest.mark.parametrize(
    "known",
    [
        context(passed(ago(20), refer(), problem="jobs.batch: 403")),
        context(passed(ago(20), refer()), policy=unused_policy(audit=True)),
    ],
    ids=["pass not complete", "rule that writes nothing"],
)
def test_use_is_not_recorded(known):
    assert isinstance(decide(NEVER_USED, known), Keep)


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
    unreadable = refer(name=ANY, problem="unreadable")
    unknown = passed(ago(20), unreadable) if problem == "unknown" else passed(ago(20), problem="403")

    assert isinstance(decide(MARKED, context(unknown)), Keep)
    assert isinstance(decide(UNMARKED, context(unknown)), Keep)


def test_text_that_may_be_about_the_object_starts_the_ttl_again():
    """Such as of a job in another namespace that runs each night."""
    named = context(passed(ago(20), refer(problem="the namespace is at another place")))

    decision = decide(MARKED, named)
    assert isinstance(decision, RemoveMark)
    assert decision.reason is Reason.USE_UNKNOWN
    assert isinstance(decide(UNMARKED, named), Keep)


@pytest.mark.parametrize("change", [LONG_UNUSED, LONG_UNUSED + timedelta(seconds=1), NOW], ids=str)
def test_change_after_the_mark_starts_the_ttl_again(change):
    entries = [written(LONG_AGO, "helm"), written(change), *MARKED["metadata"]["managedFields"][1:]]
    decision = decide(having(MARKED, "metadata.managedFields", entries))

    assert isinstance(decision, SetMark)
    assert (decision.at, decision.reason) == (NOW, Reason.CHANGED)


def test_change_before_the_mark_does_not_count():
    changed = written_by(written(LONG_UNUSED - timedelta(seconds=1)))

    assert decide(having_mark(changed, LONG_UNUSED)).reason is Reason.UNUSED


@pytest.mark.parametrize("seconds", [0, 0.9])
def test_change_in_the_second_of_the_mark_starts_the_ttl_again(seconds):
    """A second write in this second leaves no other trace than the first one."""
    changed = written_by(written(LONG_UNUSED))
    at = LONG_UNUSED + timedelta(seconds=seconds)

    assert decide(having_mark(changed, at)).reason is Reason.CHANGED


@pytest.mark.parametrize("at", [LONG_UNUSED + timedelta(seconds=1), later(3600)], ids=["later", "in the future"])
def test_entry_that_was_there_at_the_mark_is_no_change_whatever_its_time(at):
    """Its time is forged, or that of a wrong clock. The object must not be marked again at each tick."""
    forged = having_mark(written_by(written(at)), LONG_UNUSED)

    assert decide(forged).reason is Reason.UNUSED


KEYS: Any = {"f:data": {".": {}, "f:key": {}, "f:other": {}}}
REMOVALS = {
    "a data key": [written(LONG_AGO, fields={"f:data": {".": {}, "f:key": {}}})],
    "all data keys": [written(LONG_AGO, fields={"f:data": {}})],
    "all fields of a client": [],
}


@pytest.mark.parametrize("after", REMOVALS.values(), ids=REMOVALS)
def test_change_that_only_removes_something_starts_the_ttl_again(after):
    """It changes no time: only the fields that the entries have."""
    helm = written(LONG_AGO, "helm", {"f:immutable-since": {}})
    marked = having_mark(written_by(helm, written(LONG_AGO, fields=KEYS)), LONG_UNUSED)
    own = marked["metadata"]["managedFields"][-2:]

    assert decide(marked).reason is Reason.UNUSED
    assert decide(having(marked, "metadata.managedFields", [helm, *after, *own])).reason is Reason.CHANGED


@pytest.mark.parametrize("key", ["manager", "operation", "apiVersion", "subresource", "time", "fieldsV1"])
def test_each_part_of_an_entry_of_another_client_counts(key):
    changed = copied(MARKED)
    entry = changed["metadata"]["managedFields"][0]
    entry[key] = {"fieldsV1": {"f:data": {}}, "time": format_instant(ago(60))}.get(key, "another")

    assert decide(changed).reason is Reason.CHANGED


def test_entry_without_a_time_is_no_change_until_it_has_one():
    """A server-side apply that changes no value has none, as if Flux takes an object over."""
    taken_over = written(LONG_AGO, "flux") | {"operation": "Apply"}
    del taken_over["time"]
    marked = having_mark(written_by(written(LONG_AGO), taken_over), LONG_UNUSED)
    changed = copied(marked)
    changed["metadata"]["managedFields"][1]["time"] = format_instant(ago(60))

    assert decide(marked).reason is Reason.UNUSED
    assert decide(changed).reason is Reason.CHANGED


def test_order_of_the_entries_and_our_own_fields_are_no_change():
    ours: Any = {"f:metadata": {"f:annotations": {".": {}, "f:ttlafterfinished.dev/deleted-after": {}}}}
    entries = [*reversed(MARKED["metadata"]["managedFields"]), written(ago(60), ANNOUNCEMENT_MANAGER, ours)]
    announced = having(MARKED, "metadata.managedFields", entries)

    assert decide(announced).reason is Reason.UNUSED
    entries[-1] = written(ago(60), "kubectl", ours)
    assert decide(having(MARKED, "metadata.managedFields", entries)).reason is Reason.UNUSED


def test_other_fields_under_the_name_of_our_field_manager_are_a_change():
    for manager in (MARK_MANAGER, ANNOUNCEMENT_MANAGER):
        entries = copied(MARKED)["metadata"]["managedFields"]
        if manager == MARK_MANAGER:
            entries[-1]["fieldsV1"] |= KEYS
        else:
            entries.append(written(ago(60), manager, KEYS))

        assert decide(having(MARKED, "metadata.managedFields", entries)).reason is Reason.CHANGED


def attested(**changes: Any) -> dict[str, Any]:
    """A due object; the entry of its mark has other values."""
    obj = copied(MARKED)
    obj["metadata"]["managedFields"][-1] |= changes
    return obj


BOTH: Any = {f"f:ttlafterfinished.dev/{name}": {} for name in ("unused-since", "unused-hash")}


@pytest.mark.parametrize(
    "obj",
    [
        having_mark(UNMARKED, LONG_UNUSED, by="kubectl-annotate", written_at=ago(60)),
        having_mark(UNMARKED, LONG_UNUSED, by="ttl-after-finished"),
        having_mark(UNMARKED, LONG_UNUSED, by=ANNOUNCEMENT_MANAGER),
        having_mark(UNMARKED, LONG_UNUSED, written_at=ago(60)),
        having_mark(UNMARKED, LONG_UNUSED, written_at=LONG_UNUSED + ATTESTED_SLACK + timedelta(seconds=1)),
        having_mark(UNMARKED, LONG_UNUSED, written_at=LONG_UNUSED - ATTESTED_SLACK - timedelta(seconds=1)),
        attested(operation="Apply"),
        attested(subresource="status"),
        attested(manager="kubectl"),
        attested(fieldsV1={"f:metadata": {"f:annotations": {"f:ttlafterfinished.dev/unused-since": {}}}}),
        attested(fieldsV1={"f:metadata": {"f:annotations": {"f:ttlafterfinished.dev/unused-hash": {}}}}),
        attested(fieldsV1={"f:metadata": {"f:labels": BOTH}}),
        attested(fieldsV1={"f:metadata": 7}),
    ],
)
def test_mark_that_no_entry_of_our_field_manager_attests_is_written_again(obj):
    decision = decide(obj)

    assert isinstance(decision, SetMark)
    assert decision.reason in (Reason.NEWLY_UNUSED, Reason.CHANGED)
    assert (decision.at, decision.hash_of_writes) == (NOW, hash_foreign_writes(obj, NOW))


def test_ttl_counts_from_the_instant_at_which_the_mark_was_stored():
    stored_at = LONG_UNUSED + timedelta(minutes=9)
    decision = decide(having_mark(UNMARKED, LONG_UNUSED, written_at=stored_at))

    assert decision.facts.marked_at == stored_at
    assert decision.facts.due_at == stored_at + timedelta(days=1)


def test_mark_has_the_time_of_a_server_whose_clock_is_far_ahead():
    """By its clock, the mark would count as forged otherwise, and would be written at each tick."""
    decision = decide(UNMARKED, ahead=timedelta(hours=1))

    assert isinstance(decision, SetMark)
    assert decision.at == NOW + timedelta(hours=1)


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


@pytest.mark.parametrize("obj", [UNMARKED, MARKED])
def test_audit_of_the_rule_itself_neither_marks_nor_deletes(obj):
    decision = decide(obj, context(policy=unused_policy(audit=True)))

    assert isinstance(decision, Keep)
    assert decision.reason is Reason.AUDIT_ONLY


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
        (without(MARKED, "metadata.managedFields"), Reason.UNATTESTED, False),
        (having(MARKED, "metadata.managedFields", []), Reason.UNATTESTED, False),
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


def test_hash_of_another_client_does_not_prevent_the_next_mark():
    """A write of the same value would change nothing, so its entry would not attest it."""
    obj = having_mark(UNMARKED, LONG_UNUSED, by="kubectl-annotate")
    first, second = decide(obj), decide(obj, now=later(60))

    assert isinstance(first, SetMark)
    assert isinstance(second, SetMark)
    assert first.hash_of_writes != second.hash_of_writes
