"""The Helm chart on a real API server with Knative's CRDs: install, upgrade, roll back, uninstall."""

import json
import os
import subprocess
import time

import pytest

from shared import __version__
from shared.devserver.real_servers import real_server
from shared.safeguards.state_schema import NAME as STATE
from tests.helm import CHART, RELEASE, client_side, helm, needs_helm, rendered
from tests.kubectl import KUBECTL
from tests.manifests.test_manifests import KNATIVE, NAMESPACE
from tests.manifests.test_schemas import required_knative

pytestmark = needs_helm

SOURCES = {"components": {"source-watch": True, "source-apiserver/job": False, "source-apiserver/pod": False}}
POLICY = {"configMaps": {"policy": {"policy.yaml": "rules: []\n"}}}
OTHER_POLICY = {"configMaps": {"policy": {"policy.yaml": "rules: [] # another\n"}}}
TIMERS = ("services.serving.knative.dev", "timers")
CONTAINER = "/spec/template/spec/containers/0"


class Cluster:
    """An API server with a namespace for the release."""

    def __init__(self, server):
        self.kubeconfig = str(server.kubeconfig)
        self._flags = (f"--kubeconfig={self.kubeconfig}", f"--namespace={NAMESPACE}")

    def helm(self, verb, *arguments, values=None):
        done = helm(verb, RELEASE, *map(str, arguments), *self._flags, values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl(self, *arguments, given=""):
        command = [KUBECTL, f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *arguments):
        return json.loads(self.kubectl(f"--namespace={NAMESPACE}", "get", *arguments, "--output=json"))

    def names(self, kinds):
        return {one["metadata"]["name"] for one in self.get(kinds)["items"]}

    def objects(self):
        """What each object of the release is in the cluster, without what the API server counts."""
        done = helm("get", "manifest", RELEASE, *self._flags)
        assert done.returncode == 0, done.stderr
        found = json.loads(self.kubectl("get", "--filename=-", "--output=json", given=done.stdout))["items"]
        return {(one["apiVersion"], one["kind"], one["metadata"]["name"]): _content(one) for one in found}

    def rules(self, name):
        """The rules of an aggregated role, which the control plane fills."""
        deadline = time.monotonic() + 20
        while not (rules := self.get("clusterrole", name).get("rules")) and time.monotonic() < deadline:
            time.sleep(0.2)
        return rules


def image_of(cluster):
    (container,) = cluster.get("services.serving.knative.dev", "expire")["spec"]["template"]["spec"]["containers"]
    return container["image"]


def _content(obj):
    metadata = {key: obj["metadata"].get(key) for key in ("name", "namespace", "labels")}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


@pytest.fixture(scope="module")
def server():
    assets, crds = required_knative()
    with real_server(assets, fsync=False) as real:
        if not real.has_controllers():
            pytest.fail("no kube-controller-manager") if os.getenv("CI") else pytest.skip("no kube-controller-manager")
        real.start_controllers(["clusterrole-aggregation-controller", "garbage-collector-controller"])
        cluster = Cluster(real)
        cluster.kubectl("create", *(f"--filename={path}" for path in crds))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        cluster.kubectl("apply", f"--filename={KNATIVE / 'namespace' / 'namespace.yaml'}")
        yield cluster


@pytest.fixture
def cluster(server):
    """With the chart as revision 1, and shared state that a process has written."""
    server.helm("install", CHART)
    server.kubectl("patch", "configmap", STATE, f"--namespace={NAMESPACE}", '--patch={"data": {"stopped": "yes"}}')
    yield server
    server.helm("uninstall")
    server.kubectl("delete", "configmaps", f"--namespace={NAMESPACE}", "--all")


def test_install_makes_every_object(cluster):
    made = {(obj["apiVersion"], obj["kind"], obj["metadata"]["name"]) for obj in rendered({})}
    assert cluster.objects().keys() == made
    assert {"pods", "jobs"} <= {one for rule in cluster.rules("ttl-after-finished-expire") for one in rule["resources"]}


def test_upgrade_keeps_the_shared_state_and_the_aggregated_rights(cluster):
    before = cluster.rules("ttl-after-finished-expire")
    cluster.helm("upgrade", CHART, values={"settings": {"TTL_KINDS": "pods"}})
    assert cluster.get("configmap", STATE)["data"] == {"stopped": "yes"}
    assert cluster.get("clusterrole", "ttl-after-finished-expire")["rules"] == before


def test_upgrade_to_another_version_changes_each_image_and_label(cluster, tmp_path):
    done = helm("package", str(CHART), f"--destination={tmp_path}", "--version=9.8.7", "--app-version=9.8.7")
    assert done.returncode == 0, done.stderr
    cluster.helm("upgrade", *tmp_path.glob("*-9.8.7.tgz"))
    objects = cluster.objects()
    assert {one["metadata"]["labels"]["app.kubernetes.io/version"] for one in objects.values()} == {"9.8.7"}
    assert image_of(cluster).endswith(":9.8.7")
    cluster.helm("rollback", 1)
    assert image_of(cluster).endswith(f":{__version__}")


def test_roll_back_restores_what_an_upgrade_changed_and_removed(cluster):
    before = cluster.objects()
    settings = {one for one in cluster.names("configmaps") if one.startswith("settings-")}
    cluster.helm("upgrade", CHART, values={**SOURCES, "settings": {"TTL_KINDS": "pods"}})
    assert cluster.names("apiserversources") == set()
    assert cluster.names("containersources") == {"source"}
    assert settings < cluster.names("configmaps"), "revisions that still run use the old settings"
    cluster.helm("rollback", 1)
    assert cluster.objects() == before
    assert cluster.get("configmap", STATE)["data"] == {"stopped": "yes"}
    assert cluster.names("containersources") == set()


def test_policy_changes_forth_and_back(cluster):
    names = []
    for values in (POLICY, OTHER_POLICY, POLICY):
        cluster.helm("upgrade", CHART, values=values)
        (volume,) = cluster.get("services.serving.knative.dev", "expire")["spec"]["template"]["spec"]["volumes"]
        names.append(volume["configMap"]["name"])
    assert names[0] == names[2] != names[1]
    assert set(names) < cluster.names("configmaps"), "revisions that still run use an older policy"


def test_uninstall_leaves_only_the_generated_config_maps(cluster):
    cluster.helm("uninstall")
    assert cluster.names("services.serving.knative.dev,triggers,brokers,pingsources,serviceaccounts,roles") == set()
    assert {one.rsplit("-", 1)[0] for one in cluster.names("configmaps")} <= {"settings", "kube-root-ca.crt"}
    cluster.helm("install", CHART)


def test_helm_takes_over_what_kustomize_installed(server):
    standalone = {"overlay": "standalone"}
    server.kubectl("apply", f"--kustomize={KNATIVE / 'overlays' / 'standalone'}")
    uid = server.get("deployment", "standalone")["metadata"]["uid"]
    server.helm("install", CHART, *client_side(), "--take-ownership", values=standalone)
    server.helm("upgrade", CHART, values={**standalone, "settings": {"TTL_KINDS": "pods"}})
    server.helm("rollback", 1)
    assert server.get("deployment", "standalone")["metadata"]["uid"] == uid
    server.helm("uninstall")
    assert server.names("deployments,serviceaccounts,roles") == set()


def test_guards_of_the_chart_are_accepted_in_any_namespace(server):
    server.kubectl("create", "namespace", "elsewhere")
    flags = (f"--kubeconfig={server.kubeconfig}", "--namespace=elsewhere")
    done = helm("install", RELEASE, str(CHART), *flags, values={"overlay": "standalone"})
    assert done.returncode == 0, done.stderr
    text = server.kubectl("get", "validatingadmissionpolicies", "--output=yaml")
    assert "system:serviceaccount:elsewhere:" in text
    assert "system:serviceaccount:ttl-after-finished:" not in text
    assert helm("uninstall", RELEASE, *flags).returncode == 0
