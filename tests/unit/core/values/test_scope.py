"""The scope of a leader in its Lease: written, read back, and ignored if another holder wrote it."""

import pytest

from shared.core.values.scope import LEASE_KINDS_MAX, Scope, parse_scope

SCOPE = Scope("prod", ("jobs.batch", "pods"), "1a2b3c4d5e6f", dry_run=True, version="1.2.3", state="ops")
ALL = Scope("", (), "", dry_run=False, version="1.2.3")


def lease(annotations, holder="laptop/7"):
    return {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": holder}}


@pytest.mark.parametrize("scope", [SCOPE, ALL])
def test_scope_is_read_as_it_was_written(scope):
    assert parse_scope(lease(scope.as_annotations("laptop/7"))) == scope


def test_scope_of_another_holder_does_not_count():
    """An older version takes the Lease over and leaves the annotations of the holder before it."""
    assert parse_scope(lease(SCOPE.as_annotations("laptop/7"), holder="server/1")) is None


@pytest.mark.parametrize("annotations", [None, {}, [], {"ttlafterfinished.dev/leader": 5}])
def test_lease_without_a_scope_has_none(annotations):
    assert parse_scope(lease(annotations)) is None
    assert parse_scope(None) is None


def test_scope_from_a_lease_is_bounded_and_printable():
    annotations = SCOPE.as_annotations("laptop/7")
    domain = "ttlafterfinished.dev/leader"
    annotations[f"{domain}-kinds"] = ",".join(f"\x1b[2J{number}" * 100 for number in range(10 * LEASE_KINDS_MAX))
    annotations[f"{domain}-namespace"] = annotations[f"{domain}-policy"] = "\x1b[2J" * 10_000
    scope = parse_scope(lease(annotations))
    assert scope is not None
    assert 0 < len(scope.kinds) <= LEASE_KINDS_MAX
    assert "\x1b" not in str(scope) + scope.namespace + scope.policy + "".join(scope.kinds)
    assert len(str(scope)) < 2_000


@pytest.mark.parametrize(
    ("scope", "reported"),
    [
        (ALL, "all namespaces, all kinds, no policy, version 1.2.3"),
        (SCOPE, "namespace prod, jobs.batch and pods, policy sha256:1a2b3c4d5e6f, dry run, version 1.2.3"),
        (Scope("", ("a", "b", "c", "d", "e"), "", dry_run=False, version=""), "all namespaces, 5 kinds, no policy"),
    ],
)
def test_scope_as_text_has_namespaces_kinds_policy_and_version(scope, reported):
    assert str(scope) == reported


@pytest.mark.parametrize(
    ("scope", "kind", "namespace", "handles"),
    [
        (ALL, "jobs.batch", "ci", True),
        (SCOPE, "jobs.batch", "prod", True),
        (SCOPE, "jobs.batch", "ci", False),
        (SCOPE, "workflows.argoproj.io", "prod", False),
        (SCOPE, "pods", "", False),
    ],
)
def test_scope_handles_only_its_kinds_and_namespaces(scope, kind, namespace, handles):
    assert (scope.handles_kind(kind) and scope.handles_namespace(namespace)) is handles
