"""The check of the guard rails: whole, applied in part, of another version, or not applied."""

import asyncio
from dataclasses import replace

import pytest

from shared.doctor import delete_guard
from shared.doctor.findings import Level
from shared.errors import ForbiddenError
from shared.installation.inventory import name_of
from tests.builders import having, without
from tests.unit.doctor.test_doctor_guard import PLACE, Server

SHIPPED = list(delete_guard._shipped())  # the manifests themselves are the table
POLICIES = [one for one in SHIPPED if not one["kind"].endswith("Binding")]
BINDINGS = [one for one in SHIPPED if one["kind"].endswith("Binding")]
HOLDS = "ttl-after-finished-holds"


def check(server, place=PLACE):
    return asyncio.run(delete_guard.check_guardrails(server, place))


def altered(objects, name, path, value):
    return [having(one, path, value) if name_of(one) == name else one for one in objects]


def without_one(objects, name):
    return [one for one in objects if name_of(one) != name]


def test_guard_rails_are_six_policies_with_their_bindings():
    assert len(POLICIES) == len(BINDINGS) == 6


@pytest.mark.parametrize(
    "policies", [POLICIES, [having(one, "spec.matchConstraints.matchPolicy", "Equivalent") for one in POLICIES]]
)
def test_whole_guard_rails_are_ok(policies):
    (finding,) = check(Server(policies, BINDINGS))
    assert (finding.level, finding.what) == (Level.OK, "guard rails")
    assert all(name_of(one) in finding.detail for one in POLICIES)


def test_guard_rails_that_are_not_applied_are_no_finding():
    assert check(Server()) == []


@pytest.mark.parametrize(
    ("server", "state"),
    [
        (Server(without_one(POLICIES, HOLDS), BINDINGS), "missing"),
        (Server(without_one(POLICIES, HOLDS), without_one(BINDINGS, HOLDS)), "missing"),
        (Server(POLICIES, without_one(BINDINGS, HOLDS)), "without a binding"),
        (Server(altered(POLICIES, HOLDS, "spec.validations", []), BINDINGS), "of another version"),
        (
            Server([without(one, "spec") if name_of(one) == HOLDS else one for one in POLICIES], BINDINGS),
            "of another version",
        ),
        (Server(POLICIES, altered(BINDINGS, HOLDS, "spec.validationActions", ["Warn"])), "of another version"),
    ],
)
def test_part_that_is_missing_or_old_is_named_with_the_command_that_applies_it(server, state):
    (finding,) = check(server)
    assert (finding.level, finding.what) == (Level.WARN, f"guard rails {state}")
    assert finding.detail.endswith(f": {HOLDS}")
    assert "apply -k" in finding.fix
    assert "components/guardrails" in finding.fix


def test_groups_that_may_hold_are_the_operators_choice():
    policies = []
    for one in POLICIES:
        first, *rest = one["spec"]["variables"]
        named = [{**first, "expression": "['sre']"}, *rest]
        policies.append(having(one, "spec.variables", named) if name_of(one) == HOLDS else one)
    assert [one.level for one in check(Server(policies, BINDINGS))] == [Level.OK]


def test_helm_release_is_upgraded():
    (finding,) = check(Server(POLICIES, BINDINGS[1:]), replace(PLACE, release="ttl"))
    assert "helm" in finding.fix
    assert "--set=components.guardrails=true" in finding.fix
    assert "apply -k" not in finding.fix


def test_guard_rails_that_cannot_be_read_are_reported():
    (finding,) = check(Server(error=ForbiddenError("no right")))
    assert (finding.level, finding.what) == (Level.WARN, "guard rails")
