"""The guards for Secrets and ConfigMaps, and the warning about announced deletions, on a real API server."""

import http.client
import json
from contextlib import closing
from typing import Any

import pytest
import yaml

from shared.adapters.config.carrier_files import read_carriers
from shared.core.usage.mark import announcement_patch, mark_patch, unmark_patch
from shared.devserver.real_servers import real_server
from shared.evaluation.usage_reader import UsageReader
from shared.installation.usage_guard import usage_guards
from tests.builders import NOW, ROOT
from tests.contract.guarded import BINDINGS, POLICIES, User, allow_all, connected_as, until
from tests.guarded_kinds import NAMESPACE
from tests.required import required_assets

USAGE = f"system:serviceaccount:{NAMESPACE}:usage"
DOMAIN = "ttlafterfinished.dev"
MERGE = "application/merge-patch+json"
MARKS = {
    f"{DOMAIN}/unused-since": "2026-01-01T00:00:00Z",
    f"{DOMAIN}/unused-hash": "9f86d081884c7d65",
    f"{DOMAIN}/deleted-after": "2026-01-02T00:00:00Z",
}
COMPONENTS = ROOT / "knative" / "components"


@pytest.fixture(scope="module")
def admin():
    with real_server(required_assets(), fsync=False) as server, closing(User(server)) as admin:
        allow_all(admin, USAGE)
        for made in usage_guards(NAMESPACE):
            admin.make(POLICIES if made.body["kind"] == "ValidatingAdmissionPolicy" else BINDINGS, made.body)
        warning = (COMPONENTS / "usage-warning" / "policies.yaml").read_text()
        for obj in yaml.safe_load_all(warning):
            admin.make(POLICIES if obj["kind"] == "ValidatingAdmissionPolicy" else BINDINGS, obj)
        with closing(User(server, USAGE)) as usage:
            for plural in ("configmaps", "secrets"):
                wait_until_in_force(usage, *make(admin, "default", plural, "probe"))
        yield admin


def wait_until_in_force(usage: User, path: str, probe: Any) -> None:
    change = {"data": {"a": "Yg=="}}
    until(lambda: usage.delete(f"{path}/probe", probe)[0] == 403)
    until(lambda: usage.ask("PATCH", f"{path}/probe?dryRun=All", change, media=MERGE)[0] == 403)


@pytest.fixture(scope="module")
def usage(admin):
    with closing(User(admin.server, USAGE)) as user:
        yield user


@pytest.fixture
def namespace(admin):
    made = admin.make("/api/v1/namespaces", {"metadata": {"generateName": "unused-"}})
    name = made["metadata"]["name"]
    account = {"metadata": {"name": "default"}}
    admin.make(f"/api/v1/namespaces/{name}/serviceaccounts", account)
    return name


def make(admin: User, namespace: str, plural: str, name: str, *, marks: Any = None, **obj: Any) -> tuple[str, Any]:
    path = f"/api/v1/namespaces/{namespace}/{plural}"
    metadata = {"name": name, **obj.pop("metadata", {})}
    metadata["annotations"] = {**(marks or {}), **metadata.get("annotations", {})}
    return path, admin.make(path, {"metadata": metadata, **obj})


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
def test_marked_and_announced_object_is_deleted(admin, usage, namespace, plural):
    path, obj = make(admin, namespace, plural, "old", marks=MARKS)
    assert usage.delete(f"{path}/old", obj, dry=False)[0] == 200


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
@pytest.mark.parametrize("missing", MARKS)
def test_object_without_all_marks_is_kept(admin, usage, namespace, plural, missing):
    marks = {name: at for name, at in MARKS.items() if name != missing}
    path, obj = make(admin, namespace, plural, "old", marks=marks)
    status, message = usage.delete(f"{path}/old", obj)
    assert (status, "mark: expected" in message) == (403, True)


