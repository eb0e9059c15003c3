"""The Cloud Run overlay, without Google Cloud: a dialect of Knative Services, and the half that stays in the cluster.

What Cloud Run takes is its YAML reference: https://cloud.google.com/run/docs/reference/yaml/v1
"""

import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.config.settings import Settings, read_settings
from shared.adapters.config.timers_address import CloudTasksAddress
from shared.adapters.kubernetes.access import get_access
from shared.adapters.timers.cloudtasks.engine import ANSWER_SECONDS
from shared.adapters.timers.delivery import LIMITS
from shared.messages import ObjectArchived, Purpose, TimersSet
from tests.builders import not_none
from tests.kubectl import kustomize
from tests.manifests.test_manifests import publishers

ROOT = Path(__file__).parents[2]
OVERLAY = ROOT / "knative" / "overlays" / "cloud-run"
NAMESPACE = "ttl-after-finished"
FUNCTIONS = {path.stem for path in (ROOT / "functions").glob("*.py") if path.stem != "__init__"}
# Dead letters are reported in the cluster that they came from, and `usage` reads whole clusters.
IN_THE_CLUSTER = {"deadletter", "usage"}
ON_CLOUD_RUN = ["archive", "enforce", "expire", "schedule", "sweep", "timers"]
REACHING_THE_CLUSTER = ["archive", "enforce", "expire", "sweep"]
PUBLISHING = ["sweep", "timers"]
SECRET = re.compile(r"TOKEN$|SECRET|PASSWORD|KEY$")

SERVICE_ANNOTATIONS = {"run.googleapis.com/ingress", "run.googleapis.com/invoker-iam-disabled"}
REVISION_ANNOTATIONS = {
    "autoscaling.knative.dev/maxScale",
    "autoscaling.knative.dev/minScale",
    "run.googleapis.com/cpu-throttling",
    "run.googleapis.com/execution-environment",
    "run.googleapis.com/network-interfaces",
    "run.googleapis.com/startup-cpu-boost",
    "run.googleapis.com/vpc-access-egress",
}

Object = dict[str, Any]


@cache
def built(folder: Path) -> str:
    return kustomize(folder)


def objects(folder: Path) -> list[Object]:
    return list(yaml.safe_load_all(built(folder)))


def by_name(folder: Path, kind: str) -> dict[str, Object]:
    return {obj["metadata"]["name"]: obj for obj in objects(folder) if obj["kind"] == kind}


def services() -> dict[str, Object]:
    return by_name(OVERLAY, "Service")


def in_cluster(kind: str) -> dict[str, Object]:
    return by_name(OVERLAY / "cluster", kind)


@pytest.fixture(params=ON_CLOUD_RUN)
def service(request: pytest.FixtureRequest) -> Object:
    return services()[request.param]


def container_of(service: Object) -> Object:
    (container,) = service["spec"]["template"]["spec"]["containers"]
    return container


def environment_of(service: Object) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container_of(service)["env"] if "value" in variable}


def settings_of(service: Object) -> Settings:
    return read_settings(environment=environment_of(service))


def mebibytes(quantity: str) -> int:
    number, unit = not_none(re.fullmatch(r"(\d+)(Mi|Gi)", quantity)).groups()
    return int(number) * {"Mi": 1, "Gi": 1024}[unit]


# The Services


def test_each_function_runs_in_the_cluster_or_on_cloud_run():
    assert [obj["metadata"]["name"] for obj in objects(OVERLAY)] == ON_CLOUD_RUN
    assert in_cluster("Service").keys() & FUNCTIONS == IN_THE_CLUSTER
    assert {*ON_CLOUD_RUN, *IN_THE_CLUSTER} == FUNCTIONS
    assert publishers(tuple(objects(OVERLAY / "cluster"))) == {"usage"}


def test_service_has_only_fields_that_cloud_run_supports(service):
    assert service.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert (service["apiVersion"], service["kind"]) == ("serving.knative.dev/v1", "Service")
    assert service["metadata"].keys() == {"name", "annotations"}
    assert service["metadata"]["annotations"].keys() <= SERVICE_ANNOTATIONS
    template = service["spec"]["template"]
    assert service["spec"].keys() == {"template"}
    assert template.keys() == {"metadata", "spec"}
    assert template["metadata"].keys() == {"annotations"}
    assert template["metadata"]["annotations"].keys() <= REVISION_ANNOTATIONS
    assert template["spec"].keys() == {"containerConcurrency", "timeoutSeconds", "serviceAccountName", "containers"}
    assert container_of(service).keys() == {"image", "ports", "env", "resources"}
    assert container_of(service)["ports"] == [{"name": "http1", "containerPort": 8080}]
    assert container_of(service)["resources"].keys() == {"limits"}


def test_sweep_has_one_instance_because_only_that_knows_the_steps_it_returned():
    most = {name: one["spec"]["template"]["metadata"]["annotations"] for name, one in services().items()}
    assert most["sweep"]["autoscaling.knative.dev/maxScale"] == "1"


