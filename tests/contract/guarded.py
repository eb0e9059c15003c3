"""A real API server with the delete guard of every kind, and clients that are accounts of ours or an administrator."""

import http.client
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.requests import resource_path
from shared.core.kinds.rule import KindRule
from shared.devserver.real_servers import RealServer
from shared.installation.guards import guards, usernames
from tests.admission_policies import Verdict, evaluate
from tests.crds import BUILT_IN
from tests.guarded_kinds import (
    ENFORCE,
    EXPIRE,
    HOLD,
    MARK,
    NAMESPACE,
    STOPPED,
    Case,
    Object,
    change,
    delete_guard_of,
    deletion,
    described,
    rules_by_kind,
    stop_guard_of,
    stop_of,
)

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ANYTHING = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
TENANT = "tenant"
"""The namespace of the objects that are deleted and stopped."""

FEW = (
    "jobs.batch",
    "jobs.double.example",
    "pods",
    "pods.double.example",
    "pipelineruns.tekton.dev",
    "trainjobs.trainer.kubeflow.org",
)
_MERGE = "application/merge-patch+json"
_names = itertools.count()


@dataclass
class User:
    """Requests as one user, over one connection."""

    server: RealServer
    name: str = ""
    _connection: http.client.HTTPSConnection = field(init=False)

    def __post_init__(self) -> None:
        host, port = self.server.url.removeprefix("https://").split(":")
        self._connection = http.client.HTTPSConnection(host, int(port), context=self.server.ssl, timeout=90)

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None, *, media: str = "application/json") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.server.token}", "Content-Type": media}
        headers |= {"Impersonate-User": self.name} if self.name else {}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def make(self, path: str, body: Object) -> Object:
        status, made = self.ask("POST", path, body)
        assert status == 201, made
        return made

    def patch(self, path: str, body: Object) -> Object:
        status, patched = self.ask("PATCH", path, body, media=_MERGE)
        assert status == 200, patched
        return patched

    def change(self, path: str, patch: Object, *, dry: bool = True) -> tuple[int, str]:
        """The status and the message of a merge patch."""
        status, said = self.ask("PATCH", f"{path}?dryRun=All" if dry else path, patch, media=_MERGE)
        return status, said.get("message", "")

    def delete(self, path: str, obj: Object, *, dry: bool = True, **options: Any) -> tuple[int, str]:
        """The status and the message of a DELETE as our code sends it."""
        meta = obj["metadata"]
        preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        body = {"preconditions": preconditions, "propagationPolicy": "Background", **options}
        status, said = self.ask("DELETE", path, body | ({"dryRun": ["All"]} if dry else {}))
        return status, said.get("message", "")


def storable(obj: Object, name: str, namespace: str) -> Object:
    """The object as it can be created: the server sets some metadata, and starts every generation at 1."""
    meta = {**obj["metadata"], "name": name, "namespace": namespace}
    generation = meta.get("generation", 1)
    for key in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "generation"):
        meta.pop(key, None)
    marks = meta.get("annotations", {})
    if marks.get(STOPPED) == str(generation):
        is_own = marks.get(MARK, "") >= obj["metadata"].get("creationTimestamp", "")
        meta["annotations"] = {**marks, STOPPED: "1", **({MARK: "2100-01-01T00:00:00Z"} if is_own else {})}
    status = _observing(obj.get("status"), generation)
    if isinstance(status, dict) and isinstance(conditions := status.get("conditions"), list):
        status = {**status, "conditions": [_observing(one, generation) for one in conditions]}
    return {**obj, "metadata": meta} | ({"status": status} if "status" in obj else {})


def _observing(reported: Any, generation: int) -> Any:
    """A status, or a condition, that is as far behind generation 1 as it was behind that generation."""
    if not isinstance(reported, dict) or not isinstance(reported.get("observedGeneration"), int):
        return reported
    return {**reported, "observedGeneration": reported["observedGeneration"] - generation + 1}


def crd_of(rules: list[KindRule]) -> Object:
    """Takes anything, and writes the status like any other field."""
    first = rules[0]
    names = dict.fromkeys(version.rpartition("/")[2] for rule in rules for version in rule.api_versions)
    versions = [{"name": name, "served": True, "storage": not at, "schema": ANYTHING} for at, name in enumerate(names)]
    return {
        "metadata": {"name": first.name, "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": first.group,
            "scope": first.scope,
            "names": {"kind": first.kind, "plural": first.plural, "singular": first.kind.lower()},
            "versions": versions,
        },
    }


def path_of(rule: KindRule, obj: Object) -> str:
    """The path of the object's kind, in the object's own version."""
    served = rule.model_copy(update={"api_versions": (obj["apiVersion"],)})
    return resource_path(served, obj["metadata"].get("namespace", "") if rule.scope == "Namespaced" else "")


