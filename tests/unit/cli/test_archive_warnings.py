"""What `plan` says about owners whose children a policy has archived."""

import pytest

from shared.cli.policies.archive_warnings import describe_owners
from shared.core.policy.policy import NO_POLICY, Policy
from tests.builders import JOB, POD, ago, shipped_kinds
from tests.unit.cli.test_plan import a_job, a_pod, cluster_of, look

pytestmark = pytest.mark.anyio

ARCHIVES = {"main": {"url": "file:///archive"}}
PODS = {"name": "pods", "match": {"kinds": ["pods"]}, "archive": {"to": "main"}}
JOBS = {"name": "jobs", "match": {"kinds": ["jobs"]}, "ttl": "1h"}


async def warnings(*rules):
    policy = Policy.model_validate({"archives": ARCHIVES, "rules": list(rules)}).of_kinds(shipped_kinds())
    objects = [a_job(number, complete=ago(60)) for number in range(3)] + [a_pod(1)]
    preview = await look(cluster_of(*objects), NO_POLICY, policy, rules=(JOB, POD))
    return list(describe_owners(preview.objects, policy, shipped_kinds()))


async def test_owners_that_wait_for_the_archive_of_their_children_are_counted():
    (warning,) = await warnings(PODS, JOBS)

    assert warning.startswith("3 jobs.batch may be deleted later than shown: not before their pods are archived")


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param((PODS, JOBS | {"propagation": "Orphan"}), id="the children stay"),
        pytest.param((PODS, JOBS | {"ttl": "never"}), id="the owner stays"),
        pytest.param((JOBS,), id="no child is archived"),
    ],
)
async def test_owners_that_wait_for_no_child_are_not_counted(rules):
    assert await warnings(*rules) == []
