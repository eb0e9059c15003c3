"""The checks of doctor, on recorded objects of Knative and on Pod statuses."""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.core.kinds.rule import Catalogue
from shared.doctor.activity import (
    Rhythm,
    check_dead_letters,
    check_lease,
    check_safeguards,
    check_sweep,
)
from shared.doctor.configured import check_settings, check_version, read_known
from shared.doctor.examine import Variant, is_customized, release_of, variant_of
from shared.doctor.findings import Finding, Level, as_json, fail, ok
from shared.doctor.rights import Account, accounts_of, report_rights
from shared.doctor.server import check_kubernetes, compare_clocks
from shared.doctor.wiring import (
    check_brokers,
    check_coverage,
    check_sinks,
    check_sources,
    check_triggers,
    check_unread,
)
from shared.doctor.workloads import check_workloads, describe_pod, describe_trouble
from shared.installation.inventory import PARTS, Inventory, Listed
from shared.installation.place import Place
from shared.installation.rbac import DELETERS, Right, needs_of, state_needs
from shared.messages import Timer
from shared.safeguards.state_schema import NAME as STATE
from shared.safeguards.state_schema import Trip, with_loop, with_trip
from tests.builders import (
    FIXTURES,
    JOB,
    NOW,
    POD,
    TRAINJOB,
    ago,
    having,
    kind_rule,
    later,
    shipped_kinds,
)

ROOT = Path(__file__).parents[3]
PLACE = Place("ttl-after-finished", manifests=str(ROOT / "knative"), overlay="mine")
KNATIVE = {
    "Broker": ["broker-ready"],
    "Trigger": ["trigger-ready"],
    "ApiServerSource": ["apiserversource-ready"],
    "PingSource": ["pingsource-ready"],
    "SinkBinding": ["sinkbinding-ready"],
    "Knative Service": ["service-expire", "service-timers"],
    "Pod": ["pod-timers"],
    "ConfigMap": ["settings"],
}


def fixture(name):
    return yaml.safe_load((FIXTURES / "knative" / f"{name}.yaml").read_text())


def inventory(problems=None, **parts):
    """A part of a sound installation, with other objects of the given kinds; spaces are written as underscores."""
    objects = {kind: [fixture(name) for name in names] for kind, names in KNATIVE.items()}
    objects |= {kind.replace("_", " "): items for kind, items in parts.items()}
    problems = problems or {}
    return Inventory({kind: Listed(tuple(objects.get(kind, ())), problems.get(kind, "")) for kind in PARTS})


def named(obj, name):
    return having(obj, "metadata.name", name)


def wrong(findings):
    return {one.what: one.detail for one in findings if one.level is not Level.OK}


# Conditions


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("broker-ready", ""),
        ("trigger-ready", ""),
        ("sinkbinding-ready", ""),
        ("apiserversource-ready", ""),
        ("pingsource-ready", ""),
        ("service-timers", ""),
        ("trigger-no-broker", 'BrokerReady: Broker "default" does not exist'),
        ("trigger-not-yet", "SubscriptionReady: Subscription has not yet been reconciled."),
        (
            "broker-no-config",
            'TriggerChannelReady: Error on setting up the ChannelTemplate: configmap "absent" not found',
        ),
        ("sinkbinding-subject-missing", 'SinkBindingAvailable: deployments.apps "nothing" not found'),
        (
            "sinkbinding-no-broker",
            (
                "SinkProvided: Addressable could not be extracted from destination: failed to get object "
                'ttl-after-finished/default: brokers.eventing.knative.dev "default" not found'
            ),
        ),
        ("apiserversource-no-broker", "SinkProvided: NotFound"),
        (
            "apiserversource-unavailable",
            "Deployed: The Deployment 'apiserversource-job-11a1b89a-e714-4fb6-8a65-8ebe4d3a1c44' is unavailable.",
        ),
    ],
)
def test_condition_that_is_not_ready_reports_the_message_of_knative(name, trouble):
    assert describe_trouble(fixture(name)) == trouble


def test_object_without_conditions_is_not_ready():
    assert "no conditions yet" in describe_trouble({"metadata": {"name": "new"}})


@pytest.mark.parametrize("status", [None, {"conditions": "odd"}, {"conditions": [None, {"type": "Ready"}]}])
def test_malformed_conditions_report_a_problem_and_raise_nothing(status):
    assert describe_trouble({"status": status})


# Broker and Triggers


def test_ready_broker_is_ok():
    (finding,) = check_brokers(inventory(), PLACE)
    assert (finding.level, finding.what, finding.fix) == (Level.OK, "Broker default", "")


def test_missing_broker_of_a_trigger_fails():
    (finding,) = check_brokers(inventory(Broker=[]), PLACE)
    assert wrong([finding]) == {"Broker default": "does not exist: no event is delivered"}
    assert finding.fix == "kubectl apply -k mine"


def test_forbidden_list_is_no_proof_of_absence():
    found = inventory(Broker=[], problems={"Broker": "brokers is forbidden"})
    assert list(check_brokers(found, PLACE)) == []
    assert wrong(check_unread(found, PLACE)) == {"Brokers": "cannot be checked: brokers is forbidden"}


def test_missing_trigger_of_a_function_fails():
    assert set(wrong(check_triggers(inventory(), PLACE))) == {
        f"Trigger {one}" for one in ("schedule", "timers", "enforce", "archive", "sweep", "usage")
    }


def test_deleted_subscriber_fails_though_knative_calls_it_resolved():
    found = inventory(Knative_Service=[])
    trouble = wrong(check_triggers(found, PLACE))["Trigger expire"]
    assert trouble.startswith("its subscriber Knative Service expire does not exist")


def test_missing_subscriber_fails():
    found = inventory(Trigger=[fixture("trigger-subscriber-absent")])
    trouble = wrong(check_triggers(found, PLACE))["Trigger stray"]
    assert trouble == "its subscriber Knative Service absent does not exist"


