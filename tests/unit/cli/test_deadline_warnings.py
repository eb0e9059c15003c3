"""What `plan --policy` warns about in the deadlines of a new policy."""

import pytest

from shared.cli.policies.comparison import Comparison
from shared.cli.policies.deadline_warnings import describe_deadlines
from shared.core.policy.policy import NO_POLICY
from tests.builders import JOB, POD, ago, namespace
from tests.unit.cli.test_plan import a_job, a_pod, cluster_of, look, policy_of

pytestmark = pytest.mark.anyio

NO_STOP = POD.model_copy(update={"deadline": None, "finished": POD.finished})
OPT_IN = JOB.model_copy(update={"opt_in": "deleting it deletes the data"})


async def warnings(policy, *objects, rules=(JOB, NO_STOP)):
    comparison = Comparison((await look(cluster_of(*objects), NO_POLICY, policy, rules=rules)).objects)
    return list(describe_deadlines(comparison, policy))


async def test_deadline_that_stops_objects_is_no_warning():
    assert await warnings(policy_of({"match": {"kinds": ["jobs"]}, "activeDeadline": "1h"}), a_job(1)) == []


async def test_kind_that_cannot_be_stopped_is_named_with_the_number_of_its_objects():
    pods = [a_pod(number) for number in range(3)]
    for one in pods:
        one["status"] = {"phase": "Running", "startTime": one["status"].get("startTime", "2026-01-01T00:00:00Z")}
    (warning,) = await warnings(policy_of({"activeDeadline": "1h"}), *pods)
    assert warning.startswith("policy rule r0 sets a deadline for 3 pods, which are not stopped: ")


async def test_rule_that_matches_an_opt_in_kind_by_a_glob_is_named():
    found = await warnings(policy_of({"activeDeadline": "1h"}), a_job(1), rules=(OPT_IN,))
    assert "policy rule r0 sets no deadline for jobs.batch, an opt-in kind: name it in match.kinds" in found
    named = policy_of({"match": {"kinds": ["jobs.batch"]}, "activeDeadline": "1h"})
    assert await warnings(named, a_job(1), rules=(OPT_IN,)) == []


async def test_maximum_that_shortens_the_deadline_of_a_rule_is_named():
    ci = namespace("ci", max_active_deadline="30m")
    (warning,) = await warnings(policy_of({"match": {"kinds": ["jobs"]}, "activeDeadline": "1h"}), a_job(1), ci)
    assert warning == "max-active-deadline of namespace ci shortens the deadline of policy rule r0 for 1 object"


async def test_rule_that_sets_no_deadline_of_any_object_is_named():
    idle = {"match": {"kinds": ["jobs"], "namespaces": {"names": ["CI"]}}, "activeDeadline": "1h"}
    found = await warnings(policy_of(idle, {"ttl": "1h"}), a_job(1), a_job(2, complete=ago(60)))
    assert found == ["no running object gets its deadline from policy rule r0"]
