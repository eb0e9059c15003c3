"""`doctor` on a real kube-apiserver with real RBAC and real aggregation, without the kinds of Knative."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.kubernetes.connect import connect
from shared.core.values.objects import ObjectRef
from shared.devserver.real_servers import RealServer
from shared.ports import EventLevel
from shared.safeguards.state_schema import NAME as STATE
from tests.builders import COMMAND
from tests.integration.conftest import Api

ROOT = Path(__file__).parents[2]
NAMESPACE = "ttl-after-finished"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
TRAINJOBS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "trainjobs.trainer.kubeflow.org"},
    "spec": {
        "group": "trainer.kubeflow.org",
        "names": {"kind": "TrainJob", "plural": "trainjobs"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
KUBECTL = shutil.which("kubectl")

pytestmark = pytest.mark.skipif(
    KUBECTL is None and not os.environ.get("CI"), reason="kubectl is not installed; in CI this is a failure"
)


class Operator:
    """A user with a kubeconfig, kubectl and doctor."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of kubectl-ttl
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}

    def kubectl(self, *words: str, given: str = "") -> str:
        done = subprocess.run(
            [str(KUBECTL), *words], input=given, capture_output=True, text=True, check=False, env=self.environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def paste(self, command: str) -> None:
        """Run a printed command in a shell, in the checkout."""
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=False, env=self.environment, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr

    def doctor(self, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
        done = self.run(*options, "-o", "json")
        assert done.stderr == ""
        return done.returncode, {one["check"]: one for one in json.loads(done.stdout)}

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "doctor", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment, cwd=ROOT)


@pytest.fixture
def operator(server: RealServer) -> Operator:
    return Operator(server.kubeconfig)


@pytest.fixture
def standalone(operator: Operator, api: Api) -> Operator:
    """Apply the standalone overlay, and set the status of a Pod that is ready and leads."""
    operator.kubectl("apply", "-k", str(ROOT / "knative/overlays/standalone"))
    status = {"status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}}
    api.call("PATCH", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/standalone/status", status)
    spec = {"holderIdentity": "pod/1", "renewTime": "2200-01-01T00:00:00.000000Z"}
    if api.get(f"{LEASES}/{NAMESPACE}") is None:
        api.call("POST", LEASES, {"metadata": {"name": NAMESPACE}, "spec": spec})
    api.wait("the roles' aggregation", lambda: may(api, "delete", "batch", "jobs") and may(api, "watch", "", "pods"))
    return operator


def may(api: Api, verb: str, group: str, resource: str) -> bool:
    """Whether the API server grants `standalone` a right."""
    attributes = {"verb": verb, "group": group, "resource": resource}
    spec = {"resourceAttributes": attributes, "user": f"system:serviceaccount:{NAMESPACE}:standalone"}
    review = api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    return bool(review["status"]["allowed"])


def troubles(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {what: f"{one['level']}: {one['detail']}" for what, one in found.items() if one["level"] != "ok"}


def test_empty_namespace_reports_how_to_install(operator: Operator) -> None:
    code, found = operator.doctor("--namespace", "nowhere")

    assert code == 1
    assert found["API server"]["level"] == found["clock"]["level"] == "ok"
    assert troubles(found).keys() == {"installation"}
    assert "none in namespace nowhere" in found["installation"]["detail"]
    # There is no Knative here.
    assert found["installation"]["fix"].startswith("kubectl apply -k knative/overlays/standalone")
    operator.paste(found["installation"]["fix"])


def test_open_breaker_of_a_run_is_reported(api: Api, operator: Operator) -> None:
    loops = json.dumps({"Job.batch/ci/nightly": "2999-01-02T03:04:05Z"})
    data = {"breaker": '{"at":"2026-01-02T03:04:05Z","why":"too many","by":"sweep"}', "recreation": loops}
    api.call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": STATE}, "data": data})
    try:
        _, found = operator.doctor("--namespace", "default")
    finally:
        api.call("DELETE", f"/api/v1/namespaces/default/configmaps/{STATE}")

    assert list(troubles(found)) == ["breaker", "recreate loops", "installation"]
    assert "since 2026-01-02 03:04:05 UTC" in found["breaker"]["detail"]
    assert found["breaker"]["fix"].startswith("kubectl ttl release --breaker -n default")
    assert "Job.batch/ci/nightly" in found["recreate loops"]["detail"]


def test_healthy_installation_prints_one_line_for_each_check(standalone: Operator) -> None:
    done = standalone.run()

    assert done.returncode == 0, done.stdout
    *lines, last = done.stdout.splitlines()
    assert all(line.startswith("ok    ") for line in lines)
    assert last == f"{len(lines)} checks passed"
    assert "\x1b" not in done.stdout
    for what in ("Deployment standalone", "kind jobs", "rights of standalone on pods", "Lease", "last sweep"):
        assert f"ok    {what} — " in done.stdout


def test_missing_right_is_reported_and_its_command_fixes_it(standalone: Operator, api: Api) -> None:
    roles = [f"ttl-after-finished-{account}-job" for account in ("expire", "sweep")]
    standalone.kubectl("delete", "clusterrole", *roles)
    api.wait("the roles' aggregation", lambda: not may(api, "delete", "batch", "jobs"))

    code, found = standalone.doctor()

    assert code == 1
    assert troubles(found) == {"rights of standalone on jobs": "fail: may not delete"}
    standalone.paste(found["rights of standalone on jobs"]["fix"])
    api.wait("the roles' aggregation", lambda: may(api, "delete", "batch", "jobs"))
    code, found = standalone.doctor()
    assert (code, troubles(found)) == (0, {})


def test_stale_or_missing_guard_is_reported_and_its_command_fixes_it(standalone: Operator, api: Api) -> None:
    names = [f"ttl-after-finished-delete-guard-{kind}" for kind in ("job", "pod")]
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    older = {"metadata": {"annotations": {"ttlafterfinished.dev/rule-version": "older"}}}
    api.call("PATCH", f"{policies}/{names[0]}", older)
    standalone.kubectl("delete", "validatingadmissionpolicy", names[1])

    code, found = standalone.doctor()

    assert code == 1
    assert set(troubles(found)) == {"delete guard stale", "delete guard missing"}
    standalone.paste(found["delete guard stale"]["fix"])
    standalone.paste(found["delete guard missing"]["fix"])
    code, found = standalone.doctor()
    assert (code, troubles(found)) == (0, {})
    assert found["delete guard"]["detail"].startswith("jobs.batch, pods; ")


def test_missing_binding_is_distinguished_from_a_missing_right_on_a_kind(standalone: Operator, api: Api) -> None:
    standalone.kubectl("delete", "clusterrolebinding", "ttl-after-finished-standalone")
    api.wait("the loss", lambda: not may(api, "delete", "batch", "jobs"))

    _, found = standalone.doctor()

    ((what, trouble),) = troubles(found).items()
    assert what == "rights of standalone"
    assert "ClusterRoleBinding ttl-after-finished-standalone does not exist" in trouble
    standalone.paste(found[what]["fix"])
    api.wait("the return", lambda: may(api, "delete", "batch", "jobs"))
    assert standalone.doctor()[0] == 0


def test_kind_without_crd_is_reported_and_so_are_its_rights(standalone: Operator, api: Api) -> None:
    (config,) = [
        one["metadata"]["name"]
        for one in api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
        if one["metadata"]["name"].startswith("settings-")
    ]
    kinds = {"data": {"TTL_KINDS": "jobs,trainjobs"}}
    api.call("PATCH", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{config}", kinds)

    code, found = standalone.doctor()

    assert code == 1
    assert found["kind jobs"]["level"] == "ok"
    assert "does not serve trainjobs of trainer.kubeflow.org/v1alpha1" in found["kind trainjobs"]["detail"]
    rights = found["rights of standalone on trainjobs"]
    assert rights["detail"] == "may not delete, get, list, patch, watch"
    standalone.paste(rights["fix"])
    standalone.paste(found["delete guard missing"]["fix"])
    standalone.kubectl("apply", "-f", "-", given=yaml.safe_dump(TRAINJOBS))
    api.wait("the CRD", lambda: api.get("/apis/trainer.kubeflow.org/v1alpha1"))
    api.wait("the roles' aggregation", lambda: may(api, "watch", "trainer.kubeflow.org", "trainjobs"))
    code, found = standalone.doctor()
    assert (code, troubles(found)) == (0, {})


def test_all_kinds_checks_only_the_served_kinds(standalone: Operator, api: Api) -> None:
    configs = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
    (config,) = [one["metadata"]["name"] for one in configs if one["metadata"]["name"].startswith("settings-")]
    api.call("PATCH", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{config}", {"data": {"TTL_KINDS": "all"}})

    _, found = standalone.doctor()

    what = "rights of standalone on certificatesigningrequests"
    assert set(troubles(found)) == {what, "delete guard missing"}
    assert troubles(found)[what].startswith("warn: none: TTL_KINDS is all")
    standalone.paste(found[what]["fix"])
    group = "certificates.k8s.io"
    api.wait("the roles' aggregation", lambda: may(api, "watch", group, "certificatesigningrequests"))
    code, found = standalone.doctor()
    assert (code, troubles(found)) == (0, {})


@pytest.fixture
def write_event(standalone: Operator, server: RealServer) -> Callable[..., None]:
    """Return a function that writes an Event about the installation; older Events are deleted first."""
    standalone.kubectl("-n", NAMESPACE, "delete", "events", "--all")

    async def record(reason: str, message: str, level: EventLevel) -> None:
        cluster = await connect(kubeconfig=str(server.kubeconfig))
        try:
            about = ObjectRef("v1", "Namespace", NAMESPACE, NAMESPACE, "")
            await cluster.record_event(about, reason, message, level=level)
        finally:
            await cluster.close()

    return lambda reason, message, level: asyncio.run(record(reason, message, level))


def test_sweep_event_is_reported(standalone: Operator, write_event: Callable[..., None]) -> None:
    assert standalone.doctor()[1]["last sweep"]["detail"].startswith("none yet")
    write_event("Swept", "listed all objects of jobs: sweep 1", "Normal")

    code, found = standalone.doctor()

    assert code == 0
    assert found["last sweep"]["detail"].endswith("ago; expected every 10m")


def test_incomplete_sweep_warns(standalone: Operator, write_event: Callable[..., None]) -> None:
    write_event("SweptInPart", "could not list v1/Pod; sweep 2", "Warning")

    code, found = standalone.doctor()

    assert code == 1
    assert "incomplete: could not list v1/Pod" in found["last sweep"]["detail"]


def test_dead_letters_are_not_checked_without_the_dead_letter_function(standalone: Operator) -> None:
    assert "dead letters" not in standalone.doctor()[1]


@pytest.mark.parametrize("asks_about_others", [False, True])
def test_read_only_user_gets_warnings_for_checks_that_could_not_run(
    standalone: Operator, api: Api, server: RealServer, tmp_path: Path, asks_about_others: bool
) -> None:
    name = f"reader-{asks_about_others}".lower()
    standalone.kubectl("-n", NAMESPACE, "create", "serviceaccount", name)
    account = f"--serviceaccount={NAMESPACE}:{name}"
    standalone.kubectl("-n", NAMESPACE, "create", "rolebinding", name, "--clusterrole=view", account)
    if asks_about_others:
        what = ("--verb=create", "--resource=subjectaccessreviews.authorization.k8s.io")
        standalone.kubectl("create", "clusterrole", name, *what)
        standalone.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
    token = api.call("POST", path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))

    code, found = Operator(kubeconfig).doctor()

    assert code == 1
    assert found["kind jobs"]["level"] == "ok"
    assert found["Lease"]["level"] == "warn"
    assert 'cannot list resource "leases"' in found["Lease"]["detail"]
    if asks_about_others:
        assert found["rights of standalone on jobs"]["level"] == "ok"
    else:
        assert found["rights of standalone"]["level"] == "warn"
        assert found["rights of standalone"]["detail"].startswith("cannot be checked: ")