def test_missing_dead_letter_sink_fails():
    ref = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "graveyard"}
    trigger = having(fixture("trigger-ready"), "spec.delivery.deadLetterSink", {"ref": ref})
    trouble = wrong(check_triggers(inventory(Trigger=[trigger]), PLACE))["Trigger expire"]
    assert trouble == "its dead letter sink Knative Service graveyard does not exist"


def test_subscriber_in_another_namespace_is_not_checked():
    trigger = having(fixture("trigger-ready"), "spec.subscriber.ref.namespace", "elsewhere")
    assert "Trigger expire" not in wrong(check_triggers(inventory(Trigger=[trigger], Knative_Service=[]), PLACE))


@pytest.mark.parametrize(
    ("filters", "got"),
    [
        ([{"exact": {"type": Timer.type}}], "timers of expire and enforce and archive and warn"),
        ([], "timers of expire and enforce and archive and warn"),
        ([{"exact": {"type": Timer.type, "purpose": "enforce"}}], "timers of enforce"),
        ([{"exact": {"type": "another"}}], "no timer"),
    ],
)
def test_trigger_that_does_not_get_exactly_the_timers_of_its_purpose_fails(filters, got):
    trigger = having(fixture("trigger-ready"), "spec.filters", filters)
    trouble = wrong(check_triggers(inventory(Trigger=[trigger]), PLACE))["Trigger expire"]
    assert trouble == f"expected a filter for {Timer.type} with purpose: expire or warn, got one that matches {got}"


def test_filter_in_a_dialect_that_only_knative_evaluates_is_not_checked():
    trigger = having(fixture("trigger-ready"), "spec.filters", [{"cesql": "type = 'x'"}])
    assert "Trigger expire" not in wrong(check_triggers(inventory(Trigger=[trigger]), PLACE))


# Sources


def test_ready_source_reports_its_sink():
    findings = {one.what: one for one in check_sources(inventory(), PLACE)}
    assert findings["PingSource sweep"].detail.startswith("at */10 * * * *, to http://broker-ingress.")
    assert findings["SinkBinding timers"].detail.startswith("to http://broker-ingress.")
    assert wrong(findings.values()) == {}


def test_missing_ping_source_fails():
    assert "PingSource" in wrong(check_sources(inventory(PingSource=[]), PLACE))


SINK = "http://broker-ingress.knative-eventing.svc.cluster.local/ttl-after-finished/default"
AUDIENCE = "eventing.knative.dev/broker/ttl-after-finished/default"


def broker(**address):
    return having(fixture("broker-ready"), "status.address", address)


@pytest.mark.parametrize(
    ("parts", "trouble"),
    [
        ({}, None),
        ({"Broker": [broker(url=SINK, audience=AUDIENCE)]}, None),
        ({"Broker": [broker(url="http://kafka")]}, f"expected the Broker's address, http://kafka, got {SINK}"),
        ({"ConfigMap": []}, f"expected the Broker's address, {SINK}, got none"),
        ({"Broker": [broker(url=SINK, audience="a")]}, "expected a token for a at /oidc/token, got none"),
        ({"Broker": []}, None),  # which is a finding of its own
    ],
)
def test_function_that_publishes_needs_the_address_of_the_broker_and_a_token_for_it(parts, trouble):
    expected = {"K_SINK of timers": trouble} if trouble else {}
    assert wrong(check_sinks(inventory(**parts), PLACE)) == expected


def test_own_address_of_a_function_takes_precedence_over_the_settings():
    own = having(
        fixture("service-timers"), "spec.template.spec.containers", [{"env": [{"name": "K_SINK", "value": "b"}]}]
    )
    (finding,) = check_sinks(inventory(Knative_Service=[own]), PLACE)
    assert finding.detail.endswith(", got b")
    assert finding.fix.endswith(f"K_SINK={SINK}")


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        (
            "apiserversource-forbidden",
            (
                f"kubectl apply -f {ROOT}/knative/components/kind-job/rbac.yaml "
                f"-f {ROOT}/knative/components/source-apiserver/job/rbac.yaml"
            ),
        ),
        (
            "apiserversource-no-broker",
            (
                "kubectl -n ttl-after-finished annotate apiserversource pod --overwrite "
                "ttlafterfinished.dev/looked-at=$(date +%s)"
            ),
        ),
        (
            "apiserversource-no-crd",
            "kubectl -n ttl-after-finished get pods -l eventing.knative.dev/sourceName=trainjob -o wide",
        ),
        (
            "apiserversource-unavailable",
            "kubectl -n ttl-after-finished get pods -l eventing.knative.dev/sourceName=job -o wide",
        ),
    ],
)
def test_source_that_is_not_ready_gets_the_command_for_its_cause(name, fix):
    findings = list(check_sources(inventory(ApiServerSource=[fixture(name)]), PLACE))
    (finding,) = [one for one in findings if one.level is Level.FAIL]
    assert finding.fix == fix


def test_source_without_a_broker_gets_the_command_that_makes_the_broker():
    found = inventory(Broker=[], ApiServerSource=[fixture("apiserversource-no-broker")])
    fixes = {one.what: one.fix for one in check_sources(found, PLACE)}
    assert fixes["ApiServerSource pod"] == "kubectl apply -k mine"


def test_long_message_is_cut_off():
    (finding,) = [
        one
        for one in check_sources(inventory(ApiServerSource=[fixture("apiserversource-forbidden")]), PLACE)
        if one.level is Level.FAIL
    ]
    assert 'cannot get, list, watch resource "jobs"' in finding.detail
    assert len(finding.detail) < 320


def test_kind_without_a_source_warns_that_deletions_are_late():
    assert wrong(check_coverage(inventory(), (JOB, POD), PLACE)).keys() == {"source of pods"}


def test_container_source_covers_all_kinds():
    source = {"metadata": {"name": "watch"}}
    assert list(check_coverage(inventory(ApiServerSource=[], ContainerSource=[source]), (JOB, POD), PLACE)) == []


