"""The check of the guards for Secrets and ConfigMaps."""

import asyncio

import pytest

from shared.core.policy.policy import NO_POLICY
from shared.doctor.findings import Level
from shared.doctor.usage_needs import check_usage_guards
from shared.errors import ForbiddenError
from shared.installation.usage_guard import usage_guards
from tests.builders import having, without
from tests.unit.doctor.test_doctor_guard import NAMESPACE, PLACE, Server
from tests.usage import unused_policy

MADE = [one.body for one in usage_guards(NAMESPACE)]
POLICIES, BINDINGS = MADE[::2], MADE[1::2]


def check(server, policy=None):
    return asyncio.run(check_usage_guards(server, policy or unused_policy(), PLACE))


def test_current_usage_guards_are_ok():
    (finding,) = check(Server(POLICIES, BINDINGS))
    assert finding.level is Level.OK
    assert all(one["metadata"]["name"] in finding.detail for one in POLICIES)


@pytest.mark.parametrize("policy", [NO_POLICY, unused_policy(unused={"ttl": "1d", "audit": True})])
def test_policy_that_deletes_nothing_needs_no_usage_guard(policy):
    assert check(Server(), policy) == []


@pytest.mark.parametrize(
    ("server", "state"),
    [
        (Server(), "missing"),
        (Server(POLICIES), "missing"),
        (Server([without(one, "metadata.annotations") for one in POLICIES], BINDINGS), "stale"),
        (Server([one.body for one in usage_guards("elsewhere")][::2], BINDINGS), "of others"),
        (Server([having(one, "spec.validations", []) for one in POLICIES], BINDINGS), "altered"),
    ],
)
def test_usage_guard_that_this_version_does_not_make_is_reported(server, state):
    (finding,) = check(server)
    assert (finding.level, finding.what) == (Level.WARN, f"usage guard {state}")
    assert "usage-guard" in finding.fix


def test_only_the_altered_usage_guard_is_reported():
    altered = [having(POLICIES[0], "spec.failurePolicy", "Ignore"), *POLICIES[1:]]
    by_level = {one.level: one.detail for one in check(Server(altered, BINDINGS))}
    assert POLICIES[0]["metadata"]["name"] in by_level[Level.WARN]
    assert POLICIES[1]["metadata"]["name"] in by_level[Level.OK]


@pytest.mark.parametrize("server", [Server(served=False), Server(error=ForbiddenError("no right"))])
def test_usage_guards_that_cannot_be_read_are_reported(server):
    (finding,) = check(server)
    assert finding.level is not Level.OK
