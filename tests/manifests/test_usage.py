"""The components of `usage`: its rights, its tick, its guard, and the warning about announced deletions."""

from collections import defaultdict
from typing import Any

import pytest
import yaml

from shared.adapters.config.carrier_files import read_carriers
from shared.adapters.config.settings import Settings
from shared.adapters.events.cloudevents import TICK
from shared.core.references.carrier import Carriers
from shared.core.values.objects import ANNOUNCED_LABEL
from shared.installation.rbac import OBJECT_VERBS, OBJECTS_ROLE
from shared.installation.usage_guard import usage_guards
from shared.standalone.triggers import read_triggers
from shared.usecases.usage.tick import TICK_SECONDS_MAX
from tests.manifests.composed import composed
from tests.manifests.test_kinds import environment, mounts
from tests.manifests.test_manifests import KNATIVE, NAMESPACE, of_kind, pod_specs, rights_of, rules_of
from tests.references import read_by

BUILT_IN_GROUPS = (
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
)
"""The API groups of Kubernetes itself; a new version may have new kinds in them."""

USAGE = ("policy", "usage", "usage-guard", "usage-warning", "usage-all-kinds")


def documents(path):
    return list(yaml.safe_load_all((KNATIVE / "components" / path).read_text()))


OBJECT_RIGHTS = [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": [*OBJECT_VERBS]}]


def carrier_rights(carriers: Carriers) -> list[dict[str, Any]]:
    """The RBAC rules for what is listed."""
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for one in carriers.carriers:
        if one.refers_to_none is None and one.group not in BUILT_IN_GROUPS:
            kinds[one.group].add(one.plural)
    every = {"apiGroups": [*BUILT_IN_GROUPS], "resources": ["*"], "verbs": ["list"]}
    named = [{"apiGroups": [group], "resources": sorted(kinds[group]), "verbs": ["list"]} for group in sorted(kinds)]
    return [every, *named]


def test_rights_of_the_component_equal_those_of_the_code():
    of_objects, of_carriers = documents("usage-rights/rbac.yaml")
    assert of_objects["rules"] == OBJECT_RIGHTS
    assert of_carriers["rules"] == carrier_rights(read_carriers())


def test_guard_of_the_component_equals_the_generated_one():
    assert documents("usage-guard/policy.yaml") == [one.body for one in usage_guards(NAMESPACE)]


def test_account_may_write_nothing_but_secrets_and_config_maps():
    objects = composed(*USAGE)
    writes = [one for one in rules_of(objects, "usage") if {*one["verbs"]} - {"get", "list"}]
    assert {(resource, verb) for one in writes for resource in one["resources"] for verb in one["verbs"]} - {
        ("configmaps", "update"),  # its shared state
        ("configmaps", "get"),
        ("events", "create"),
    } == {(kind, verb) for kind in ("configmaps", "secrets") for verb in OBJECT_VERBS} - {("configmaps", "get")}


@pytest.mark.parametrize(
    ("account", "components", "base"),
    [
        ("usage", USAGE, "base"),
        ("standalone", ("standalone", "usage-rights"), "namespace"),
    ],
)
def test_rights_by_namespace_leave_only_reads_in_the_cluster(account, components, base):
    granted = rights_of(composed(*components, base=base), account)
    objects = composed(*components, "usage-by-namespace", base=base)
    of_objects = {("", kind, verb) for kind in ("configmaps", "secrets") for verb in OBJECT_VERBS}
    state = {("", "configmaps", "get")}
    assert granted - rights_of(objects, account) == of_objects - state
    role = of_kind(objects, "ClusterRole")[OBJECTS_ROLE]
    assert role["rules"] == OBJECT_RIGHTS


def test_schedule_equals_the_default_interval():
    schedule = of_kind(composed(*USAGE), "PingSource")["usage"]["spec"]["schedule"]
    assert schedule.split()[1:] == ["*"] * 4
    assert schedule.split()[0].isdigit()
    assert Settings().usage_interval.total_seconds() == 3600


def test_tick_has_the_most_time_that_knative_allows_by_default():
    objects = composed(*USAGE)
    spec = of_kind(objects, "Service", "serving.knative.dev")["usage"]["spec"]["template"]["spec"]
    trigger = next(one for one in read_triggers(KNATIVE / "base") if one.name == "usage")
    assert trigger.delivery.timeout is not None
    seconds = trigger.delivery.timeout.total_seconds()
    assert spec["timeoutSeconds"] == spec["responseStartTimeoutSeconds"] == seconds == 600
    assert seconds - TICK_SECONDS_MAX >= 60  # for a second pass, and the objects that it confirms


def test_ticks_of_both_ping_sources_reach_their_own_function():
    triggers = read_triggers(KNATIVE / "base")
    extensions = of_kind(composed(*USAGE), "PingSource")["usage"]["spec"]["ceOverrides"]["extensions"]
    assert [one.name for one in triggers if one.matches({"type": TICK})] == ["sweep"]
    assert [one.name for one in triggers if one.matches({"type": TICK, **extensions})] == ["usage"]


@pytest.mark.parametrize(
    ("components", "base", "reader"),
    [
        (("kinds", "policy", "usage", "usage-references"), "base", "usage"),
        (("usage", "usage-references", "policy", "kinds", "eventpolicy"), "base", "usage"),
        (("standalone", "usage-rights", "policy", "usage-references"), "namespace", "standalone"),
    ],
)
def test_usage_alone_mounts_the_carrier_rules_of_the_operator(components, base, reader):
    objects = composed(*components, base=base)
    (references,) = [name for name in of_kind(objects, "ConfigMap") if name.startswith("references-")]
    for name, spec in pod_specs(objects):
        folder = environment(spec).get("TTL_REFERENCES_DIR")
        assert (folder is not None) is (name == reader), name
        assert mounts(spec).get(folder) == (references if folder else None), name


def test_example_of_a_carrier_rule_is_for_a_kind_that_is_not_shipped():
    carriers = read_carriers(KNATIVE / "components/usage-references/rules")
    assert carriers.get("example.com/v1", "Gizmo") is not None
    assert read_carriers().get("example.com/v1", "Gizmo") is None


@pytest.mark.parametrize("kind", ["configmap", "secret"])
def test_binding_of_the_warning_is_no_reference(kind):
    binding = next(
        one
        for one in documents("usage-warning/policies.yaml")
        if one["kind"] == "ValidatingAdmissionPolicyBinding" and one["metadata"]["name"].endswith(kind)
    )
    carrier = read_carriers().get(binding["apiVersion"], binding["kind"])
    assert read_by(carrier, binding) == ()
    binding["spec"]["paramRef"]["selector"]["matchLabels"] = {ANNOUNCED_LABEL: "true", "app": "web"}
    assert read_by(carrier, binding)