# Workloads


def test_function_scaled_to_zero_is_ok():
    findings = {one.what: one for one in check_workloads(inventory(), PLACE)}
    assert findings["Knative Service expire"].detail == "ready, scaled to 0"
    assert findings["Knative Service timers"].detail == "ready Pods: 1"


def pod(*, waiting=None, terminated=None, restarts=0, ready=False, **parts):
    last = {"terminated": terminated} if terminated else {}
    state = {"waiting": waiting} if waiting else {"running": {}}
    status = {"name": "user-container", "ready": ready, "restartCount": restarts, "state": state, "lastState": last}
    conditions = [{"type": "Ready", "status": str(ready)}, *parts.pop("conditions", [])]
    labels = {"serving.knative.dev/service": "expire"}
    return {
        "metadata": {"name": "expire-1", "labels": labels, **parts},
        "status": {"conditions": conditions, "containerStatuses": [status]},
    }


BACK_OFF = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}
ENDED = {"exitCode": 1, "reason": "Error", "message": "started\nK_SINK: expected the Broker's URL, got none\n"}


@pytest.mark.parametrize(
    ("given", "trouble"),
    [
        (pod(ready=True, restarts=3, terminated=ENDED), ""),
        (pod(waiting={"reason": "ContainerCreating"}), ""),
        (pod(), ""),
        (
            pod(waiting=BACK_OFF, terminated=ENDED, restarts=5),
            (
                "user-container: CrashLoopBackOff: back-off 5m0s restarting failed container, exit code 1: Error: "
                "K_SINK: expected the Broker's URL, got none, restarts: 5"
            ),
        ),
        (
            pod(waiting={"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}),
            'user-container: ImagePullBackOff: Back-off pulling image "x"',
        ),
        (fixture("pod-restarting"), "user-container: not ready, restarts: 3"),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]),
            "0/3 nodes are available",
        ),
        (fixture("pod-timers"), ""),
    ],
)
def test_pod_that_is_not_ready_reports_its_cause(given, trouble):
    assert describe_pod(given) == trouble


def test_ready_service_with_a_failing_revision_warns():
    found = inventory(Pod=[pod(waiting=BACK_OFF, restarts=5)])
    (finding,) = [one for one in check_workloads(found, PLACE) if one.level is not Level.OK]
    assert (finding.level, finding.what) == (Level.WARN, "Knative Service expire")
    assert "Pod expire-1: user-container: CrashLoopBackOff" in finding.detail
    assert finding.fix == "kubectl -n ttl-after-finished logs expire-1 --all-containers --tail=5 --previous"


@pytest.mark.parametrize(
    ("revision", "is_reported"), [("expire-00001", True), ("expire-00002", False), ("expire-00003", True)]
)
def test_pod_of_a_revision_that_was_replaced_is_ignored(revision, is_reported):
    """The first revision gets the requests, the third one is the newest; the second one failed between them."""
    service = having(fixture("service-expire"), "status.latestCreatedRevisionName", "expire-00003")
    service = having(service, "status.traffic", [{"revisionName": "expire-00001", "percent": 100}])
    labels = {"serving.knative.dev/service": "expire", "serving.knative.dev/revision": revision}
    bad = having(pod(waiting=BACK_OFF, restarts=5), "metadata.labels", labels)
    trouble = wrong(check_workloads(inventory(Knative_Service=[service], Pod=[bad]), PLACE))
    assert list(trouble) == ["Knative Service expire"] * is_reported


@pytest.mark.parametrize(
    ("traffic", "pinned"),
    [
        ([], ""),
        ([{"latestRevision": True, "percent": 100}], ""),
        ([{"latestRevision": True, "percent": 100}, {"revisionName": "expire-00001", "tag": "former"}], ""),
        ([{"latestRevision": False, "revisionName": "expire-00001", "percent": 100}], "expire-00001"),
        ([{"latestRevision": True, "percent": 90}, {"revisionName": "expire-00001", "percent": 10}], "expire-00001"),
    ],
)
def test_service_that_is_pinned_to_a_revision_warns(traffic, pinned):
    found = inventory(Knative_Service=[having(fixture("service-expire"), "spec.traffic", traffic)])
    findings = [one for one in check_workloads(found, PLACE) if one.level is not Level.OK]
    assert [(one.level, f"revision {pinned}," in one.detail) for one in findings] == [(Level.WARN, True)] * bool(pinned)
    for one in findings:
        assert one.fix.endswith(
            """patch services.serving.knative.dev expire --type=merge '--patch={"spec":{"traffic":null}}'"""
        )


def test_service_that_is_not_ready_fails():
    down = having(fixture("service-expire"), "status.conditions", [])
    found = inventory(Knative_Service=[down], Pod=[pod(waiting=BACK_OFF, restarts=5)])
    assert [one.level for one in check_workloads(found, PLACE)] == [Level.FAIL]


def test_terminating_pod_is_ignored():
    leaving = pod(waiting=BACK_OFF, deletionTimestamp="2026-01-01T00:00:00Z")
    assert wrong(check_workloads(inventory(Pod=[leaving]), PLACE)) == {}


@pytest.mark.parametrize(
    ("spec", "status", "trouble"),
    [
        ({}, {"readyReplicas": 1}, None),
        ({"replicas": 1}, {}, "0 of 1 Pods ready"),
        ({"replicas": 3}, {"readyReplicas": 2}, "2 of 3 Pods ready"),
        ({"replicas": 0}, {}, "scaled to 0"),
    ],
)
def test_deployment_with_too_few_ready_pods_fails(spec, status, trouble):
    labels = {"app.kubernetes.io/name": "ttl-after-finished"}
    deployment = {"metadata": {"name": "standalone", "labels": labels}, "spec": spec, "status": status}
    found = inventory(Knative_Service=[], Deployment=[deployment], Pod=[])
    assert wrong(check_workloads(found, PLACE)).get("Deployment standalone") == trouble


