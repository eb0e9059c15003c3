"""The check of what rules with `unused` need: carriers that can be listed, readable carrier rules, and the guards."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from shared.core.policy.policy import NO_POLICY
from shared.doctor.findings import Level
from shared.doctor.usage_needs import check_usage, check_usage_guards
from shared.errors import ForbiddenError
from shared.installation.inventory import OURS, Inventory, Listed
from shared.installation.usage_guard import usage_guards
from shared.ports import ListableKind, ListableKinds, Page, Target, TargetPage
from shared.safeguards.state_schema import NAME, AcceptedPlan, hash_unused_rules, with_accepted_plan
from tests.builders import NOW, having, namespace, without
from tests.unit.doctor.test_doctor_guard import NAMESPACE, PLACE, Server
from tests.usage import config_map, unused_policy

POLICY = unused_policy(unused={"ttl": "1d", "audit": True})
FOLDER = "/etc/ttl-after-finished-references"
GIZMOS = ListableKind(("example.com/v1",), "gizmos", "Gizmo", is_namespaced=True)
REFERS_TO_NONE = "apiVersions: [example.com/v1]\nkind: Gizmo\nplural: gizmos\nsource: us\nrefersToNone: numbers\n"


class Api:
    """An API server with the kind Gizmo."""

    def __init__(self, served, version="7", objects=(), opted_in="false", refused=(), role=None):
        self.kinds, self.version, self.objects, self.opted_in = served, version, [*objects], opted_in
        self.refused, self.role = refused, role

    async def list_kinds(self):
        return self.kinds

    async def list_objects(self, _kind, *, limit=0, namespace="", continue_token=""):
        return Page([] if limit else self.objects, NOW, "", self.version)

    async def list_page(self, _rule, **_options):
        return Page([namespace("ci", unused=self.opted_in)], NOW, "", "7")

    async def list_targets(self, kind, **_options):
        return TargetPage([Target(config_map(), NOW)] if kind == "ConfigMap" else [], NOW, "", "7")

    async def request(self, method, path, **options):
        if method == "GET" and "clusterroles" in path:
            return self.role
        asked = (options.get("body") or {}).get("spec", {}).get("resourceAttributes", {})
        of = asked.get("verb", ""), asked.get("resource", ""), asked.get("namespace", "")
        return SimpleNamespace(body={"status": {"allowed": of not in self.refused}})


LISTED = ListableKinds((GIZMOS,), NOW)
NOT_LISTED = replace(LISTED, kinds=(), unlistable=(GIZMOS,))


def check(api, rules=None, policy=POLICY, state=None, name="usage", kinds=()):
    mount = {"env": [{"name": "TTL_REFERENCES_DIR", "value": FOLDER}]} if rules else {}
    mount |= {"volumeMounts": [{"name": "references", "mountPath": FOLDER}]} if rules else {}
    volumes = [{"name": "references", "configMap": {"name": "references-1"}}] if rules else []
    pod = {"containers": [{"name": "main", **mount}], "volumes": volumes}
    workload = {"metadata": {"name": name, "labels": OURS}, "spec": {"template": {"spec": pod}}}
    config = {"metadata": {"name": "references-1"}, "data": {"gizmos.yaml": rules}}
    shared_state = {"metadata": {"name": NAME}, "data": state}
    found = Inventory({"Deployment": Listed((workload,)), "ConfigMap": Listed((config, shared_state))})
    return {one.what: one for one in asyncio.run(check_usage(api, found, policy, PLACE, kinds=kinds))}


def test_carriers_that_are_listed_with_their_version_are_ok():
    findings = check(Api(LISTED))
    assert {one.level for one in findings.values()} == {Level.OK}


def test_rules_that_run_does_not_apply_are_reported():
    finding = check(Api(LISTED), name="standalone", kinds=("jobs", "pods"))["unused objects"]
    assert finding.level is Level.WARN
    assert "standalone applies no rule with unused, since TTL_KINDS names the only kinds" in finding.detail
    assert "TTL_KINDS=all" in finding.fix
    assert "unused objects" not in check(Api(LISTED), name="standalone")
    assert "unused objects" not in check(Api(LISTED), kinds=("jobs", "pods"))


def test_list_without_a_resource_version_is_named():
    finding = check(Api(LISTED, version=""))["carriers"]
    assert finding.level is Level.FAIL
    assert "gizmos.example.com has no resourceVersion" in finding.detail


def test_kind_that_cannot_be_listed_is_named():
    finding = check(Api(NOT_LISTED))["carriers"]
    assert "gizmos.example.com is served, and its API server cannot list it" in finding.detail


def test_mounted_carrier_rule_counts():
    assert "carriers" not in check(Api(NOT_LISTED), REFERS_TO_NONE)
    assert "carriers" not in check(Api(LISTED, version=""), REFERS_TO_NONE)


def test_invalid_carrier_rule_is_reported():
    finding = check(Api(LISTED), "apiVersions: [example.com/v1]\nkind: Gizmo\n")["carrier rules"]
    assert finding.level is Level.FAIL
    assert "gizmos.yaml" in finding.detail


def gizmo(**spec):
    return {"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": "x", "namespace": "ci"}, "spec": spec}


def test_object_that_may_refer_to_everything_is_named():
    one = gizmo(configMap="${place}/${name}")
    del one["metadata"]["namespace"]  # one of a namespace says nothing about others
    finding = check(Api(LISTED, objects=[one], opted_in="true"))["references"]
    assert finding.level is Level.FAIL
    assert "Gizmo x" in finding.detail
    assert "references" not in check(Api(LISTED, objects=[one]))


def test_object_that_may_refer_to_everything_in_its_namespace_is_named():
    finding = check(Api(LISTED, objects=[gizmo(ref={"kind": "ConfigMap"})], opted_in="true"))["references in ci"]
    assert finding.level is Level.WARN
    assert "Gizmo ci/x" in finding.detail


def test_objects_that_can_be_read_are_no_finding():
    assert not [one for one in check(Api(LISTED, objects=[gizmo(x="web")], opted_in="true")) if "references" in one]


def accepted(*policies):
    hashes = [one for policy in policies for one in hash_unused_rules(policy).values()]
    return with_accepted_plan({}, AcceptedPlan(NOW, "ann", frozenset(hashes)))


def test_rule_without_an_accepted_plan_is_a_warning_until_the_plan_is_accepted():
    policy = unused_policy()

    before = check(Api(LISTED), policy=policy)["policy rule rotated"]
    after = check(Api(LISTED), policy=policy, state=accepted(policy))["policy rule rotated"]

    assert (before.level, after.level) == (Level.WARN, Level.OK)
    assert "kubectl ttl plan --accept" in before.fix
    assert "by ann" in after.detail


def test_rule_that_changed_since_its_plan_was_accepted_is_a_warning_again():
    state = accepted(unused_policy())
    finding = check(Api(LISTED), policy=unused_policy(unused={"ttl": "1h"}), state=state)["policy rule rotated"]
    assert finding.level is Level.WARN


def everywhere(*rights):
    return [(verb, kind, place) for verb, kind in rights for place in ("", "ci")]


def rights_on_objects(policy=None, **options):
    return check(Api(LISTED, opted_in="true", **options), policy=policy or unused_policy())[
        "rights of default on unused objects"
    ]


def test_rights_that_a_rule_needs_in_its_namespaces_are_ok():
    finding = rights_on_objects()
    assert (finding.level, finding.detail) == (
        Level.OK,
        "delete configmaps, delete secrets, get configmaps, get secrets, patch configmaps, patch secrets",
    )


def test_rights_that_are_granted_by_namespace_are_ok():
    refused = [(verb, kind, "") for verb in ("get", "patch", "delete") for kind in ("configmaps", "secrets")]
    assert rights_on_objects(refused=refused).level is Level.OK


def test_missing_rights_name_the_namespaces_and_the_role_binding():
    refused = everywhere(("patch", "secrets"), ("delete", "secrets"))
    finding = rights_on_objects(refused=refused, role=SimpleNamespace(body={}))
    assert finding.level is Level.FAIL
    assert "may not delete secrets, patch secrets in namespace ci: unused objects are kept" in finding.detail
    assert "-n ci create rolebinding" in finding.fix
    assert "--clusterrole=ttl-after-finished-usage-objects" in finding.fix
    assert "usage-rights" in rights_on_objects(refused=refused).fix


def test_rule_that_only_reports_needs_no_right_to_delete():
    refused = everywhere(("delete", "secrets"), ("delete", "configmaps"), ("get", "secrets"), ("get", "configmaps"))
    assert rights_on_objects(POLICY, refused=refused).level is Level.OK
    assert rights_on_objects(refused=refused).level is Level.FAIL


MADE = [one.body for one in usage_guards(NAMESPACE)]
POLICIES, BINDINGS = MADE[::2], MADE[1::2]


def check_guards(server, policy=None):
    return asyncio.run(check_usage_guards(server, policy or unused_policy(), PLACE))


def test_current_usage_guards_are_ok():
    (finding,) = check_guards(Server(POLICIES, BINDINGS))
    assert finding.level is Level.OK
    assert all(one["metadata"]["name"] in finding.detail for one in POLICIES)


@pytest.mark.parametrize("policy", [NO_POLICY, unused_policy(unused={"ttl": "1d", "audit": True})])
def test_policy_that_deletes_nothing_needs_no_usage_guard(policy):
    assert check_guards(Server(), policy) == []


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
    (finding,) = check_guards(server)
    assert (finding.level, finding.what) == (Level.WARN, f"usage guard {state}")
    assert "usage-guard" in finding.fix


def test_only_the_altered_usage_guard_is_reported():
    altered = [having(POLICIES[0], "spec.failurePolicy", "Ignore"), *POLICIES[1:]]
    by_level = {one.level: one.detail for one in check_guards(Server(altered, BINDINGS))}
    assert POLICIES[0]["metadata"]["name"] in by_level[Level.WARN]
    assert POLICIES[1]["metadata"]["name"] in by_level[Level.OK]


@pytest.mark.parametrize("server", [Server(served=False), Server(error=ForbiddenError("no right"))])
def test_usage_guards_that_cannot_be_read_are_reported(server):
    (finding,) = check_guards(server)
    assert finding.level is not Level.OK