@contextmanager
def guarded(
    server: RealServer, kinds: Mapping[str, list[KindRule]] | None = None, *, is_shared: bool = False
) -> Iterator[User]:
    """An administrator of a server that has all kinds, or those, and the guards of each in force.

    Args:
        server: The server.
        kinds: The kinds by name; None for all.
        is_shared: Whether all that this makes is removed at the end.
    """
    with closing(User(server)) as admin, closing(User(server, EXPIRE)) as expire:
        kinds = rules_by_kind() if kinds is None else kinds
        before = {path: _names_of(admin, path) for path in (BINDINGS, POLICIES, DEFINITIONS, _ROLE_BINDINGS)}
        try:
            yield from _guarding(admin, expire, kinds)
        finally:
            if is_shared:
                _remove(admin, kinds, before)


@contextmanager
def stopping(
    server: RealServer, kinds: Mapping[str, list[KindRule]] | None = None, *, is_shared: bool = False
) -> Iterator[User]:
    """`guarded`, with the stop guards in force, too."""
    with guarded(server, kinds, is_shared=is_shared) as admin, closing(User(server, ENFORCE)) as enforce:
        path, _ = make_job(admin, TENANT, is_finished=False, annotations={HOLD: "a probe"})
        until(lambda: enforce.change(path, {"spec": {"suspend": True}})[0] == 403)
        yield admin


def compare_deletes(admin: User, expire: User, cases: Iterable[Case]) -> None:
    """Assert that the API server admits and refuses the same DELETEs as the evaluation in this process, and both."""
    statuses, differences = set(), []
    for case in cases:
        path, made = store(admin, case)
        answer = expire.delete(path, made)
        verdict = evaluate(delete_guard_of(case.rule), deletion(case.rule, made))
        differences += difference(case, verdict, *answer)
        statuses.add(answer[0])
    assert (differences, statuses) == ([], {200, 403})


def compare_stops(admin: User, enforce: User, cases: Iterable[Case]) -> None:
    """Likewise of stops, and of the same stops with another change."""
    statuses, differences = set(), []
    for case in cases:
        path, made = store(admin, case)
        stop = stop_of(case.rule, made)
        for patch in (stop, {**stop, "status": {**stop.get("status", {}), "forged": "x"}}):
            answer = enforce.change(path, patch)
            verdict = evaluate(stop_guard_of(case.rule), change(case.rule, made, patch))
            differences += difference(case, verdict, *answer)
            statuses.add(answer[0])
    assert (differences, statuses) == ([], {200, 403})


def difference(case: Case, verdict: Verdict, status: int, said: str) -> list[str]:
    """How an answer of the API server differs from a verdict, which knows another message and status of an error."""
    is_same = status in (403, 422) if verdict.is_error else (status, verdict.message in said) == (verdict.status, True)
    return [] if is_same else [f"{described(case, verdict)}: the API server: {status} {said}"]


def store(admin: User, case: Case) -> tuple[str, Object]:
    """The path of a fixture on the API server, and the object."""
    obj = storable(case.obj, f"x{next(_names)}", TENANT)
    path = path_of(case.rule, obj)
    return f"{path}/{obj['metadata']['name']}", admin.make(path, obj)


def _remove(admin: User, kinds: Mapping[str, list[KindRule]], before: Mapping[str, set[str]]) -> None:
    for rules in kinds.values():
        _remove_finalizers(admin, rules[0])
    for path, names in before.items():
        for name in _names_of(admin, path) - names:
            admin.ask("DELETE", f"{path}/{name}")
    until(lambda: _names_of(admin, DEFINITIONS) == before[DEFINITIONS])


def _guarding(admin: User, expire: User, kinds: Mapping[str, list[KindRule]]) -> Iterator[User]:
    for rules in kinds.values():
        if rules[0].group not in BUILT_IN:
            admin.make(DEFINITIONS, crd_of(rules))
        for made in guards(rules, NAMESPACE):
            is_policy = made.body["kind"] == "ValidatingAdmissionPolicy"
            admin.make(POLICIES if is_policy else BINDINGS, made.body)
    allow_all(admin, *usernames(NAMESPACE))
    admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": TENANT}})  # 409 if another file has made it
    for rules in kinds.values():
        _wait_until_in_force(admin, expire, rules[0])
    _wait_until_last_is_in_force(admin, expire)
    yield admin