@pytest.mark.parametrize(
    ("spec", "status", "level", "detail"),
    [
        ({"replicas": 1}, {"readyReplicas": 1}, Level.OK, "ready, scaled to 0"),  # no Pod is listed
        ({"replicas": 1}, {}, Level.WARN, "0 of 1 Pods ready"),
        ({"replicas": 0}, {}, Level.WARN, "scaled to 0"),
    ],
)
def test_page_that_is_down_is_a_warning_since_no_deletion_depends_on_it(spec, status, level, detail):
    labels = {"app.kubernetes.io/name": "ttl-after-finished", "app.kubernetes.io/component": "ui"}
    page = {"metadata": {"name": "ui", "labels": labels}, "spec": spec, "status": status}
    (finding,) = check_workloads(inventory(Knative_Service=[], Deployment=[page], Pod=[]), PLACE)
    assert (finding.what, finding.level, finding.detail) == ("Deployment ui", level, detail)


def test_deployment_scaled_to_zero_gets_the_scale_command():
    labels = {"app.kubernetes.io/name": "ttl-after-finished"}
    deployment = {"metadata": {"name": "standalone", "labels": labels}, "spec": {"replicas": 0}}
    (finding,) = check_workloads(inventory(Knative_Service=[], Deployment=[deployment], Pod=[]), PLACE)
    assert finding.fix == "kubectl -n ttl-after-finished scale --replicas=1 deployment standalone"


def test_deployment_finds_its_pods_by_its_selector():
    """Knative gives the Deployment of a ContainerSource our labels, and a name that Knative generates."""
    labels = {"app.kubernetes.io/name": "ttl-after-finished", "app.kubernetes.io/component": "source"}
    deployment = {
        "metadata": {"name": "source-deployment", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}},
    }
    crashing = having(pod(waiting=BACK_OFF, terminated=ENDED, restarts=5), "metadata.labels", labels)
    trouble = wrong(check_workloads(inventory(Deployment=[deployment], Pod=[crashing]), PLACE))
    assert ENDED["reason"] in trouble["Deployment source-deployment"]


def test_deployment_of_a_revision_is_ignored():
    """The Deployments of revisions inherit our labels, and those of old revisions stay, scaled to 0."""
    labels = {"app.kubernetes.io/name": "ttl-after-finished", "serving.knative.dev/service": "expire"}
    old = {"metadata": {"name": "expire-00001-deployment", "labels": labels}, "spec": {"replicas": 0}}
    assert wrong(check_workloads(inventory(Deployment=[old]), PLACE)) == {}


def test_deployment_of_knative_is_ignored():
    adapter = {"metadata": {"name": "apiserversource-job-1", "labels": {"eventing.knative.dev/source": "x"}}}
    assert "Deployment apiserversource-job-1" not in {
        one.what for one in check_workloads(inventory(Deployment=[adapter]), PLACE)
    }


# Variant, settings, version


def test_variant_follows_from_the_inventory():
    standalone = {"metadata": {"name": "standalone", "labels": {"app.kubernetes.io/name": "ttl-after-finished"}}}
    nothing: dict[str, list[Any]] = {kind.replace(" ", "_"): [] for kind in KNATIVE}
    assert variant_of(inventory()) == Variant(knative=True, standalone=False)
    assert variant_of(inventory(Deployment=[standalone])) == Variant(knative=True, standalone=True)
    assert variant_of(inventory(**nothing, Deployment=[standalone])) == Variant(knative=False, standalone=True)
    assert variant_of(inventory(**nothing)) == Variant(knative=False, standalone=False)


def test_customized_installation_is_not_overwritten_by_a_shipped_overlay():
    assert not is_customized(inventory())
    assert is_customized(inventory(StatefulSet=[{"metadata": {"name": "timers"}}]))
    assert is_customized(inventory(ContainerSource=[{"metadata": {"name": "source"}}]))
    assert is_customized(
        inventory(Trigger=[{"metadata": {"name": "expire"}, "spec": {"subscriber": {"audience": "us"}}}])
    )
    assert is_customized(with_rules({"render.yaml": RENDER}))
    container = {"env": [{"name": "TTL_POLICY", "value": "/etc/ttl-after-finished/policy.yaml"}]}
    deciding = having(fixture("service-expire"), "spec.template.spec.containers", [container])
    assert is_customized(inventory(Knative_Service=[deciding]))
    assert replace(PLACE, overlay="", is_customized=True).apply() == (
        "kubectl apply -k YOUR_OVERLAY    # the overlay that you installed (--overlay)"
    )
    assert replace(PLACE, is_customized=True).apply() == "kubectl apply -k mine"
    assert "knative/overlays/standalone " in replace(PLACE, overlay="", shipped="standalone").apply()


def configured(**data):
    config = fixture("settings")
    config["data"] |= data
    return check_settings(inventory(ConfigMap=[config]), shipped_kinds(), PLACE)


def test_valid_settings_are_ok():
    result = configured()
    assert wrong(result.findings) == {}
    assert [rule.plural for rule in result.rules] == ["jobs", "pods"]
    assert result.findings[0].detail == "jobs, pods; a sweep every 10m"


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        ({"TTL_KINDS": "jobs,gizmos"}, "TTL_KINDS: unknown kind 'gizmos': expected a kind"),
        ({"TTL_SWEEP_INTERVAL": "often"}, "TTL_SWEEP_INTERVAL: "),
        ({"TTL_DRYRUN": "true"}, "TTL_DRYRUN: unknown setting"),
    ],
)
def test_invalid_setting_fails_with_the_error_of_the_function(data, trouble):
    result = configured(**data)
    ((_, detail),) = wrong(result.findings).items()
    assert detail.startswith(trouble)
    assert result.settings is None


def test_dry_run_warns():
    result = configured(TTL_DRY_RUN="true")
    assert [one.what for one in result.findings if one.level is Level.WARN] == ["dry run"]
    assert result.findings[-1].fix == "kubectl apply -k mine    # with TTL_DRY_RUN=false"


