"""What `plan --policy` warns about in the archives of a new policy."""

import pytest

from shared.cli.policies.archive_warnings import describe_archives
from shared.cli.policies.comparison import Comparison
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
    comparison = Comparison((await look(cluster_of(*objects), NO_POLICY, policy, rules=(JOB, POD))).objects)
    return list(describe_archives(comparison, policy))


async def test_owner_without_an_archive_whose_children_a_rule_archives_is_named():
    (warning,) = await warnings(PODS, JOBS)

    assert warning.startswith(
        "3 jobs.batch are deleted without an archive, and the garbage collector deletes their pods"
    )


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param((PODS, JOBS | {"archive": {"to": "main"}}), id="the owner is archived"),
        pytest.param((PODS, JOBS | {"propagation": "Orphan"}), id="the children stay"),
        pytest.param((PODS, JOBS | {"ttl": "never"}), id="the owner stays"),
        pytest.param((JOBS,), id="no child is archived"),
    ],
)
async def test_policy_that_loses_no_archived_children_is_no_warning(rules):
    assert await warnings(*rules) == []