def test_delete_without_preconditions_is_refused(admin, usage, namespace):
    path, _ = make(admin, namespace, "configmaps", "old", marks=MARKS)
    status, said = usage.ask("DELETE", f"{path}/old?dryRun=All")
    assert (status, "preconditions" in said["message"]) == (403, True)
    assert usage.ask("DELETE", path)[0] == 403


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "5c6b0d2e"}
KEPT = {
    "held": ("configmaps", {"metadata": {"annotations": {f"{DOMAIN}/hold": "audit"}}}),
    "owned": ("secrets", {"metadata": {"ownerReferences": [OWNER]}}),
    "immutable": ("configmaps", {"immutable": True}),
    "Helm release": ("configmaps", {"metadata": {"labels": {"owner": "helm"}}}),
    "type": ("secrets", {"type": "helm.sh/release.v1"}),
    "service account token": ("secrets", {"metadata": {"annotations": {"kubernetes.io/service-account.name": "x"}}}),
    "read by label": ("secrets", {"metadata": {"labels": {"argocd.argoproj.io/secret-type": "cluster"}}}),
    "the value of its label": ("secrets", {"metadata": {"labels": {"app.kubernetes.io/part-of": "argocd"}}}),
    "leader election": (
        "configmaps",
        {"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}},
    ),
}


@pytest.mark.parametrize("why", KEPT)
def test_object_that_is_never_collected_is_kept(admin, usage, namespace, why):
    plural, fields = KEPT[why]
    path, obj = make(admin, namespace, plural, "old", marks=MARKS, **json.loads(json.dumps(fields)))
    status, message = usage.delete(f"{path}/old", obj)
    assert (status, why in message) == (403, True), message


@pytest.mark.parametrize(
    ("plural", "name", "why"),
    [
        ("configmaps", "openshift-service-ca.crt", "cluster config"),
        ("configmaps", "argocd-cm", "read by name"),
        ("secrets", "argocd-secret", "read by name"),
        ("secrets", "velero-repo-credentials", "read by name"),
        ("configmaps", "ttl-after-finished-state", "read by name"),
    ],
)
def test_object_that_is_read_by_its_name_is_kept(admin, usage, namespace, plural, name, why):
    path, obj = make(admin, namespace, plural, name, marks=MARKS)
    status, message = usage.delete(f"{path}/{name}", obj)
    assert (status, why in message) == (403, True), message


def test_config_map_of_knative_is_kept(admin, usage, namespace):
    labels = {"app.kubernetes.io/part-of": "knative-serving"}
    path, obj = make(admin, namespace, "configmaps", "config-features", marks=MARKS, metadata={"labels": labels})
    assert usage.delete(f"{path}/config-features", obj)[0] == 403


def test_objects_of_system_and_opted_out_namespaces_are_kept(admin, usage, namespace):
    path, obj = make(admin, "kube-system", "configmaps", "old", marks=MARKS)
    assert "system namespace" in usage.delete(f"{path}/old", obj)[1]
    for annotation, value, why in (("unused", "false", "opted out"), ("exempt", "true", "exempt")):
        change = {"metadata": {"annotations": {f"{DOMAIN}/unused": None, f"{DOMAIN}/{annotation}": value}}}
        admin.patch(f"/api/v1/namespaces/{namespace}", change)
        path, obj = make(admin, namespace, "configmaps", f"old-{annotation}", marks=MARKS)

        def is_kept(path=path, obj=obj, why=why):
            return why in usage.delete(f"{path}/{obj['metadata']['name']}", obj)[1]

        until(is_kept)


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
def test_our_patches_are_admitted(admin, usage, namespace, plural):
    path, _ = make(admin, namespace, plural, "old", stringData={"a": "b"} if plural == "secrets" else {})
    for patch in (mark_patch(NOW, "0"), announcement_patch(NOW), unmark_patch()):
        assert usage.ask("PATCH", f"{path}/old", patch, media=MERGE)[0] == 200


@pytest.mark.parametrize(
    "patch",
    [
        {"data": {"a": "Yg=="}},
        {"immutable": True},
        {"metadata": {"finalizers": ["example.com/x"]}},
        {"metadata": {"labels": {"app": "web"}}},
        {"metadata": {"annotations": {f"{DOMAIN}/hold": "no"}}},
        {"metadata": {"annotations": {"app": "web"}}},
    ],
)
def test_any_other_change_is_refused(admin, usage, namespace, patch):
    path, _ = make(admin, namespace, "secrets", "old")
    status, said = usage.ask("PATCH", f"{path}/old", patch, media=MERGE)
    assert (status, "change: expected" in said["message"]) == (403, True), said


def test_shared_state_of_another_namespace_is_refused(admin, usage, namespace):
    name, change = "ttl-after-finished-state", {"data": {"brake": "{}"}}
    own = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    if admin.ask("GET", f"/api/v1/namespaces/{NAMESPACE}")[0] == 404:
        admin.make("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    admin.make(own, {"metadata": {"name": name}})
    admin.make(f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": {"name": name}})
    other, _ = make(admin, namespace, "configmaps", name)
    assert usage.ask("PATCH", f"{own}/{name}", change, media=MERGE)[0] == 200
    assert usage.ask("PATCH", f"{other}/{name}", change, media=MERGE)[0] == 403
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
    assert usage.ask("PATCH", secrets, {"stringData": {"brake": "{}"}}, media=MERGE)[0] == 403


def test_other_clients_are_not_bound(admin, namespace):
    path, _ = make(admin, namespace, "secrets", "old")
    admin.patch(f"{path}/old", {"data": {"a": "Yg=="}})
    assert admin.ask("DELETE", f"{path}/old")[0] == 200


# The warning about announced deletions


def pod(**spec: Any) -> Any:
    container = {"name": "main", "image": "nginx", **spec.pop("container", {})}
    return {"metadata": {"generateName": "web-"}, "spec": {"containers": [container], **spec}}


CONFIG_MAP_PODS = {
    "volume": pod(volumes=[{"name": "a", "configMap": {"name": "old"}}]),
    "projected": pod(volumes=[{"name": "a", "projected": {"sources": [{"configMap": {"name": "old"}}]}}]),
    "envFrom": pod(container={"envFrom": [{"configMapRef": {"name": "old"}}]}),
    "env": pod(
        container={"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "old", "key": "k"}}}]},
    ),
}
SECRET_PODS = {
    "volume": pod(volumes=[{"name": "a", "secret": {"secretName": "old"}}]),
    "imagePullSecrets": pod(imagePullSecrets=[{"name": "old"}]),
    "init": pod(
        initContainers=[{"name": "init", "image": "x", "envFrom": [{"secretRef": {"name": "old"}}]}],
    ),
}


def warnings_of(admin: User, namespace: str, body: Any) -> list[str]:
    """The warnings in the answer to the creation of a Pod."""
    server = admin.server
    host, port = server.url.removeprefix("https://").split(":")
    with closing(http.client.HTTPSConnection(host, int(port), context=server.ssl, timeout=30)) as connection:
        headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        connection.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        return answer.headers.get_all("Warning") or []


@pytest.mark.parametrize(
    ("plural", "body"),
    [*(("configmaps", one) for one in CONFIG_MAP_PODS.values()), *(("secrets", one) for one in SECRET_PODS.values())],
    ids=[*CONFIG_MAP_PODS, *SECRET_PODS],
)
def test_pod_with_an_announced_object_is_created_with_a_warning(admin, namespace, plural, body):
    path, _ = make(admin, namespace, plural, "old", marks=MARKS)
    make(admin, namespace, plural, "other")
    assert warnings_of(admin, namespace, body) == []
    admin.patch(f"{path}/old", announcement_patch(NOW))
    until(lambda: warnings_of(admin, namespace, body))
    [warning] = warnings_of(admin, namespace, body)
    assert "old was unused" in warning
    assert warnings_of(admin, namespace, pod()) == []


@pytest.mark.anyio
async def test_pass_needs_list_in_the_cluster_and_writes_need_a_role_in_the_namespace(admin, namespace):
    """The shipped rights, with the ClusterRole that changes and deletes bound in one namespace only."""
    _, obj = make(admin, namespace, "configmaps", "old", metadata={"labels": {f"{DOMAIN}/deletion-announced": "true"}})
    make(admin, namespace, "secrets", "old", marks=MARKS)
    make(admin, "default", "secrets", "elsewhere", marks=MARKS)
    roles = "/apis/rbac.authorization.k8s.io/v1"
    subject = {"kind": "ServiceAccount", "name": "lister", "namespace": NAMESPACE}
    written, listed = yaml.safe_load_all((COMPONENTS / "usage-rights" / "rbac.yaml").read_text())
    for role, bindings in ((written, f"namespaces/{namespace}/rolebindings"), (listed, "clusterrolebindings")):
        admin.make(f"{roles}/clusterroles", role)
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]}
        bound = {"metadata": {"generateName": "usage-"}, "roleRef": ref, "subjects": [subject]}
        admin.make(f"{roles}/{bindings}", bound)
    async with connected_as(admin, "lister") as cluster:
        reader = UsageReader(cluster, read_carriers())
        held = await reader.hold_targets()
        found = await reader.look(held.names(), held=held)
    assert found.of.find_problem() == ""
    assert found.observe(obj | {"kind": "ConfigMap"}).references == ()  # the binding of the warning is none
    with closing(User(admin.server, f"system:serviceaccount:{NAMESPACE}:lister")) as lister:
        mark = mark_patch(NOW, "0")
        for verb, body in (("GET", None), ("PATCH", mark), ("DELETE", None)):
            for place, name, status in ((namespace, "old", 200), ("default", "elsewhere", 403)):
                path = f"/api/v1/namespaces/{place}/secrets/{name}"
                assert lister.ask(verb, path, body, media=MERGE)[0] == status, (verb, path)