def test_events_in_another_namespace_warn():
    assert "TTL_NAMESPACE" in wrong(configured(TTL_NAMESPACE="elsewhere").findings)["settings"]


def test_missing_settings_config_map_fails():
    findings = check_settings(inventory(ConfigMap=[]), shipped_kinds(), PLACE).findings
    ((what, detail),) = wrong(findings).items()
    assert what.startswith("settings settings-")
    assert detail == "the ConfigMap does not exist, and expire, timers cannot start without it"


def test_variable_in_a_workloads_own_env_warns():
    service = copy.deepcopy(fixture("service-expire"))
    (container,) = service["spec"]["template"]["spec"]["containers"]
    container["env"] += [{"name": "TTL_DRY_RUN", "value": "true"}, {"name": "TTL_CALLERS", "value": "caller"}]
    found = inventory(**{"Knative Service": [service], "ConfigMap": [fixture("settings")]})
    details = wrong(check_settings(found, shipped_kinds(), PLACE).findings)
    assert details["settings of expire"].startswith("TTL_DRY_RUN in its own env")


def test_kinds_in_the_env_of_timers_do_not_warn():
    services = [copy.deepcopy(fixture(f"service-{name}")) for name in ("expire", "timers")]
    for service in services:
        (container,) = service["spec"]["template"]["spec"]["containers"]
        container["env"] += [{"name": "TTL_KINDS", "value": "all"}, {"name": "TTL_KINDS_DIR", "value": "/etc/kinds"}]
    found = inventory(Knative_Service=services, ConfigMap=[fixture("settings")])
    details = wrong(check_settings(found, shipped_kinds(), PLACE).findings)
    assert details.keys() == {"settings of expire"}
    assert details["settings of expire"].startswith("TTL_KINDS in its own env")


def test_workloads_with_different_settings_warn():
    text = json.dumps(fixture("service-expire")).replace(fixture("settings")["metadata"]["name"], "settings-old")
    old = json.loads(text)
    found = inventory(
        Knative_Service=[old, fixture("service-timers")],
        ConfigMap=[named(fixture("settings"), "settings-old"), fixture("settings")],
    )
    findings = check_settings(found, shipped_kinds(), PLACE).findings
    assert "settings-old: expire" in wrong(findings)["settings"]


def test_versions_that_differ_warn():
    assert wrong(check_version(inventory(), "0.1.0", PLACE)) == {}
    assert "0.1.0 is installed, and this program is 0.2.0" in str(list(check_version(inventory(), "0.2.0", PLACE)))
    newer = copy.deepcopy(fixture("service-expire"))
    newer["metadata"]["labels"]["app.kubernetes.io/version"] = "0.2.0"
    found = inventory(Knative_Service=[newer, fixture("service-timers")])
    assert "several versions run: 0.1.0, 0.2.0" in str(list(check_version(found, "0.1.0", PLACE)))


# Rights


def test_needed_rights_follow_from_the_kind():
    assert needs_of("schedule", (JOB,)) == frozenset()
    assert needs_of("sweep", (JOB,)) == {
        Right("batch", "jobs", "get"),
        Right("batch", "jobs", "list"),
        Right("batch", "jobs", "delete"),
        Right("", "pods", "get"),  # its children
        Right("", "pods", "list"),
        Right("", "events", "create"),
        Right("events.k8s.io", "events", "create"),
        Right("", "namespaces", "get"),
        Right("", "namespaces", "list"),
        Right("", "resourcequotas", "list"),
        Right("apiregistration.k8s.io", "apiservices", "list"),
    }
    # A TrainJob may inherit its TTL from its runtime.
    runtimes = {Right("trainer.kubeflow.org", one, "get") for one in ("trainingruntimes", "clustertrainingruntimes")}
    assert all(runtimes <= needs_of(role, (TRAINJOB,)) for role in DELETERS)
    assert not runtimes & (needs_of("source", (TRAINJOB,)) | needs_of("watch", (TRAINJOB,)))
    # A Pod stays while its Job works.
    assert Right("batch", "jobs", "get") in needs_of("expire", (POD,))


def test_source_needs_only_the_rights_on_its_own_kinds():
    accounts = {one.name: one for one in accounts_of(inventory(), (JOB, POD), Catalogue((JOB, POD)), namespace="ns")}
    assert set(accounts) == {"expire", "source"}
    assert accounts["source"].needs == {Right("batch", "jobs", verb) for verb in ("get", "list", "watch")}


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        (JOB, f"kubectl apply -f {ROOT}/knative/components/kind-job/rbac.yaml"),
        (
            kind_rule("workflows.argoproj.io"),
            "kubectl ttl kinds manifests workflows.argoproj.io | kubectl apply -f -",
        ),
    ],
    ids=["job", "workflow"],
)
def test_missing_right_on_children_gets_the_manifests_of_their_owner(rule, fix):
    account = Account("archive", "archive", needs_of("archive", (rule,)))
    allowed = {right: right.resource not in ("pods", "pods/log") for right in account.needs}
    wrong = {one.what: one.fix for one in report_rights(account, allowed, PLACE) if one.level is Level.FAIL}
    assert wrong == dict.fromkeys(("rights of archive on pods", "rights of archive on pods/log"), fix)


def test_installation_of_helm_is_known_by_its_release():
    found = inventory()
    assert release_of(found) == ""
    service = having(fixture("service-expire"), "metadata.annotations", {"meta.helm.sh/release-name": "cleaner"})
    assert release_of(inventory(Knative_Service=[service])) == "cleaner"


