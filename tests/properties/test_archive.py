"""Properties of the archive's part in decisions, for any object and any instant."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.archive.archiving import ArchiveFact
from shared.core.archive.copies import copy_of
from shared.core.archive.decide_archive import ToArchive, decide_archive, may_archive
from shared.core.archive.document import canonical, digest_of
from shared.core.archive.gate import find_stored_at
from shared.core.archive.layout import parse_key
from shared.core.decision.decide import Context, Expire, Ignore, Reason, Wait, decide
from shared.core.decision.namespaces import namespace_of
from shared.core.values.objects import get_text, ref_of
from tests.archives import CLUSTER, acknowledged, archiving
from tests.builders import JOB, NOW, ago, annotated, job, namespace
from tests.properties.strategies import any_text, anything, instants, json_values, objects, recent_instants, scalars
from tests.properties.test_decide import comparable, of_its_kind

searching = settings(max_examples=100, deadline=None)

POLICY = archiving(match={"kinds": ["jobs", "pods", "trainjobs.trainer.kubeflow.org"]}, ttl="1m")
HOME = namespace_of(namespace())

facts = st.builds(
    ArchiveFact,
    to=st.sampled_from(["main", "other", ""]),
    uid=any_text | st.just(job()["metadata"]["uid"]),
    resource_version=any_text | st.just("1042"),
    acknowledged_at=st.none() | instants,
)
annotations = st.none() | scalars | st.sampled_from(["true", "false", "main", "other"])


def jobs():
    return st.builds(
        lambda at, ttl, archive: annotated(
            job(complete=at, ttl=ttl), **({} if archive is None else {"archive": archive})
        ),
        recent_instants,
        st.integers(0, 10**6),
        annotations,
    )


@searching
@given(obj=anything | objects, now=instants, fact=st.none() | facts, at_home=st.booleans())
def test_any_json_has_decisions_and_the_same_each_time(obj, now, fact, at_home):
    rule, context = of_its_kind(obj), Context(POLICY, HOME if at_home else None, archived=fact)
    first, again = (decide_archive(obj, rule, now, context) for _ in range(2))

    assert isinstance(first, Ignore | ToArchive)
    assert comparable(first) == comparable(again)
    assert isinstance(decide(obj, rule, now, context), Ignore | Wait | Expire)
    assert may_archive(obj, rule, context) or isinstance(first, Ignore)


@searching
@given(obj=jobs(), now=instants, later=st.timedeltas(timedelta(0), timedelta(days=10_000)), fact=st.none() | facts)
def test_due_object_stays_due(obj, now, later, fact):
    context = Context(POLICY, HOME, archived=fact)
    try:
        then = now + later
    except OverflowError:
        return
    if isinstance(decide(obj, JOB, now, context), Expire):
        assert isinstance(decide(obj, JOB, then, context), Expire)


@searching
@given(obj=jobs(), now=instants, fact=st.none() | facts)
def test_object_is_never_due_before_its_version_is_acknowledged_and_the_grace_is_over(obj, now, fact):
    decision = decide(obj, JOB, now, Context(POLICY, HOME, archived=fact))

    if isinstance(decision, Expire) and obj["metadata"].get("annotations") is None:
        assert fact is not None
        assert fact.acknowledged_at is not None
        assert (fact.to, fact.uid) == ("main", get_text(obj, "metadata.uid"))
        assert fact.resource_version == get_text(obj, "metadata.resourceVersion")
        assert fact.acknowledged_at + timedelta(hours=1) <= now


@searching
@given(obj=jobs(), now=instants, exempt=st.booleans())
def test_hold_and_exempt_namespace_always_take_precedence(obj, now, exempt):
    home = namespace_of(namespace(exempt="true")) if exempt else HOME
    obj = obj if exempt else annotated(obj, hold="why")
    context = Context(POLICY, home, archived=acknowledged(obj, ago(10**9)))
    reason = Reason.EXEMPT if exempt else Reason.HELD

    assert decide(obj, JOB, now, context).reason is reason
    assert decide_archive(obj, JOB, now, context).reason is reason


@searching
@given(value=scalars | json_values)
def test_any_value_of_the_annotation_keeps_the_object_or_is_one_of_ours(value):
    decision = decide(annotated(job(complete=ago(60), ttl=1), archive=value), JOB, NOW, Context(POLICY, HOME))

    assert decision.reason in (Reason.NOT_ARCHIVED, Reason.INVALID_ARCHIVE) or value == "false"


@searching
@given(obj=objects | anything)
def test_tekton_results_is_read_from_any_json(obj):
    find_stored_at(obj)


@searching
@given(obj=objects)
def test_copy_of_any_object_is_its_canonical_json_under_a_key_that_can_be_parsed(obj):
    try:
        copied = copy_of(obj, of_its_kind(obj), cluster=CLUSTER, secrets=True)
    except ValueError:
        return
    assert copied.text == canonical(obj)
    assert copied.key.digest == digest_of(copied.text)
    ref = ref_of(obj)
    is_real = of_its_kind(obj).api_version == ref.api_version and ref.namespace != "_"
    if is_real and not {".", "%"} & {*ref.uid, *get_text(obj, "metadata.resourceVersion")} and ref.kind:
        assert parse_key(copied.key.path) == copied.key
