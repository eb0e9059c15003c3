"""How a kind rule says from which objects a TTL is inherited, and what is rejected."""

import pytest
from pydantic import ValidationError

from shared.core.kinds.ttl_and_deadline import NativeTtl
from tests.builders import TRAINJOB, not_none

KIND = {"apiVersions": ["example.com/v1"], "kind": "Runtime", "plural": "runtimes", "scope": "Cluster"}
INHERITED = {"ref": "spec.runtimeRef", "kinds": [KIND], "fields": [{"path": "spec.ttl"}]}


def rule(**inherited):
    return NativeTtl.model_validate({"fields": [{"path": "spec.ttl"}], "inherited": INHERITED | inherited})


def test_inherited_ttl_is_read():
    inherited = not_none(rule().inherited)

    assert not_none(inherited.find_kind("example.com", "Runtime")).plural == "runtimes"
    assert inherited.find_kind("example.org", "Runtime") is None
    assert inherited.find_kind("example.com", "Run") is None


@pytest.mark.parametrize(
    "inherited",
    [
        {"ref": "spec.runtimeRefs[*]"},
        {"ref": "runtime"},
        {"kinds": []},
        {"fields": []},
        {"kinds": [KIND | {"finished": {}}]},
        {"path": "spec.ttl"},
    ],
    ids=str,
)
def test_malformed_inheritance_is_rejected(inherited):
    with pytest.raises(ValidationError):
        rule(**inherited)


def test_field_that_is_left_to_its_controller_is_not_inherited():
    with pytest.raises(ValidationError, match="expected `native: act` beside inherited"):
        NativeTtl.model_validate({"fields": [{"path": "spec.ttl"}], "native": "leave", "inherited": INHERITED})


def test_trainjobs_inherit_from_both_kinds_of_runtimes_and_first_from_that_of_the_cluster():
    """RuntimeRef of kubeflow/trainer: its kind is ClusterTrainingRuntime if it is not set."""
    kinds = not_none(not_none(TRAINJOB.ttl).inherited).kinds

    assert [(one.kind, one.scope) for one in kinds] == [
        ("ClusterTrainingRuntime", "Cluster"),
        ("TrainingRuntime", "Namespaced"),
    ]