def test_page_without_the_right_on_a_kind_warns():
    labels = {"app.kubernetes.io/name": "ttl-after-finished", "app.kubernetes.io/component": "ui"}
    page = {"metadata": {"name": "ui", "labels": labels}}
    page |= {"spec": {"template": {"spec": {"serviceAccountName": "reader"}}}}
    found = inventory(Deployment=[page])
    accounts = {one.role: one for one in accounts_of(found, (JOB, TRAINJOB), Catalogue((JOB,)), namespace="ns")}
    account = accounts["ui"]
    assert account.name == "reader"
    allowed = {right: right.resource == "jobs" for right in account.needs}
    for is_named in (True, False):
        (finding,) = [
            one for one in report_rights(account, allowed, PLACE, is_named=is_named) if one.level is not Level.OK
        ]
        detail = "may not list: the page does not show these objects"
        assert (finding.level, finding.what, finding.detail) == (Level.WARN, "rights of reader on trainjobs", detail)
        assert finding.fix == f"kubectl apply -f {ROOT}/knative/components/kind-trainjob/rbac.yaml"


def test_missing_right_gets_the_component_of_its_kind():
    account = Account("expire", "expire", needs_of("expire", (JOB,)))
    allowed = {right: right.verb != "delete" for right in account.needs}
    (finding,) = [one for one in report_rights(account, allowed, PLACE) if one.level is Level.FAIL]
    assert (finding.what, finding.detail) == ("rights of expire on jobs", "may not delete")
    assert finding.fix == f"kubectl apply -f {ROOT}/knative/components/kind-job/rbac.yaml"


def test_missing_right_on_the_state_gets_the_overlay():
    (account,) = [
        one for one in accounts_of(inventory(), (JOB,), Catalogue((JOB,)), namespace="ns") if one.name == "expire"
    ]
    assert state_needs("ns") <= account.needs
    allowed = {right: right not in state_needs("ns") for right in account.needs}
    (finding,) = [one for one in report_rights(account, allowed, PLACE) if one.level is Level.FAIL]
    assert (finding.what, finding.fix) == ("rights of expire on configmaps", "kubectl apply -k mine")


@pytest.mark.parametrize(
    ("name", "account", "fix"),
    [
        ("workflows.argoproj.io", "expire", "kinds manifests workflows.argoproj.io"),
        ("jobs.batch.volcano.sh", "sweep", "kinds manifests jobs.batch.volcano.sh"),  # the Jobs of another group
        ("workflows.argoproj.io", "watch", "kinds manifests workflows.argoproj.io"),
        (
            "workflows.argoproj.io",
            "source",
            "kinds manifests workflows.argoproj.io --source=apiserver --namespace=ttl-after-finished",
        ),
    ],
)
def test_missing_right_on_a_kind_without_component_gets_its_manifests(name, account, fix):
    role = "source" if account == "watch" else account
    needs = needs_of(account, (kind_rule(name),)) - needs_of(account, ())
    findings = report_rights(Account("it", role, needs), dict.fromkeys(needs, False), PLACE)
    assert {one.fix for one in findings} == {f"kubectl ttl {fix} | kubectl apply -f -"}  # also for its children


def test_mounted_kind_gets_its_manifests_from_the_users_rules():
    place = replace(PLACE, mounted_kinds=frozenset({"renders.example.com"}), options=("--context=west",))
    assert place.join("renders.example.com") == (
        "kubectl ttl kinds manifests renders.example.com --kinds-dir=YOUR_RULES | kubectl --context=west apply -f -"
    )


OF_TRAINJOBS = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")


@pytest.mark.parametrize("resource", OF_TRAINJOBS)
def test_missing_right_on_an_inherited_ttl_gets_the_component_of_the_kind_that_inherits(resource):
    account = Account("expire", "expire", needs_of("expire", (TRAINJOB,)))
    allowed = {right: right.resource != resource for right in account.needs}
    (finding,) = [one for one in report_rights(account, allowed, PLACE) if one.level is Level.FAIL]
    assert finding.fix == f"kubectl apply -f {ROOT}/knative/components/kind-trainjob/rbac.yaml"


def test_kind_without_rights_warns_if_all_kinds_are_enabled():
    needs = needs_of("expire", (JOB, TRAINJOB))
    account = Account("expire", "expire", needs)
    allowed = {right: right.resource in {"events", "namespaces", "jobs"} and right.verb != "list" for right in needs}
    of_no_kind = {"apiservices": Level.FAIL, "resourcequotas": Level.FAIL}
    without = (*OF_TRAINJOBS, "jobsets", "pods")
    levels = {one.what.split()[-1]: one.level for one in report_rights(account, allowed, PLACE, is_named=False)}
    assert levels == of_no_kind | {
        "events": Level.OK,
        "events.events.k8s.io": Level.OK,
        "namespaces": Level.OK,
        "jobs": Level.FAIL,
        **dict.fromkeys(without, Level.WARN),
    }
    named = {one.what.split()[-1]: one.level for one in report_rights(account, allowed, PLACE)}
    assert named == levels | dict.fromkeys(without, Level.FAIL)
    nothing = {one.level for one in report_rights(account, dict.fromkeys(needs, False), PLACE, is_named=False)}
    assert Level.FAIL in nothing  # namespaces and Events are of no kind


def test_source_of_a_kind_without_component_gets_its_manifests():
    source = having(
        fixture("apiserversource-forbidden"),
        "spec.resources",
        [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
    )
    (finding,) = [one for one in check_sources(inventory(ApiServerSource=[source]), PLACE) if one.level is Level.FAIL]
    assert finding.fix == (
        "kubectl ttl kinds manifests job.batch.volcano.sh --source=apiserver --namespace=ttl-after-finished "
        "| kubectl apply -f -"
    )


ADD_COMPONENT = "kubectl apply -k mine    # after you add components"
WITH_SOURCE = "--source=apiserver --namespace=ttl-after-finished | kubectl apply -f -"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("pod", f"{ADD_COMPONENT}/source-apiserver/pod to your overlay"),
        ("workflows.argoproj.io", f"kubectl ttl kinds manifests workflows.argoproj.io {WITH_SOURCE}"),
        (
            "podchaos.chaos-mesh.org",
            f"{ADD_COMPONENT}/source-watch to your overlay",
        ),
    ],
)
def test_kind_without_a_source_gets_the_command_for_its_source(name, fix):
    assert [one.fix for one in check_coverage(inventory(), (kind_rule(name),), PLACE)] == [fix]