def test_every_annotation_is_a_string(service):
    for metadata in (service["metadata"], service["spec"]["template"]["metadata"]):
        assert all(isinstance(value, str) for value in metadata["annotations"].values())


def test_revision_has_memory_for_gen2_and_cpu_for_concurrent_requests(service):
    template = service["spec"]["template"]
    limits = container_of(service)["resources"]["limits"]
    assert template["metadata"]["annotations"]["run.googleapis.com/execution-environment"] == "gen2"
    assert mebibytes(limits["memory"]) >= 512  # the least that gen2 takes
    assert float(limits["cpu"]) >= 1  # with less Cloud Run allows one request at a time
    assert 1 < template["spec"]["containerConcurrency"] <= 1000


def test_only_expire_and_timers_always_have_one_instance():
    scales = {
        name: service["spec"]["template"]["metadata"]["annotations"]["autoscaling.knative.dev/minScale"]
        for name, service in services().items()
    }
    assert scales == {"archive": "0", "enforce": "0", "expire": "1", "schedule": "0", "sweep": "0", "timers": "1"}


def test_function_service_and_account_share_a_name(service):
    name = service["metadata"]["name"]
    environment = environment_of(service)
    assert environment["FUNCTION_TARGET"] == name
    assert environment["FUNCTION_SOURCE"] == f"/app/functions/{name}.py"
    account, _, domain = service["spec"]["template"]["spec"]["serviceAccountName"].partition("@")
    assert account == f"ttl-{name}"
    assert 6 <= len(account) <= 30  # the lengths that Google's IAM takes
    assert domain.endswith(".iam.gserviceaccount.com")


def test_cloud_run_image_equals_the_image_of_the_cluster(service):
    (usage,) = in_cluster("Service")["usage"]["spec"]["template"]["spec"]["containers"]
    assert container_of(service)["image"] == usage["image"]
    assert re.fullmatch(r"ghcr\.io/ttl-after-finished/ttl-after-finished:\d+\.\d+\.\d+", usage["image"])


def test_every_variable_is_a_literal_or_a_secret(service):
    for variable in container_of(service)["env"]:
        if SECRET.search(variable["name"]):
            assert variable["valueFrom"]["secretKeyRef"].keys() == {"name", "key"}, variable["name"]
        else:
            assert isinstance(variable["value"], str), variable["name"]


def test_settings_are_valid_and_only_deleting_functions_reach_the_cluster(service):
    access = get_access(settings_of(service))
    name = service["metadata"]["name"]
    calls = name in {*REACHING_THE_CLUSTER, *PUBLISHING}  # which publish with a token that the API server issues
    assert (access is not None) == calls
    assert settings_of(service).api_identity == ("google" if calls else None)


def test_settings_equal_the_settings_of_the_cluster(service):
    (config,) = [obj for name, obj in in_cluster("ConfigMap").items() if name.startswith("settings-")]
    around, ours = read_settings(environment=config["data"]), settings_of(service)
    assert (ours.kinds, ours.dry_run, ours.log) == (around.kinds, around.dry_run, around.log)
    assert ours.sweep_interval == around.sweep_interval


@pytest.mark.parametrize("name", REACHING_THE_CLUSTER)
def test_deleting_function_has_the_namespace_of_its_state(name):
    """Without it doctor would miss every sweep, and an open breaker would stop no process."""
    assert settings_of(services()[name]).home_namespace == NAMESPACE


# Who may call, and who is called


def test_functions_are_not_reachable_from_outside_the_network(service):
    assert service["metadata"]["annotations"] == {
        "run.googleapis.com/ingress": "internal",
        "run.googleapis.com/invoker-iam-disabled": "true",
    }


def test_function_admits_the_token_of_its_own_trigger_only(service):
    name = service["metadata"]["name"]
    trigger = in_cluster("Trigger")[name]
    environment = environment_of(service)
    assert environment["TTL_CALLERS"] == f"system:serviceaccount:{NAMESPACE}:{name}-oidc-eventing.knative.dev-trigger"
    assert environment["TTL_CALLERS_AUDIENCE"] == trigger["spec"]["subscriber"]["audience"]
    assert environment["TTL_CALLERS_ISSUER"].startswith("https://container.googleapis.com/v1/projects/")


def test_trigger_reaches_its_function_with_an_equal_timeout(service):
    name = service["metadata"]["name"]
    trigger = in_cluster("Trigger")[name]
    assert re.fullmatch(rf"https://{name}-\d+\.[a-z0-9-]+\.run\.app", trigger["spec"]["subscriber"]["uri"])
    assert "ref" not in trigger["spec"]["subscriber"]
    number, unit = not_none(re.fullmatch(r"PT(\d+)([SM])", trigger["spec"]["delivery"]["timeout"])).groups()
    seconds = int(number) * {"S": 1, "M": 60}[unit]
    if name == "timers":  # a task takes as long as its delivery
        seconds = int(LIMITS.timeout_of(Purpose.ARCHIVE) + ANSWER_SECONDS)
    assert service["spec"]["template"]["spec"]["timeoutSeconds"] == seconds


