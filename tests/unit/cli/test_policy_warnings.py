"""What `plan --policy` warns about: deadlines of the new policy, and owners whose children it has archived."""

import pytest

from shared.cli.planning.comparison import Comparison
from shared.cli.planning.comparison_output import describe_deadlines, describe_owners
from shared.core.policy.policy import NO_POLICY, Policy
from tests.builders import JOB, POD, ago, namespace, shipped_kinds
from tests.unit.cli.test_plan import a_job, a_pod, cluster_of, look, policy_of

pytestmark = pytest.mark.anyio

NO_STOP = POD.model_copy(update={"deadline": None, "finished": POD.finished})
OPT_IN = JOB.model_copy(update={"opt_in": "deleting it deletes the data"})


async def deadline_warnings(policy, *objects, rules=(JOB, NO_STOP)):
    comparison = Comparison((await look(cluster_of(*objects), NO_POLICY, policy, rules=rules)).objects)
    return list(describe_deadlines(comparison, policy))


async def test_deadline_that_stops_objects_is_no_warning():
    assert await deadline_warnings(policy_of({"match": {"kinds": ["jobs"]}, "activeDeadline": "1h"}), a_job(1)) == []


async def test_kind_that_cannot_be_stopped_is_named_with_the_number_of_its_objects():
    pods = [a_pod(number) for number in range(3)]
    for one in pods:
        one["status"] = {"phase": "Running", "startTime": one["status"].get("startTime", "2026-01-01T00:00:00Z")}
    (warning,) = await deadline_warnings(policy_of({"activeDeadline": "1h"}), *pods)
    assert warning.startswith("policy rule r0 sets a deadline for 3 pods, which are not stopped: ")


async def test_rule_that_matches_an_opt_in_kind_by_a_glob_is_named():
    found = await deadline_warnings(policy_of({"activeDeadline": "1h"}), a_job(1), rules=(OPT_IN,))
    assert "policy rule r0 sets no deadline for jobs.batch, an opt-in kind: name it in match.kinds" in found
    named = policy_of({"match": {"kinds": ["jobs.batch"]}, "activeDeadline": "1h"})
    assert await deadline_warnings(named, a_job(1), rules=(OPT_IN,)) == []


async def test_maximum_that_shortens_the_deadline_of_a_rule_is_named():
    ci = namespace("ci", max_active_deadline="30m")
    (warning,) = await deadline_warnings(
        policy_of({"match": {"kinds": ["jobs"]}, "activeDeadline": "1h"}), a_job(1), ci
    )
    assert warning == "max-active-deadline of namespace ci shortens the deadline of policy rule r0 for 1 object"


async def test_rule_that_sets_no_deadline_of_any_object_is_named():
    idle = {"match": {"kinds": ["jobs"], "namespaces": {"names": ["CI"]}}, "activeDeadline": "1h"}
    found = await deadline_warnings(policy_of(idle, {"ttl": "1h"}), a_job(1), a_job(2, complete=ago(60)))
    assert found == ["no running object gets its deadline from policy rule r0"]


ARCHIVES = {"main": {"url": "file:///archive"}}
PODS = {"name": "pods", "match": {"kinds": ["pods"]}, "archive": {"to": "main"}}
JOBS = {"name": "jobs", "match": {"kinds": ["jobs"]}, "ttl": "1h"}


async def archive_warnings(*rules):
    policy = Policy.model_validate({"archives": ARCHIVES, "rules": list(rules)}).of_kinds(shipped_kinds())
    objects = [a_job(number, complete=ago(60)) for number in range(3)] + [a_pod(1)]
    preview = await look(cluster_of(*objects), NO_POLICY, policy, rules=(JOB, POD))
    return list(describe_owners(preview.objects, policy, shipped_kinds()))


async def test_owners_that_wait_for_the_archive_of_their_children_are_counted():
    (warning,) = await archive_warnings(PODS, JOBS)

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
    assert await archive_warnings(*rules) == []
