"""`ui` on a real API server: an operator without tokens, and users of whom one may list one namespace."""

import json
import shutil
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from shared.core.values.objects import format_instant
from tests.certificates import write_certificate
from tests.integration.conftest import Run
from tests.integration.test_callers import token_of
from tests.manifests.composed import composed
from tests.reference.outputs import OUTPUTS

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def get(address: str, path: str = "/api/v1/overview", **headers: str) -> tuple[int, dict]:
    request = urllib.request.Request(address + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def as_user(address: str, token: str, path: str = "/api/v1/overview") -> tuple[int, dict]:
    return get(address, path, Authorization=f"Bearer {token}")


@pytest.fixture
def other(api, namespace) -> str:
    """Another namespace, in which the user has no right."""
    name = f"x-{namespace}"[:63]
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def pods(api, namespace, other) -> None:
    for place in (namespace, other):
        pod = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        api.call("POST", f"/api/v1/namespaces/{place}/pods", pod)


def user_of(api, namespace: str, name: str, resources: tuple[str, ...]) -> str:
    """Create an account that may list these resources in one namespace, and return its token."""
    api.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    rules = [{"apiGroups": [""], "resources": list(resources), "verbs": ["list"]}]
    api.call("POST", f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    api.call("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    return token_of(api, namespace, name)


@pytest.mark.usefixtures("pods")
def test_operator_sees_all_namespaces_and_a_foreign_host_sees_nothing(start_ui, namespace, other):
    address = start_ui()
    status, found = get(address)
    assert status == 200
    OUTPUTS["ui"].adapter.validate_json(json.dumps(found), by_alias=True, by_name=False)
    assert {namespace, other} <= set(found["namespaces"])
    assert found["status"]["installed"] is None
    assert get(address, Host="evil.example")[0] == 421
    assert get(address, f"/api/v1/overview?namespace={other}")[1]["namespaces"] == [other]


@pytest.mark.usefixtures("pods")
def test_user_who_may_list_one_namespace_sees_that_namespace_alone(api, start_ui, namespace, other):
    address = start_ui("--auth", "kubernetes")
    token = user_of(api, namespace, "reader", ("pods",))
    status, found = as_user(address, token)
    assert status == 200
    assert (found["namespaces"], found["kinds"], found["totals"]["objects"]) == ([namespace], ["pods"], 1)
    assert (found["status"], found["scope"]["restricted"]) == (None, True)
    assert other not in json.dumps(found).replace(namespace, "")
    admin = as_user(address, api.server.token)[1]
    assert {namespace, other} <= set(admin["namespaces"])
    assert admin["status"] is not None
    assert as_user(address, token, f"/api/v1/overview?namespace={other}")[0] == 403


@pytest.mark.usefixtures("pods")
def test_user_without_a_right_and_stranger_see_nothing(api, start_ui, namespace):
    address = start_ui("--auth", "kubernetes")
    assert get(address)[0] == 401
    assert as_user(address, "invented")[0] == 401
    status, found = as_user(address, user_of(api, namespace, "reader", ("services",)))
    assert (status, set(found)) == (403, {"error"})


def own_address() -> str:
    """An address of this machine to which the API server's proxy may connect: it refuses loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no route")
        found: str = probe.getsockname()[0]
        return found


def service_of(api, namespace: str, address: str, name: str, port: int) -> Callable[[str], str]:
    """Create the Service `ui` with one port before the Pod `one`; returns the path of a target of the proxy."""
    root = f"/api/v1/namespaces/{namespace}"
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    api.call("PATCH", f"{root}/pods/one/status", {"status": status})
    ports = [{"name": name, "port": 80, "targetPort": port}]
    api.call("POST", f"{root}/services", {"metadata": {"name": "ui"}, "spec": {"ports": ports}})
    pod = {"ip": address, "targetRef": {"kind": "Pod", "namespace": namespace, "name": "one"}}
    subset = {"addresses": [pod], "ports": [{"name": name, "port": port}]}
    api.call("POST", f"{root}/endpoints", {"metadata": {"name": "ui"}, "subsets": [subset]})
    return lambda target: f"{root}/services/{target}/proxy/api/v1/overview"


def behind_proxy(api, path: str, token: str, **headers: str) -> tuple[int, dict]:
    given = {"Authorization": f"Bearer {token}", **headers}
    request = urllib.request.Request(api.server.url + path, headers=given)
    try:
        with urllib.request.urlopen(request, context=api.server.ssl, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def certificate_options(folder: Path) -> tuple[str, ...]:
    """The options with which `ui` serves HTTPS, by a certificate that is not valid for the Pod's address."""
    chain, key = write_certificate(folder, "ui")
    return ("--tls-cert-file", str(chain), "--tls-private-key-file", str(key))


def let_read_proxy(api, namespace: str, account: tuple[str, str], name: str) -> None:
    """Give an account the right that examples/headlamp-plugin/README.md shows, on one target of the proxy."""
    rules = [{"apiGroups": [""], "resources": ["services/proxy"], "resourceNames": [name], "verbs": ["get"]}]
    api.call("POST", f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": "ui-proxy"}, "rules": rules})
    binding = {
        "metadata": {"name": "ui-proxy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ui-proxy"},
        "subjects": [{"kind": "ServiceAccount", "name": account[1], "namespace": account[0]}],
    }
    api.call("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)


HTTPS, HTTP = "https:ui:https", "ui:http"
"""What the plugin examples/headlamp-plugin asks for, in its order."""


@pytest.mark.usefixtures("pods")
@pytest.mark.parametrize("target", [HTTPS, HTTP])
def test_user_behind_the_proxy_of_the_api_server_sees_what_the_second_token_may_list(
    api, start_ui, namespace, other, tmp_path, target
):
    address = own_address()
    options = certificate_options(tmp_path / "tls") if target == HTTPS else ()
    url = start_ui("--auth", "kubernetes", "--host", address, *options)
    path_of = service_of(api, other, address, target.rpartition(":")[2], int(url.rpartition(":")[2]))
    path = path_of(target)
    token = user_of(api, namespace, "reader", ("pods",))
    second = {"X-Ttl-Authorization": f"Bearer {token}"}
    status, found = behind_proxy(api, path, token, **second)  # by the API server: no right on the proxy
    assert (status, found["kind"]) == (403, "Status")
    assert f'services "{target}" is forbidden' in found["message"]  # the plugin asks for the other target
    let_read_proxy(api, other, (namespace, "reader"), target)
    api.wait("the right and the endpoint", lambda: behind_proxy(api, path, token)[0] == 401)
    status, found = behind_proxy(api, path, api.server.token)
    assert (status, found.get("error", found)) == (401, "expected a bearer token of a user of this cluster, got none")
    status, found = behind_proxy(api, path, token, **second)
    assert (status, found["namespaces"], found["totals"]["objects"]) == (200, [namespace], 1)
    status, found = behind_proxy(api, path, api.server.token, **second)  # the rights of the second token count
    assert (status, found["namespaces"]) == (200, [namespace])
    assert behind_proxy(api, f"{path}?namespace={other}", token, **second)[0] == 403
    (absent,) = {HTTPS, HTTP} - {target}
    status, found = behind_proxy(api, path_of(absent), api.server.token, **second)  # the plugin asks for the other
    assert (status, found["message"]) == (503, f'no endpoints available for service "{absent}"')


@pytest.mark.usefixtures("pods")
@pytest.mark.parametrize("target", [HTTPS, HTTP])
def test_proxy_of_the_api_server_reports_a_pod_of_the_other_scheme(api, start_ui, other, tmp_path, target):
    address = own_address()
    options = certificate_options(tmp_path / "tls") if target == HTTP else ()
    url = start_ui("--auth", "kubernetes", "--host", address, *options)
    path_of = service_of(api, other, address, target.rpartition(":")[2], int(url.rpartition(":")[2]))

    def reported() -> str:
        status, found = behind_proxy(api, path_of(target), api.server.token)
        message: str = found["message"]
        return message if status == 503 and "no endpoints" not in message else ""

    message = api.wait("the endpoint", reported)
    assert message.startswith("error trying to reach service: ")  # the plugin must not ask for the other target


def test_account_of_the_component_reads_all_that_the_page_shows(api, server, tmp_path, start_ui, monkeypatch):
    monkeypatch.setenv("TTL_NAMESPACE", "ttl-after-finished")  # as in the settings of its Pod
    objects = composed("standalone", "kind-job", "kind-pod", "ui", base="namespace")
    kept = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap")
    for one in sorted((one for one in objects if one["kind"] in kept), key=lambda one: kept.index(one["kind"])):
        root = "/api/v1" if one["apiVersion"] == "v1" else RBAC
        place = one["metadata"].get("namespace")
        plural = f"{one['kind'].lower()}s"
        api.call("POST", f"{root}{f'/namespaces/{place}' if place else ''}/{plural}", one)
    role = f"{RBAC}/clusterroles/ttl-after-finished-ui"
    api.wait("aggregation", lambda: "jobs" in json.dumps(api.get(role).get("rules")))
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token_of(api, "ttl-after-finished", "ui")}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    address = start_ui("--auth", "kubernetes", "--kinds", "jobs,pods", "--kubeconfig", str(tmp_path / "kubeconfig"))
    status, found = as_user(address, api.server.token)
    assert (status, found["problems"]) == (200, [])
    assert found["status"]["breaker"]["deletionsInWindow"] == 0


def test_deletion_by_run_is_shown_with_its_lateness_the_leader_and_the_sweep(
    api, start_ui, start_run, namespace, monkeypatch
):
    monkeypatch.delenv("TTL_NAMESPACE", raising=False)  # the namespace of the Lease is then that of the Events
    monkeypatch.setenv("TTL_SWEEP_INTERVAL", "10s")  # only a sweep of all kinds writes an Event
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/x"}]}}
    spec = {"suspend": True, "ttlSecondsAfterFinished": 0, "template": template}
    api.call("POST", path, {"metadata": {"name": "gone"}, "spec": spec})
    at = format_instant(datetime.now(UTC).replace(microsecond=0))
    kinds = ("SuccessCriteriaMet", "Complete")
    conditions = [{"type": one, "status": "True", "lastTransitionTime": at} for one in kinds]
    status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": conditions}
    api.call("PATCH", f"{path}/gone/status", {"status": status})
    start_run(everywhere=True)
    monkeypatch.setenv("TTL_NAMESPACE", namespace)
    address = start_ui("--kinds", "jobs")

    def shown():
        found = get(address, f"/api/v1/overview?namespace={namespace}")[1]
        return found if found["deletions"]["rows"] and found["status"]["lastSweep"] else None

    found = api.wait("the deletion on the page", shown, 60)
    (row,) = found["deletions"]["rows"]
    assert (row["kind"], row["name"], row["reason"]) == ("Job", "gone", "expired")
    assert 0 <= row["latenessSeconds"] < 30
    assert [one["leads"] for one in found["status"]["leaders"] if one["namespace"] == namespace] == [True]
    assert found["status"]["breaker"]["open"] is False


def test_page_is_served_by_https_and_its_certificate_is_renewed(api, start_ui, namespace, tmp_path):
    token = user_of(api, namespace, "reader", ("pods",))
    files = write_certificate(tmp_path / "used", "one")
    options = ("--auth", "kubernetes", "--tls-cert-file", str(files[0]), "--tls-private-key-file", str(files[1]))
    address = start_ui(*options)
    assert address.startswith("https://127.0.0.1:")

    def status(ca: Path) -> int:
        path = f"{address}/api/v1/overview?namespace={namespace}"
        request = urllib.request.Request(path, headers={"Authorization": f"Bearer {token}"})
        trusting = ssl.create_default_context(cafile=ca)
        with urllib.request.urlopen(request, context=trusting, timeout=30) as answer:
            return answer.status

    assert status(files[0]) == 200
    renewed = write_certificate(tmp_path / "renewed", "two")
    for new, old in zip(renewed, files, strict=True):
        shutil.copy(new, old)
    assert status(renewed[0]) == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{address}/healthz", timeout=30)


def test_address_beyond_loopback_requires_tokens(server, tmp_path):
    run = Run(server, tmp_path, "ui", "--host", "0.0.0.0", "--port", "0")
    assert run.process.wait(30) == 2
    assert "requires --auth kubernetes" in run.text


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--tls-cert-file", "/none/tls.crt"), 2, "--tls-cert-file and --tls-private-key-file: expected both, or none"),
        (("--tls-cert-file", "/none/a", "--tls-private-key-file", "/none/b"), 1, "--tls-cert-file: /none/a cannot be"),
    ],
)
def test_certificate_that_cannot_be_served_is_one_error(server, tmp_path, options, code, words):
    run = Run(server, tmp_path, "ui", "--port", "0", *options)
    assert run.process.wait(30) == code
    assert words in run.text


def test_address_beyond_loopback_without_a_certificate_is_noted(server, tmp_path):
    run = Run(server, tmp_path, "ui", "--host", "0.0.0.0", "--port", "0", "--auth", "kubernetes")
    for _ in range(600):
        if "travel unencrypted" in run.text or run.process.poll() is not None:
            break
        time.sleep(0.05)
    assert "without --tls-cert-file, the tokens of the readers travel unencrypted" in run.text
    assert run.stop(signal.SIGINT) == 0