def test_all_kinds_enables_each_kind_that_can_finish():
    result = configured(TTL_KINDS="all")
    assert result.findings[0].detail == "all kinds that can finish; a sweep every 10m"
    assert len(result.rules) > 50


# Mounted rules


RENDER = """
apiVersions: [example.com/v1]
kind: Render
plural: renders
finished: {field: status.phase, values: {Done: succeeded}}
finishedAt: [status.end]
"""


def with_rules(data, name="kinds-abc"):
    """The installation of `inventory`, with a ConfigMap of rules mounted into one of its workloads."""
    service = copy.deepcopy(fixture("service-expire"))
    spec = service["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "kinds", "configMap": {"name": "kinds-abc"}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "kinds", "mountPath": "/etc/kinds"}]
    spec["containers"][0]["env"].append({"name": "TTL_KINDS_DIR", "value": "/etc/kinds"})
    config = {"metadata": {"name": name}, "data": data}
    return inventory(Knative_Service=[service], ConfigMap=[fixture("settings"), config])


def test_mounted_rules_are_known():
    found = with_rules(
        {"render.yaml": RENDER, "job.yaml": RENDER.replace("example.com", "batch").replace("Render", "Job")}
    )
    known = read_known(found, PLACE)
    (finding,) = known.findings
    assert (finding.what, finding.level) == ("rules kinds-abc", Level.OK)
    assert finding.detail == "renders.batch (replaces the shipped rule), renders.example.com"
    assert known.mounted == {"renders.batch", "renders.example.com"}
    assert known.catalogue.get("example.com/v1", "Render")
    assert wrong(check_settings(found, known.catalogue, PLACE).findings) == {}


def test_invalid_mounted_rule_fails_with_its_line():
    known = read_known(with_rules({"render.yaml": RENDER.replace("finishedAt", "finishAt")}), PLACE)
    (finding,) = known.findings
    assert finding.level is Level.FAIL
    assert "render.yaml:6: finishAt: " in finding.detail
    assert finding.fix.startswith("kubectl apply -k mine    # ")
    assert known.catalogue.get("batch/v1", "Job")


def test_missing_rules_config_map_fails():
    known = read_known(with_rules({}, name="another"), PLACE)
    assert wrong(known.findings).keys() == {"rules kinds-abc"}


def test_installation_without_mounted_rules_reports_nothing():
    known = read_known(inventory(), PLACE)
    assert (known.findings, known.mounted) == ((), frozenset())


# Clock, timers, Lease


@pytest.mark.parametrize(
    ("ahead", "level"),
    [
        (0, "ok"),
        (0.9, "ok"),
        (-0.9, "ok"),
        (1.9, "ok"),
        (-2.9, "ok"),
        (3.5, "warn"),
        (-4, "warn"),
        (59, "warn"),
        (-3600, "warn"),
        (3600, "FAIL"),
    ],
)
def test_clock_level_follows_from_the_difference(ahead, level):
    stated = (NOW + timedelta(seconds=ahead)).replace(microsecond=0)
    finding = compare_clocks(NOW - timedelta(milliseconds=5), stated, NOW)
    assert finding.level.value == level
    if level == "warn":
        assert ("ahead of" if ahead > 0 else "behind") in finding.detail


@pytest.mark.parametrize(
    ("body", "level", "detail"),
    [
        ({"major": "1", "minor": "30", "gitVersion": "v1.30.14"}, "FAIL", "v1.30.14 at here: it may refuse the guards"),
        ({"major": "1", "minor": "31", "gitVersion": "v1.31.2"}, "warn", "1.31 is older than 1.34, the oldest tested"),
        ({"major": "1", "minor": "33+", "gitVersion": "v1.33.5-gke.7"}, "warn", "1.33 is older than 1.34"),
        ({"major": "1", "minor": "34", "gitVersion": "v1.34.4"}, "ok", "v1.34.4 at here"),
        ({"major": "1", "minor": "37+", "gitVersion": "v1.37.2-eks-1"}, "ok", "v1.37.2-eks-1 at here"),
        ({"major": "1", "minor": "38", "gitVersion": "v1.38.0"}, "ok", "newer than Kubernetes 1.37, the newest tested"),
        ({"major": "2", "minor": "0", "gitVersion": "v2.0.0"}, "ok", "newer than Kubernetes 1.37"),
        (
            {"major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "33", "gitVersion": "v1.36.3"},
            "warn",
            "v1.36.3 at here: Kubernetes 1.33 is older than 1.34",
        ),
        ({"major": "1", "minor": "", "gitVersion": "v1.36.3"}, "ok", "v1.36.3 at here"),
        ({"major": 1, "minor": [34]}, "ok", "at here"),
    ],
)
def test_version_of_the_api_server_is_compared_with_those_that_are_tested(body, level, detail):
    finding = check_kubernetes(body, "here")
    assert finding.level.value == level
    assert detail in finding.detail
    assert bool(finding.fix) == (level != "ok")


def test_slow_answer_is_no_clock_difference():
    assert compare_clocks(NOW - timedelta(seconds=20), NOW - timedelta(seconds=15), NOW).level is Level.OK


@pytest.mark.parametrize(
    ("spec", "level"),
    [
        ({"holderIdentity": "a", "renewTime": "2026-01-02T03:04:00.000000Z"}, "ok"),
        ({"holderIdentity": "a", "renewTime": "2026-01-02T03:03:00.000000Z"}, "FAIL"),
        ({"holderIdentity": "", "renewTime": "2026-01-02T03:04:00.000000Z"}, "FAIL"),
        ({"holderIdentity": "a"}, "warn"),
    ],
)
def test_lease_level_follows_from_holder_and_age(spec, level):
    lease = {"metadata": {"name": "ttl-after-finished"}, "spec": spec}
    now = NOW.replace(year=2026, month=1, day=2, hour=3, minute=4, second=5, microsecond=0)
    assert check_lease(inventory(Lease=[lease]), now, PLACE).level.value == level


def test_missing_lease_fails():
    assert check_lease(inventory(), NOW, PLACE).level is Level.FAIL


# Sweeps and dead letters


def state(**data):
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": STATE}, "data": data}
    return inventory(ConfigMap=[config_map if data else {**config_map, "data": None}])


def check_safeguard(what, found, now=NOW, place=PLACE):
    (finding,) = [one for one in check_safeguards(found, now, place) if one.what == what]
    return finding


def test_closed_breaker_without_loops_is_ok():
    for found in (state(), inventory()):
        assert [one.level for one in check_safeguards(found, NOW, PLACE)] == ["ok", "ok", "ok"]


def test_open_breaker_reports_cause_time_and_release_command():
    place = replace(PLACE, namespace="default", options=("--context=east",))
    finding = check_safeguard("breaker", state(**with_trip({}, Trip(ago(300), "too many", "sweep"))), place=place)
    assert finding.level == "FAIL"
    assert finding.detail == (
        "open: nothing is deleted since 2026-03-14 15:04:26 UTC (5m ago): too many, reported by sweep"
    )
    assert finding.fix.startswith("kubectl ttl release --breaker -n default --context=east    # ")


def test_breaker_with_unreadable_state_is_open():
    assert check_safeguard("breaker", state(breaker="rubbish")).level == "FAIL"


def test_recreate_loop_is_reported_until_it_expires():
    found = state(**with_loop({}, "Job.batch/ci/nightly", later(60), NOW))
    assert "Job.batch/ci/nightly" in check_safeguard("recreate loops", found).detail
    assert check_safeguard("recreate loops", found, later(61)).level == "ok"


def test_many_recreate_loops_are_summarized():
    data: Mapping[str, str] = {}
    for number in range(9):
        data = with_loop(data, f"Job.batch/ci/job-{number}", later(60), NOW)
    assert check_safeguard("recreate loops", state(**data)).detail.endswith("Job.batch/ci/job-2 and 6 more")


def test_unreadable_state_warns():
    findings = check_safeguards(inventory(problems={"ConfigMap": "forbidden"}), NOW, PLACE)
    assert [one.level for one in findings] == ["warn", "warn", "warn"]


def event(reason, seconds, message="said"):
    at = ago(seconds).isoformat()
    return {"reason": reason, "message": message, "metadata": {"creationTimestamp": at}}


def swept(*events, interval=timedelta(minutes=10), since=None):
    return check_sweep(Listed(events), NOW, Rhythm(interval, since, "look"), place=PLACE)


@pytest.mark.parametrize(
    ("finding", "level", "detail"),
    [
        (swept(event("Swept", 60)), "ok", "1m ago; expected every 10m"),
        (swept(event("Swept", 3_000), event("Swept", 60)), "ok", "1m ago"),
        (swept(event("Swept", 1_900)), "warn", "31m40s ago; expected every 10m"),
        (
            swept(event("Swept", 600), event("SweptInPart", 60, "could not list v1/Pod")),
            "warn",
            "incomplete: could not list v1/Pod",
        ),
        (swept(event("SweptInPart", 600), event("Swept", 60)), "ok", "1m ago"),
        (swept(event("DeadLetter", 60)), "warn", "none in the last hour"),
        (swept(), "warn", "none in the last hour; expected every 10m"),
        (swept(since=NOW - timedelta(minutes=5)), "ok", "none yet"),
        (swept(since=NOW - timedelta(minutes=40)), "warn", "none in the last hour"),
        (swept(interval=timedelta(hours=1)), "warn", "unknown: Events are kept for an hour"),
    ],
)
def test_last_sweep_level_follows_from_events_and_interval(finding, level, detail):
    assert finding.level.value == level
    assert detail in finding.detail
    assert bool(finding.fix) == (level != "ok")


def test_unreadable_events_warn():
    finding = check_sweep(Listed(problem="forbidden"), NOW, Rhythm(timedelta(minutes=1), None, ""), place=PLACE)
    assert (finding.level, finding.detail) == (Level.WARN, "cannot be checked: forbidden")


def test_dead_letters_of_the_last_hour_warn():
    letters = Listed((event("DeadLetter", 4_000), event("DeadLetter", 50, "old"), event("DeadLetter", 5, "new")))
    finding = check_dead_letters(letters, NOW, PLACE)
    assert finding.level is Level.WARN
    assert finding.detail == "2 different problems in the last hour; the latest: new"
    assert check_dead_letters(Listed((event("DeadLetter", 4_000),)), NOW, PLACE).level is Level.OK


# Output


def test_finding_prints_its_fix_on_a_second_line():
    assert str(ok("Broker default")) == "ok    Broker default"
    assert str(ok("Broker default", "http://b")) == "ok    Broker default — http://b"
    assert str(fail("Trigger x", "no\nsuch   thing", "kubectl apply -k mine")) == (
        "FAIL  Trigger x — no such thing\n      kubectl apply -k mine"
    )


def test_finding_replaces_control_characters():
    assert str(ok("dead letters", "\x1b[2J all well")) == "ok    dead letters — \N{REPLACEMENT CHARACTER}[2J all well"


def test_json_contains_each_finding():
    findings = [ok("a"), Finding(Level.FAIL, "b", "gone", "fix it")]
    assert json.loads(as_json(findings)) == [
        {"level": "ok", "check": "a", "detail": None, "fix": None},
        {"level": "fail", "check": "b", "detail": "gone", "fix": "fix it"},
    ]


def test_no_module_reads_package_metadata():
    """The image contains the files but no installed package; reading metadata would end `doctor` with a traceback."""
    assert not [path.name for path in (ROOT / "shared").rglob("*.py") if "importlib.metadata" in path.read_text()]