def _remove_finalizers(admin: User, rule: KindRule) -> None:
    """A CRD goes with its last object, and some fixtures have finalizers."""
    if rule.group not in BUILT_IN and rule.name in _names_of(admin, DEFINITIONS):
        for obj in admin.ask("GET", resource_path(rule, ""))[1].get("items", ()):
            if obj["metadata"].get("finalizers"):
                path = f"{path_of(rule, obj)}/{obj['metadata']['name']}"
                admin.ask("PATCH", path, {"metadata": {"finalizers": None}}, media=_MERGE)


def few_kinds() -> dict[str, list[KindRule]]:
    """The kinds of the shared API server: two that are built in, each with its double, and two custom resources."""
    return {name: rules for name, rules in rules_by_kind().items() if name in FEW}


def _names_of(admin: User, path: str) -> set[str]:
    return {one["metadata"]["name"] for one in admin.ask("GET", path)[1]["items"]}


def allow_all(admin: User, *names: str) -> None:
    """All rights: what is refused is refused by the guard."""
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "User", "name": name, "apiGroup": group} for name in names]
    admin.make(_ROLE_BINDINGS, {"metadata": {"generateName": "all-"}, "roleRef": role, "subjects": subjects})


def _wait_until_in_force(admin: User, expire: User, rule: KindRule) -> None:
    """A policy is enforced one or two seconds after its creation; no event reports when."""
    path = _probe_of(admin, rule)
    until(lambda: path is None or expire.ask("DELETE", f"{path}?dryRun=All")[0] == 403)


def _wait_until_last_is_in_force(admin: User, expire: User) -> None:
    """The API server takes policies over in the order of their creation, so that after this one all are in force."""
    last, names = {"metadata": {"name": "last"}}, f"request.userInfo.username == '{EXPIRE}'"
    config_maps = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [config_maps]},
        "matchConditions": [{"name": "of-expire", "expression": names}],
        "validations": [{"expression": "false"}],
    }
    admin.make(POLICIES, last | {"spec": spec})
    admin.make(BINDINGS, last | {"spec": {"policyName": "last", "validationActions": ["Deny"]}})
    admin.ask("POST", f"/api/v1/namespaces/{TENANT}/configmaps", last)
    until(lambda: expire.ask("DELETE", f"/api/v1/namespaces/{TENANT}/configmaps/last?dryRun=All")[0] in (403, 422))


def _probe_of(admin: User, rule: KindRule) -> str | None:
    """The path of an object that has not finished; None for a kind that is built in, and that no test makes."""
    if rule.name == "jobs.batch":
        return make_job(admin, TENANT, is_finished=False)[0]
    if rule.name == "pods":
        return make_pod(admin, TENANT, "Running")[0]
    if rule.group in BUILT_IN:
        return None
    probe = {"apiVersion": rule.api_version, "kind": rule.kind, "metadata": {"name": "probe", "namespace": TENANT}}
    path = path_of(rule, probe)
    until(lambda: admin.ask("POST", path, probe)[0] in (201, 409))
    return f"{path}/probe"


def until(true: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def make_job(admin: User, namespace: str, *, is_finished: bool = True, **metadata: Any) -> tuple[str, Object]:
    """A Job as the API server itself knows it, with its path."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    spec = {"managedBy": "example.com/contract", "template": template}  # not by the Job controller
    job = admin.make(path, {"metadata": {"generateName": "job-", **metadata}, "spec": spec})
    path = f"{path}/{job['metadata']['name']}"
    at = job["metadata"]["creationTimestamp"]
    kinds = ("SuccessCriteriaMet", "Complete")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds]
    status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": conditions}
    return path, admin.patch(f"{path}/status", {"status": status if is_finished else {"startTime": at, "active": 1}})


def make_pod(admin: User, namespace: str, phase: str) -> tuple[str, Object]:
    """A Pod as the API server itself knows it, with its path."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    pod = admin.make(path, {"metadata": {"generateName": "pod-"}, "spec": spec})
    path = f"{path}/{pod['metadata']['name']}"
    return path, admin.patch(f"{path}/status", {"status": {"phase": phase}})


@asynccontextmanager
async def connected_as(admin: User, name: str) -> AsyncIterator[KubernetesCluster]:
    """The cluster by a token of a ServiceAccount of the installation."""
    folder = f"/api/v1/namespaces/{NAMESPACE}"
    admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    admin.ask("POST", f"{folder}/serviceaccounts", {"metadata": {"name": name}})
    token = admin.make(f"{folder}/serviceaccounts/{name}/token", {"spec": {}})["status"]["token"]
    config = json.loads(admin.server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = admin.server.home / f"kubeconfig-{name}"
    path.write_text(json.dumps(config))
    cluster = await connect(kubeconfig=str(path))
    try:
        yield cluster
    finally:
        await cluster.close()
