"""The namespaces in which a policy may have unused objects deleted."""

import pytest

from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.policy.policy import NO_POLICY
from shared.core.usage.passes import collected_by
from tests.builders import namespace
from tests.usage import unused_policy

BY_NAME = unused_policy(match={"kinds": ["configmaps"], "namespaces": {"names": ["ci-*"], "except": ["ci-prod"]}})
BY_LABEL = unused_policy(match={"kinds": ["secrets"], "namespaces": {"selector": {"matchLabels": {"team": "a"}}}})


def named(name, *, labels=None, **annotations):
    obj = namespace(name, **annotations)
    return namespace_of(obj | {"metadata": obj["metadata"] | {"labels": labels or {}}})


@pytest.mark.parametrize(
    ("policy", "of", "is_collected"),
    [
        (NO_POLICY, named("ci", unused="true"), False),
        (unused_policy(), named("ci", unused="true"), True),
        (unused_policy(), named("ci"), False),
        (unused_policy(), named("ci", unused="true", exempt="true"), False),
        (unused_policy(), named("ci", unused="yes"), False),
        (unused_policy(), named("kube-system", unused="true"), False),
        (BY_NAME, plain_namespace("ci-a"), True),
        (BY_NAME, named("ci-a", unused="false"), False),
        (BY_NAME, plain_namespace("ci-prod"), False),
        (BY_NAME, named("web", unused="true"), False),
        (BY_LABEL, named("web", labels={"team": "a"}), True),
        (BY_LABEL, named("web", labels={"team": "b"}), False),
    ],
)
def test_namespace_is_collected_if_a_rule_may_delete_its_unused_objects(policy, of, is_collected):
    assert collected_by(policy.rules)(of) is is_collected