def test_timers_are_tasks_and_the_cluster_keeps_none():
    assert not in_cluster("StatefulSet")
    assert in_cluster("Trigger").keys() == {*ON_CLOUD_RUN, "usage"}
    settings = settings_of(services()["timers"])
    assert settings.timers == CloudTasksAddress("projects/my-project/locations/us-central1/queues/ttl-timers")
    assert settings.tasks_target == in_cluster("Trigger")["timers"]["spec"]["subscriber"]["uri"]
    accounts = {service["spec"]["template"]["spec"]["serviceAccountName"] for service in services().values()}
    assert settings.tasks_account not in accounts  # it is an identity for Cloud Tasks only
    assert all(settings_of(other).timers is None for name, other in services().items() if name != "timers")


def test_trigger_of_timers_never_sends_a_fired_timer():
    """Or else timers would publish it again, and so on."""
    (filters,) = in_cluster("Trigger")["timers"]["spec"]["filters"]
    assert [each["exact"]["type"] for each in filters["any"]] == [TimersSet.type, ObjectArchived.type]


def test_timers_can_take_all_deliveries_at_once():
    service = services()["timers"]["spec"]["template"]["spec"]
    assert service["containerConcurrency"] > len(Purpose) * LIMITS.in_flight


@pytest.mark.parametrize("name", PUBLISHING)
def test_function_reaches_the_broker_as_an_account_of_the_cluster(name):
    settings = settings_of(services()[name])
    (broker,) = in_cluster("Broker")
    address = in_cluster("Service")["ttl-after-finished-broker"]
    assert address["metadata"]["namespace"] == "knative-eventing"
    assert address["metadata"]["annotations"] == {"networking.gke.io/load-balancer-type": "Internal"}
    assert address["spec"]["selector"] == {"eventing.knative.dev/brokerRole": "ingress"}  # as Knative labels it
    assert settings.sink == f"http://{address['spec']['loadBalancerIP']}/{NAMESPACE}/{broker}"
    assert settings.sink_audience == f"eventing.knative.dev/broker/{NAMESPACE}/{broker}"
    namespace, _, account = settings.sink_account.partition("/")
    assert namespace == NAMESPACE
    assert account == name
    assert account in in_cluster("ServiceAccount")


# Rights


def test_google_accounts_have_the_rights_of_their_functions():
    for name in REACHING_THE_CLUSTER:
        account = services()[name]["spec"]["template"]["spec"]["serviceAccountName"]
        binding, user = in_cluster("ClusterRoleBinding")[f"{NAMESPACE}-{name}"], {"kind": "User", "name": account}
        assert binding["roleRef"]["name"] == f"{NAMESPACE}-{name}"
        assert binding["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", **user}]
        state = in_cluster("RoleBinding")[f"state-{name}"]
        assert state["roleRef"]["name"] == "state"
        assert state["subjects"] == binding["subjects"]


@pytest.mark.parametrize("name", PUBLISHING)
def test_account_that_a_function_publishes_as_has_no_rights(name):
    bindings = [*in_cluster("ClusterRoleBinding").values(), *in_cluster("RoleBinding").values()]
    bound = {(subject["kind"], subject["name"]) for binding in bindings for subject in binding["subjects"]}
    assert ("ServiceAccount", name) not in bound
    assert in_cluster("ServiceAccount")[name]["automountServiceAccountToken"] is False
    assert in_cluster("Role")[f"{name}-tokens"]["rules"] == [
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [name], "verbs": ["create"]}
    ]
    (subject,) = in_cluster("RoleBinding")[f"{name}-tokens"]["subjects"]
    assert subject["name"] == services()[name]["spec"]["template"]["spec"]["serviceAccountName"]


def test_cloud_run_functions_have_no_account_in_the_cluster():
    assert sorted(in_cluster("ServiceAccount")) == ["deadletter", "source", "sweep", "timers", "usage"]


# The place


def test_place_sets_every_value_of_the_project(tmp_path):
    """With every value changed, no old value remains, and every new one is used."""
    shutil.copytree(ROOT / "knative", tmp_path / "knative")
    overlay = tmp_path / "knative" / "overlays" / "cloud-run"
    place = overlay / "place" / "kustomization.yaml"
    document = yaml.safe_load(place.read_text())
    literals = dict(literal.split("=", 1) for literal in document["configMapGenerator"][0]["literals"])
    other = {
        name: f"https://{name.lower()}.example" if "://" in old else f"{name.lower()}.example"
        for name, old in literals.items()
    }
    document["configMapGenerator"][0]["literals"] = [f"{name}={value}" for name, value in other.items()]
    place.write_text(yaml.safe_dump(document))

    text = built(overlay) + built(overlay / "cluster")

    for name, old in literals.items():
        assert old.strip("'") not in text, name
        assert other[name] in text, name
        assert not re.search(rf"\b{name}$|\b{name}/", text, re.MULTILINE), name
