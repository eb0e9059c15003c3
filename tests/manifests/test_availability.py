"""components/high-availability: what a drained node may take, and what it may not."""

import re

import pytest

from tests.manifests.composed import composed, pods, selects
from tests.manifests.test_manifests import BUILDS, KNATIVE, build, of_kind

MIN_SCALE = "autoscaling.knative.dev/min-scale"
MAX_SCALE = "autoscaling.knative.dev/max-scale"


def replicas(objects, name):
    """How many there are at the least, and at the most (None: no limit)."""
    for kind in ("Deployment", "StatefulSet"):
        if name in of_kind(objects, kind):
            return (of_kind(objects, kind)[name]["spec"]["replicas"],) * 2
    template = of_kind(objects, "Service", "serving.knative.dev")[name]["spec"]["template"]
    annotations = template["metadata"].get("annotations", {})
    most = annotations.get(MAX_SCALE)
    return int(annotations.get(MIN_SCALE, 0)), most and int(most)


def availability_of(objects):
    """Each PodDisruptionBudget must be met by two Pods or more of one kind; anything else only blocks a drain."""
    labels = pods(objects)
    for name, budget in of_kind(objects, "PodDisruptionBudget").items():
        assert [pod for pod in labels if selects(budget["spec"]["selector"], labels[pod])] == [name]
        assert budget["spec"]["maxUnavailable"] == 1
        least, _ = replicas(objects, name)
        assert least >= 2, f"{name}: list high-availability after prometheus"
        yield name


@pytest.mark.parametrize("others", [(), ("prometheus",), ("timers-sqlite", "dead-letter", "prometheus")])
def test_functions_of_every_deletion_have_two_pods(others):
    objects = composed(*others, "high-availability")
    assert sorted(availability_of(objects)) == ["archive", "enforce", "expire", "schedule"]


@pytest.mark.parametrize("timers", [(), ("timers-sqlite",)])
def test_timers_in_a_file_has_exactly_one_pod(timers):
    assert replicas(composed(*timers, "prometheus", "high-availability"), "timers") == (1, 1)


@pytest.mark.parametrize("others", [(), ("dead-letter", "prometheus", "high-availability")])
def test_timers_on_nats_has_two_pods_or_more_and_a_drain_takes_one_at_a_time(others):
    objects = composed("timers-nats", *others)
    assert replicas(objects, "timers") == (2, None)
    assert "timers" in availability_of(objects)


@pytest.mark.parametrize(("others", "least"), [(("high-availability",), 0), (("prometheus", "high-availability"), 1)])
def test_sweep_has_at_most_one_pod_because_only_that_knows_the_steps_it_returned(others, least):
    assert replicas(composed(*others), "sweep") == (least, 1)


def test_standalone_standby_prefers_another_node():
    objects = composed("standalone", "high-availability/standalone", base="namespace")
    assert list(availability_of(objects)) == ["standalone"]
    (spread,) = of_kind(objects, "Deployment")["standalone"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert selects(spread["labelSelector"], pods(objects)["standalone"])
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"  # a cluster of one node has them both


def test_pod_of_standalone_outlives_a_rollout_that_ends_at_its_start():
    spec = of_kind(composed("standalone", base="namespace"), "Deployment")["standalone"]["spec"]
    assert spec["minReadySeconds"] >= 20  # a process with an invalid policy or rule ends within seconds
    assert "strategy" not in spec  # RollingUpdate: of one replica, none may be unavailable


@pytest.mark.parametrize("folder", BUILDS)
def test_every_disruption_budget_of_an_overlay_can_be_met(folder):
    list(availability_of(build(KNATIVE / folder)))


@pytest.mark.parametrize("folder", ["overlays/production", "overlays/production-nats"])
def test_production_functions_with_metrics_do_not_scale_to_zero(folder):
    objects = build(KNATIVE / folder)
    for name in ("expire", "enforce", "archive", "sweep", "usage", "deadletter", "timers"):
        assert replicas(objects, name)[0] >= 1, f"{name}: list prometheus after the functions' components"


@pytest.mark.parametrize("timers", [(), ("timers-nats", "timers-nats/credentials", "timers-nats/tls")])
def test_services_use_no_field_that_needs_a_knative_feature_flag(timers):
    objects = composed(*timers, "dead-letter", "prometheus", "high-availability", "network-policy")
    for name, service in of_kind(objects, "Service", "serving.knative.dev").items():
        spec = service["spec"]["template"]["spec"]
        allowed = "serviceAccountName|automountServiceAccountToken|containers|volumes|enableServiceLinks"
        allowed += "|timeoutSeconds|responseStartTimeoutSeconds"
        assert not [field for field in spec if not re.fullmatch(allowed, field)], name
