"""An object is archived when it finishes, whether or not a TTL is set for it."""

import pytest

from shared.core.archive.decide_archive import ToArchive, decide_archive, may_archive
from shared.core.decision.decide import Context, Ignore, Reason
from shared.core.decision.namespaces import namespace_of
from shared.core.policy.policy import NO_POLICY
from tests.archives import acknowledged, archiving
from tests.builders import JOB, NOW, POD, ago, annotated, having, job, namespace

DONE = job(complete=ago(60))
HOME = namespace_of(namespace())


def decided(obj, policy=None, home=HOME, archived=None, rule=JOB):
    return decide_archive(obj, rule, NOW, Context(policy or archiving(), home, archived=archived))


@pytest.mark.parametrize(
    "obj", [DONE, job(failed=ago(60)), annotated(DONE, ttl="never"), annotated(DONE, ttl="soon"), job(complete=NOW)]
)
def test_finished_object_is_archived_whatever_its_ttl_is(obj):
    decision = decided(obj)

    assert isinstance(decision, ToArchive)
    assert (decision.archiving.to, decision.archiving.children, decision.archiving.logs) == ("main", True, False)


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        pytest.param(job(), Reason.UNFINISHED, id="running"),
        pytest.param(annotated(DONE, hold="why"), Reason.HELD, id="held"),
        pytest.param(having(DONE, "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"), Reason.TERMINATING, id="gone"),
        pytest.param(annotated(DONE, archive="false"), Reason.NO_ARCHIVE, id="opted out"),
        pytest.param(annotated(DONE, archive="yes"), Reason.INVALID_ARCHIVE, id="unreadable"),
        pytest.param({"kind": "Job"}, Reason.UNKNOWN_SHAPE, id="no object"),
        pytest.param(None, Reason.UNKNOWN_SHAPE, id="null"),
    ],
)
def test_object_is_left_alone(obj, reason):
    decision = decided(obj)

    assert isinstance(decision, Ignore)
    assert decision.reason is reason
    assert not may_archive(obj, JOB, Context(archiving(), HOME)) or reason in (
        "unfinished",
        "invalid-archive",
        "unknown-shape",
    )


@pytest.mark.parametrize(
    ("home", "reason"),
    [
        (namespace(exempt="true"), Reason.EXEMPT),
        (namespace(exempt="no!"), Reason.INVALID_POLICY),
        (namespace(archive="false"), Reason.NO_ARCHIVE),
        (namespace(archive="nowhere"), Reason.INVALID_ARCHIVE),
    ],
)
def test_namespace_leaves_its_objects_alone(home, reason):
    assert decided(DONE, home=namespace_of(home)).reason is reason


def test_unread_namespace_is_asked_for_only_if_the_policy_has_archives():
    assert decided(DONE, home=None).reason is Reason.NAMESPACE_UNREAD
    assert decided(DONE, NO_POLICY, home=None).reason is Reason.NO_ARCHIVE
    assert isinstance(decided(annotated(DONE, archive="true"), home=None), ToArchive)


def test_acknowledged_version_is_not_archived_again():
    assert decided(DONE, archived=acknowledged(DONE)).reason is Reason.ARCHIVED


def test_changed_object_is_archived_again():
    changed = having(DONE, "metadata.resourceVersion", "1043")

    assert isinstance(decided(changed, archived=acknowledged(DONE)), ToArchive)


def test_kind_of_a_native_archiver_is_left_to_it():
    policy = archiving(
        archives={"main": {"native": "tekton-results"}}, match={"kinds": ["taskruns.tekton.dev"]}
    ).model_copy()
    policy = policy.model_copy(
        update={"rules": (policy.rules[0].model_copy(update={"match": archiving().rules[0].match}),)}
    )

    decision = decided(DONE, policy)

    assert isinstance(decision, Ignore)
    assert decision.reason is Reason.NOT_ARCHIVED


@pytest.mark.parametrize(
    ("rule", "home", "expected"),
    [
        (JOB, None, True),
        (JOB, HOME, True),
        (POD, None, True),
        (POD, HOME, False),
        (POD, namespace(archive="main"), True),
    ],
)
def test_cheap_check_knows_the_policy_and_the_namespace(rule, home, expected):
    home = namespace_of(home) if isinstance(home, dict) else home

    assert may_archive(DONE, rule, Context(archiving(), home)) is expected
    assert not may_archive(DONE, rule, Context(NO_POLICY, home))
