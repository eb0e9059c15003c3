"""The guard rails on a real API server: what is refused, what is warned about, and what must never be held up."""

import json
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.adapters.kubernetes.requests import resource_path
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import TtlField
from shared.core.ttl.annotations import OF_NAMESPACES, OF_OBJECTS
from shared.core.values.objects import ANNOTATION_DOMAIN, parse_instant
from shared.core.values.timing import parse_duration
from shared.devserver.real_servers import RealServer
from tests.builders import kind_rules, not_none
from tests.crds import BUILT_IN, crds_of

KUBECTL = shutil.which("kubectl")
COMPONENT = Path(__file__).parents[2] / "knative/components/guardrails"
HOLDS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/ttl-after-finished-holds"
BOUNDED = {"max-ttl": "7d", "max-active-deadline": "2d"}
HOLDERS = "kubeadm:cluster-admins"

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
Object = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    status: int
    said: str
    warnings: tuple[str, ...]
    body: Any

    @property
    def is_taken(self) -> bool:
        return self.status < 300


@dataclass(frozen=True)
class User:
    """A user with all rights: only the guard rails refuse a request."""

    server: RealServer
    trust: ssl.SSLContext
    name: str = "ann"
    group: str = ""

    def ask(self, method: str, path: str, body: Any = None, *, dry: bool = False, media: str = "") -> Answer:
        headers = {
            "Authorization": f"Bearer {self.server.token}",
            "Content-Type": media or ("application/merge-patch+json" if method == "PATCH" else "application/json"),
            "Impersonate-User": self.name,
            **({"Impersonate-Group": self.group} if self.group else {}),
        }
        request = urllib.request.Request(
            f"{self.server.url}{path}{'?dryRun=All' if dry else ''}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
        )
        try:
            answer = urllib.request.urlopen(request, context=self.trust, timeout=30)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read()
            # A path that is not served yet is answered by a text.
            is_json = answer.headers.get_content_type() == "application/json"
            reported = json.loads(text) if is_json else {"message": text.decode(errors="replace")}
            return Answer(
                answer.status,
                reported.get("message", "") if answer.status >= 300 else "",
                tuple(answer.headers.get_all("Warning", [])),
                reported,
            )

    def create(self, obj: Object, *, dry: bool = True) -> Answer:
        return self.ask("POST", folder_of(obj), obj, dry=dry)

    def patch(self, obj: Object, change: Object, *, dry: bool = True, subresource: str = "") -> Answer:
        return self.ask("PATCH", f"{path_of(obj)}{subresource}", change, dry=dry)


PLURALS = {
    "ConfigMap": "configmaps",
    "Pod": "pods",
    "Namespace": "namespaces",
    "Job": "jobs",
    "CronJob": "cronjobs",
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "TrainJob": "trainjobs",
    "ClusterTrainingRuntime": "clustertrainingruntimes",
    "Thing": "things",
    "PyTorchJob": "pytorchjobs",
}
CLUSTER_SCOPED = {"Namespace", "ClusterTrainingRuntime"}


def folder_of(obj: Object) -> str:
    version = obj["apiVersion"]
    within = "" if obj["kind"] in CLUSTER_SCOPED else f"/namespaces/{obj['metadata'].get('namespace', 'default')}"
    return f"/{'apis' if '/' in version else 'api'}/{version}{within}/{PLURALS[obj['kind']]}"


def path_of(obj: Object) -> str:
    return f"{folder_of(obj)}/{obj['metadata']['name']}"


def ours(said: dict[str, str]) -> dict[str, str]:
    return {f"{ANNOTATION_DOMAIN}/{name}": text for name, text in said.items()}


def thing(kind: str, said: dict[str, str] | None = None, name: str = "x", **more: Any) -> Object:
    """An object of a kind, with our annotations; `more` is merged in at the top."""
    obj: Object = {**SHAPES[kind], **more}
    return {
        **obj,
        "kind": kind,
        "metadata": {"name": name, "annotations": ours(said or {}), **more.get("metadata", {})},
    }


def pods(said: dict[str, str] | None = None) -> Object:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": {"annotations": ours(said or {}), "labels": {"app": "x"}}, "spec": spec}


def job_spec(said: dict[str, str] | None = None, **more: Any) -> Object:
    return {"template": pods(said), **more}


def cron_spec(job: dict[str, str] | None = None, pod: dict[str, str] | None = None, **more: Any) -> Object:
    template = {"metadata": {"annotations": ours(job or {})}, "spec": job_spec(pod, **more)}
    return {"schedule": "@daily", "jobTemplate": template}


def serving(kind: str, said: dict[str, str]) -> Object:
    """A kind of `apps` whose template of Pods has our annotations."""
    template = {**pods(said), "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


SHAPES: dict[str, Object] = {
    "ConfigMap": {"apiVersion": "v1"},
    "Namespace": {"apiVersion": "v1"},
    "Pod": {"apiVersion": "v1", "spec": pods()["spec"]},
    "Job": {"apiVersion": "batch/v1", "spec": job_spec()},
    "CronJob": {"apiVersion": "batch/v1", "spec": cron_spec()},
    "TrainJob": {"apiVersion": "trainer.kubeflow.org/v1alpha1", "spec": {"runtimeRef": {"name": "torch"}}},
    "ClusterTrainingRuntime": {"apiVersion": "trainer.kubeflow.org/v1alpha1", "spec": {}},
    "PyTorchJob": {"apiVersion": "kubeflow.org/v1", "spec": {}},
    "Thing": {"apiVersion": "example.com/v1", "spec": {}},
}
ANY_KIND = ["ConfigMap", "Namespace", "Pod", "Job", "CronJob", "TrainJob", "Thing"]


def crd(group: str, kind: str, versions: dict[str, Object]) -> Object:
    names = {"kind": kind, "plural": PLURALS[kind], "singular": kind.lower()}
    served = [
        {
            "name": name,
            "served": True,
            "storage": not at,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        }
        for at, (name, spec) in enumerate(versions.items())
    ]
    scope = "Cluster" if kind in CLUSTER_SCOPED else "Namespaced"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": served},
    }


ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
"""No type: also what is no mapping."""
WITHOUT_TIMES = {"type": "object", "properties": {"runtimeRef": {"type": "object", **ANYTHING}}}
CRDS = [
    crd("trainer.kubeflow.org", "TrainJob", {"v1alpha1": {"type": "object", **ANYTHING}, "v1": WITHOUT_TIMES}),
    crd("trainer.kubeflow.org", "ClusterTrainingRuntime", {"v1alpha1": {"type": "object", **ANYTHING}}),
    crd("kubeflow.org", "PyTorchJob", {"v1": {"type": "object", **ANYTHING}}),
    crd("example.com", "Thing", {"v1": ANYTHING}),
]
ALL_RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "all-rights"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [
        {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"} for name in ("ann", "system:bob")
    ],
}


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """Those that write and delete what people annotate."""
    return ["job-controller", "cronjob-controller", "garbage-collector-controller", "namespace-controller"]


@pytest.fixture(scope="module")
def ann(server: RealServer) -> User:
    """With all rights and in none of the groups; the guard rails are in force."""
    kubectl(server, "create", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": [*CRDS, ALL_RIGHTS]})
    kubectl(server, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    kubectl(server, "create", "-f", "-", given=thing("Namespace", BOUNDED, "bounded"))
    kubectl(server, "apply", "-k", str(COMPONENT))
    return in_force(User(server, server.ssl))


def kubectl(server: RealServer, *arguments: str, given: Any = None) -> None:
    command = [not_none(KUBECTL), f"--kubeconfig={server.kubeconfig}", *arguments]
    text = None if given is None else json.dumps(given)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def in_force(user: User) -> User:
    """Wait until the API server enforces each policy: it does so one or two seconds after the creation."""
    probes = [
        lambda: not user.create(thing("ConfigMap", {"ttl": "soon"})).is_taken,
        lambda: not user.create(thing("ConfigMap", {"hold": "why"})).is_taken,
        lambda: user.create(thing("ConfigMap", {"ttl": "1s"})).warnings,
        lambda: user.create(thing("ConfigMap", {"tttl": "1h"})).warnings,
        lambda: user.create(thing("Job", spec=job_spec({"ttl": "1d"}))).warnings,
        lambda: not user.create(thing("TrainJob", spec={"ttlSecondsAfterFinished": -1})).is_taken,
        lambda: not user.create(runtime(pod={"restartPolicy": "Always"})).is_taken,
    ]
    for probe in probes:
        wait(probe)
    return user


def wait(true: Any) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def chief(ann: User) -> User:
    return User(ann.server, ann.trust, "ann", HOLDERS)


@pytest.fixture
def controller(ann: User) -> User:
    return User(ann.server, ann.trust, "system:bob")


def runtime(jobset: Object | None = None, job: Object | None = None, pod: Object | None = None, **spec: Any) -> Object:
    """A runtime whose template has one Job: what its JobSet, Job and Pod specs say more."""
    replicated = {"name": "node", "template": {"spec": {**(job or {}), "template": {"spec": pod or {}}}}}
    template = {"spec": {**(jobset or {}), "replicatedJobs": [replicated]}}
    return thing("ClusterTrainingRuntime", spec={"template": template, **spec})


# Values


@pytest.mark.parametrize("kind", ANY_KIND)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ttl", "1 hour"),
        ("ttl", "-5"),
        ("ttl", "30m1h"),
        ("ttl-succeeded", "1h1h"),
        ("ttl-failed", "36501d"),
        ("expire-at", "tomorrow"),
        ("expire-at", "2026-02-29T00:00:00Z"),
        ("active-deadline", "soon"),
        ("active-deadline", "0"),
        ("active-deadline", "0h0m"),
        ("active-deadline", "-1"),
        ("active-deadline", "1" + "0" * 20),
        ("pending-deadline", "soon"),
        ("pending-deadline", "0"),
    ],
)
def test_unreadable_annotation_is_refused_on_any_kind(kind, name, text, ann):
    answer = ann.create(thing(kind, {name: text}))
    assert answer.status == 422
    form = "2026-01-02T03:04:05Z" if name == "expire-at" else "1h30m"
    assert ("more than 0" in answer.said) == name.endswith("-deadline")
    assert f"annotation {ANNOTATION_DOMAIN}/{name}: expected " in answer.said
    assert form in answer.said
    assert f'got "{text}"' in answer.said


@pytest.mark.parametrize("kind", ANY_KIND)
@pytest.mark.parametrize(
    "said", [{"ttl": "1h30m"}, {"ttl": "3600"}, {"ttl": "never"}, {"expire-at": "2026-01-02T03:04:05+01:00"}, {}]
)
def test_valid_annotation_is_accepted_on_any_kind(kind, said, ann):
    assert ann.create(thing(kind, said)).is_taken


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [
        ({"default-ttl": "1d", "default-ttl-succeeded": "never", "default-ttl-failed": "2w"}, True),
        ({"max-ttl": "30d", "exempt": "false"}, True),
        ({"default-ttl": "1 day"}, False),
        ({"default-ttl-succeeded": "-1"}, False),
        ({"default-ttl-failed": ""}, False),
        ({"max-ttl": "never"}, False),
        ({"max-ttl": "1.5h"}, False),
        ({"default-active-deadline": "6h", "max-active-deadline": "2d"}, True),
        ({"default-active-deadline": "never"}, True),
        ({"default-active-deadline": "0s"}, False),
        ({"max-active-deadline": "0"}, False),
        ({"max-active-deadline": "never"}, False),
        ({"default-pending-deadline": "1h"}, True),
        ({"default-pending-deadline": "0"}, False),
        ({"exempt": "yes"}, False),
        ({"exempt": "True"}, False),
    ],
)
def test_annotation_of_a_namespace_is_accepted_only_if_valid(said, is_taken, chief):
    answer = chief.create(thing("Namespace", said))
    assert answer.is_taken == is_taken
    if not is_taken:
        ((name, text),) = said.items()
        assert f"annotation {ANNOTATION_DOMAIN}/{name}: expected " in answer.said
        assert ("never" in answer.said) == (name.startswith("default") or text == "never")


@pytest.mark.parametrize(
    ("obj", "where"),
    [
        (thing("Job", spec=job_spec({"ttl": "soon"})), "spec.template"),
        (thing("CronJob", spec=cron_spec(job={"ttl": "soon"})), "spec.jobTemplate"),
        (thing("CronJob", spec=cron_spec(pod={"ttl": "soon"})), "spec.jobTemplate.spec.template"),
    ],
    ids=["job", "cronjob's job", "cronjob's pod"],
)
def test_unreadable_annotation_in_a_template_is_refused(obj, where, ann):
    assert f"/ttl in {where}: expected" in ann.create(obj).said


PATCHES = {
    "merge": ("application/merge-patch+json", lambda meta: {"metadata": meta}),
    "strategic": ("application/strategic-merge-patch+json", lambda meta: {"metadata": meta}),
    "json": (
        "application/json-patch+json",
        lambda meta: [{"op": "add", "path": "/metadata/annotations", "value": meta["annotations"]}],
    ),
}


@pytest.mark.parametrize("kind", ["Pod", "Job", "Thing"])
def test_annotation_is_checked_in_every_kind_of_write(kind, ann):
    obj = thing(kind, {"ttl": "1h"}, "written")
    assert ann.create(obj, dry=False).is_taken
    bad, good = ({"annotations": ours({"ttl": text})} for text in ("soon", "2h"))
    for form, (media, change) in PATCHES.items():
        if (form, kind) != ("strategic", "Thing"):  # it has no such patches
            assert "expected seconds" in ann.ask("PATCH", path_of(obj), change(bad), dry=True, media=media).said
            assert ann.ask("PATCH", path_of(obj), change(good), dry=True, media=media).is_taken
    there = ann.ask("GET", path_of(obj)).body
    for meta, is_taken in ((bad, False), (good, True)):
        put = {**there, "metadata": {**there["metadata"], **meta}}
        assert ann.ask("PUT", path_of(obj), put, dry=True).is_taken == is_taken
        for name in ("written", "applied"):  # that is there, and that is not
            applied = {**obj, "metadata": {"name": name, **meta}}
            path = f"{folder_of(obj)}/{name}?fieldManager=ann&force=true&dryRun=All"
            assert ann.ask("PATCH", path, applied, media="application/apply-patch+yaml").is_taken == is_taken
        generated = {**obj, "metadata": {"generateName": "written-", **meta}}
        assert ann.create(generated).is_taken == is_taken
    assert ann.ask("DELETE", path_of(obj)).is_taken


def test_write_to_a_scale_changes_no_annotation(ann):
    pod = {**pods(), "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": pod}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "scaled"}, "spec": spec}
    assert ann.create(deployment, dry=False).is_taken
    change = {"metadata": {"annotations": ours({"ttl": "soon"})}, "spec": {"replicas": 1}}
    assert ann.patch(deployment, change, subresource="/scale", dry=False).is_taken
    assert "annotations" not in ann.ask("GET", path_of(deployment)).body["metadata"]
    assert ann.ask("DELETE", path_of(deployment)).is_taken


@pytest.mark.parametrize("text", ["9" * 100_000, "1h" * 50_000, "\n", "é" * 70, '"', "1h\n", "\x1b[31m", "\u2028"])
def test_message_is_one_short_line_for_any_value(text, ann):
    answer = ann.create(thing("ConfigMap", {"ttl": text, "expire-at": text}))
    assert answer.status == 422
    assert "expected seconds" in answer.said
    assert len(answer.said) < 600
    assert answer.said.isprintable()


def test_object_of_an_unexpected_shape_is_checked(ann):
    assert ann.create(thing("Thing", {"ttl": "1h"}, spec="text")).is_taken
    assert not ann.create(thing("Thing", {"ttl": "soon"}, spec="text")).is_taken
    assert not ann.create(thing("Thing", {"ttl": "soon"}, spec={"template": "text"})).is_taken


number = st.integers(0, 40_000).map(str) | st.sampled_from(["0", "007", "9" * 12, "9" * 13, "1.5", "-1", "+1", "1_0"])
parts = st.lists(st.tuples(number, st.sampled_from(["w", "d", "h", "m", "s", "", " ", "H", "ms"])), max_size=6)
durations = (
    parts.map(lambda all_: "".join(count + unit for count, unit in all_))
    | parts.map(lambda all_: "".join(n + u for n, u in sorted(all_, key=lambda one: "wdhms".find(one[1]))))
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
)
two = st.integers(0, 99).map("{:02}".format)


def near(*most: str) -> st.SearchStrategy[str]:
    """Mostly what is right, or nearly so."""
    return st.sampled_from(most) | two


instants = st.builds(
    "{}-{}-{}{}{}:{}:{}{}{}".format,
    st.sampled_from(["2026", "2024", "1900", "2000", "0001", "0000", "9999", "226", "20260"]),
    near("01", "02", "04", "12"),
    near("01", "28", "29", "30", "31"),
    st.sampled_from(["T", "T", "T", "t", " "]),
    near("00", "23", "24"),
    near("00", "59", "60"),
    near("00", "59", "60"),
    st.sampled_from(["", "", ".5", ".123456789012", ".", ",5"]),
    st.sampled_from(["Z", "Z", "z", "", "+00:00", "-00:00", "+23:59", "-23:59", "+24:00", "+01:60", "+0100", "+01"]),
)
on_a_real_server = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def reads(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


@on_a_real_server
@given(durations)
@example("36500d")
@example("36500d1s")
@example("3153600000")
@example("3153600001")
@example("1w2d3h4m5s")
@example("1h30")
@example("1" * 12 + "w")
@example("000000000001w000000000001d000000000001h000000000001m000000000001s")
@example("٣h")
def test_duration_is_accepted_exactly_if_parse_duration_reads_it(ann, text):
    taken = ann.create(thing("ConfigMap", {"ttl": text})).is_taken
    assert taken == (text == "never" or reads(parse_duration, text))


@on_a_real_server
@given(instants)
@example("0001-01-01T00:00:00+00:01")
@example("0001-01-01T00:01:00+00:01")
@example("0001-01-01T23:58:00+23:59")
@example("9999-12-31T23:59:59-00:01")
@example("9999-12-31T23:58:59.999-00:01")
@example("0000-12-31T23:59:59-23:59")
@example("2026-01-02T03:04:05+00:99")
@example("2026-01-02T03:04:05." + "1" * 900 + "Z")
def test_instant_is_accepted_exactly_if_parse_instant_reads_it(ann, text):
    taken = ann.create(thing("ConfigMap", {"expire-at": text})).is_taken
    assert taken == reads(parse_instant, text)


# The maximum of a namespace


def within(namespace: str, kind: str, said: dict[str, str]) -> Object:
    return thing(kind, metadata={"namespace": namespace, "annotations": ours(said)})


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [
        ({"ttl": "7d"}, True),
        ({"ttl": "168h"}, True),
        ({"ttl": "604801"}, False),
        ({"ttl": "8d"}, False),
        ({"ttl-succeeded": "1h", "ttl-failed": "2w"}, False),
        ({"expire-at": "2999-01-01T00:00:00Z"}, True),  # how long after the end is known only then: it is clamped
    ],
)
def test_ttl_above_the_maximum_of_the_namespace_is_refused(said, is_taken, ann):
    answer = ann.create(within("bounded", "Pod", said))
    assert answer.is_taken == is_taken
    if not is_taken:
        assert "is longer than 7d, the maximum in namespace bounded" in answer.said


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [
        ({"active-deadline": "2d"}, True),
        ({"active-deadline": "3d"}, False),
        ({"active-deadline": "3d", "ttl": "3d"}, False),
        ({"active-deadline": "1d", "ttl": "3d"}, True),
        ({"pending-deadline": "30d"}, True),
    ],
)
def test_deadline_above_the_maximum_of_the_namespace_is_refused(said, is_taken, ann):
    answer = ann.create(within("bounded", "Job", said))
    assert answer.is_taken == is_taken
    if not is_taken:
        assert "active-deadline: 3d is longer than 2d, the maximum in namespace bounded" in answer.said
        assert answer.said.endswith(f"(its annotation {ANNOTATION_DOMAIN}/max-active-deadline)")


def test_endless_deadline_requires_a_listed_group_where_a_maximum_is_set(ann, chief):
    assert ann.create(within("default", "Job", {"active-deadline": "never"})).is_taken
    refused = ann.create(within("bounded", "Job", {"active-deadline": "never"}))
    assert refused.status == 403
    assert "active-deadline: never is more than 2d, the maximum in namespace bounded" in refused.said
    assert chief.create(within("bounded", "Job", {"active-deadline": "never"})).is_taken


@pytest.mark.parametrize(
    ("text", "is_taken"), [("stop", True), ("suspend", True), ("delete", True), ("Delete", False), ("", False)]
)
def test_action_at_the_deadline_is_stop_suspend_or_delete(text, is_taken, ann):
    spec = job_spec({"on-deadline": text, "owner": "ignore"})
    for obj, where in ((thing("Job", {"on-deadline": text}), ""), (thing("Job", spec=spec), " in spec.template")):
        answer = ann.create(obj)
        assert answer.is_taken == is_taken
        assert is_taken or f"on-deadline{where}: expected stop, suspend or delete; got" in answer.said


def test_unreadable_ttl_is_not_compared_with_the_maximum(ann):
    said = ann.create(within("bounded", "Pod", {"ttl": "9" * 40 + "h"})).said
    assert "expected seconds" in said


def test_never_requires_a_listed_group_where_a_maximum_is_set(ann, chief):
    assert ann.create(within("default", "Pod", {"ttl": "never"})).is_taken
    refused = ann.create(within("bounded", "Pod", {"ttl": "never"}))
    assert refused.status == 403
    assert "never is more than 7d, the maximum in namespace bounded" in refused.said
    assert chief.create(within("bounded", "Pod", {"ttl": "never"})).is_taken


@pytest.mark.parametrize(
    ("kind", "spec", "where"),
    [
        ("Job", job_spec, "spec.template"),
        ("CronJob", lambda said: cron_spec(job=said), "spec.jobTemplate"),
        ("CronJob", lambda said: cron_spec(pod=said), "spec.jobTemplate.spec.template"),
    ],
    ids=["job's pod", "cronjob's job", "cronjob's pod"],
)
def test_ttl_in_a_template_above_the_maximum_is_refused(kind, spec, where, ann, chief):
    """An object that a controller creates from it is not checked, and nothing shortens `never`."""
    made = {
        said: thing(kind, metadata={"namespace": "bounded"}, spec=spec({"ttl": said})) for said in ("never", "8d", "7d")
    }
    assert f"/ttl in {where}: never is more than 7d, the" in ann.create(made["never"]).said
    assert f"/ttl in {where}: 8d is longer than 7d, the" in ann.create(made["8d"]).said
    assert ann.create(made["7d"]).is_taken
    assert chief.create(made["never"]).is_taken


# Who may hold


@pytest.mark.parametrize(
    "obj",
    [
        thing("ConfigMap", {"hold": "audit"}),
        thing("Job", {"hold": ""}),
        thing("TrainJob", {"hold": "audit"}),
        thing("Namespace", {"exempt": "true"}),
        thing("Job", spec=job_spec({"hold": "audit"})),
        thing("CronJob", spec=cron_spec(job={"hold": "audit"})),
        thing("CronJob", spec=cron_spec(pod={"hold": "audit"})),
    ],
    ids=["configmap", "job", "trainjob", "namespace", "job's pod", "cronjob's job", "cronjob's pod"],
)
def test_hold_and_exemption_require_a_listed_group(obj, ann, chief):
    refused = ann.create(obj)
    assert refused.status == 403
    assert "only by members of these groups: system:masters, kubeadm:cluster-admins" in refused.said
    assert chief.create(obj).is_taken


def test_hold_is_not_changed_or_removed_without_a_listed_group(ann, chief):
    held = thing("ConfigMap", {"hold": "audit"}, "held")
    assert chief.create(held, dry=False).is_taken
    key = f"{ANNOTATION_DOMAIN}/hold"
    for change in ("another", None):
        assert ann.patch(held, {"metadata": {"annotations": {key: change}}}).status == 403
        assert chief.patch(held, {"metadata": {"annotations": {key: change}}}).is_taken
    assert ann.patch(held, {"metadata": {"labels": {"a": "b"}}}).is_taken
    assert ann.ask("DELETE", path_of(held)).is_taken


def test_exemption_is_not_changed_or_removed_without_a_listed_group(ann, chief):
    exempted = thing("Namespace", {"exempt": "true"}, "exempted")
    assert chief.create(exempted, dry=False).is_taken
    for change in ("false", None):
        said = {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/exempt": change}}}
        assert ann.patch(exempted, said).status == 403
        assert chief.patch(exempted, said).is_taken
    assert ann.patch(exempted, {"metadata": {"annotations": ours({"default-ttl": "1d"})}}).is_taken
    assert ann.ask("DELETE", path_of(exempted)).is_taken


@pytest.mark.parametrize(("groups", "may"), [([], False), (["sre", HOLDERS], True), (["sre"], False)])
def test_overlay_sets_the_groups_that_may_hold(groups, may, ann, chief):
    before = ann.ask("GET", HOLDS).body["spec"]["variables"]
    assert before[0]["name"] == "groups"
    held = thing("ConfigMap", {"hold": "audit"})
    who = f"members of these groups: {', '.join(groups) or 'none'}"
    try:
        variables = [{**before[0], "expression": str(groups)}, *before[1:]]
        assert ann.ask("PATCH", HOLDS, {"spec": {"variables": variables}}).is_taken
        wait(lambda: ann.create(held).said.endswith(f"only by {who}"))
        assert chief.create(held).is_taken == may
        assert ann.create(thing("ConfigMap")).is_taken
    finally:
        assert ann.ask("PATCH", HOLDS, {"spec": {"variables": before}}).is_taken
        wait(lambda: chief.create(held).is_taken and not ann.create(held).is_taken)


# What must never be held up


@pytest.fixture
def owner(ann: User) -> Iterator[Object]:
    """The target of a controller owner reference; without it, the garbage collector deletes the dependent."""
    parent = thing("ConfigMap", name="parent")
    yield owned_by(ann.create(parent, dry=False).body)
    ann.ask("DELETE", path_of(parent))


def owned_by(parent: Object) -> Object:
    named = {"name": parent["metadata"]["name"], "uid": parent["metadata"]["uid"]}
    return {"apiVersion": parent["apiVersion"], "kind": parent["kind"], **named, "controller": True}


BAD = {"ttl": "soon", "expire-at": "tomorrow", "hold": "audit"}


@pytest.fixture
def bad(owner: Object, controller: User, ann: User, request: pytest.FixtureRequest) -> Object:
    """A Job with values that would be refused, as it was there before the guard rails."""
    meta = {"annotations": ours(BAD), "ownerReferences": [owner], "finalizers": ["example.com/wait"]}
    name = request.node.name.replace("_", "-")[:50].rstrip("-")
    job = thing("Job", name=name, metadata=meta, spec=job_spec(suspend=True))
    assert controller.create(job, dry=False).is_taken
    return job


def test_object_of_a_controller_with_an_owner_is_not_checked(ann, controller, owner):
    made = thing("Pod", metadata={"annotations": ours(BAD), "ownerReferences": [owner]})
    assert controller.create(made).is_taken
    assert not ann.create(made).is_taken
    assert not controller.create(thing("Pod", BAD)).is_taken
    not_managed = {**owner, "controller": False}
    free = thing("Pod", metadata={"annotations": ours(BAD), "ownerReferences": [not_managed]})
    assert not controller.create(free).is_taken


def test_object_with_an_older_unreadable_annotation_can_be_updated(bad, ann, chief):
    assert ann.patch(bad, {"metadata": {"labels": {"a": "b"}}}).is_taken
    assert ann.patch(bad, {"spec": {"suspend": False}}).is_taken
    assert ann.patch(bad, {"status": {"active": 1}}, subresource="/status").is_taken
    assert ann.patch(bad, {"metadata": {"finalizers": None}}).is_taken
    for name, text in (("ttl", "later"), ("expire-at", "never")):
        assert not ann.patch(bad, {"metadata": {"annotations": ours({name: text})}}).is_taken
    assert ann.patch(bad, {"metadata": {"annotations": ours({"ttl": "1h"})}}).is_taken
    assert ann.patch(bad, {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/ttl": None}}}).is_taken
    assert ann.ask("DELETE", path_of(bad)).is_taken
    # It is going: whatever is written now is nobody's concern.
    assert ann.patch(bad, {"metadata": {"annotations": ours({"ttl": "later"})}}).is_taken
    assert ann.patch(bad, {"metadata": {"finalizers": None}}, dry=False).is_taken
    wait(lambda: ann.ask("GET", path_of(bad)).status == 404)


def test_garbage_collector_removes_its_finalizer_despite_an_unreadable_annotation(bad, ann):
    assert ann.patch(bad, {"metadata": {"finalizers": None}}, dry=False).is_taken
    assert ann.ask("DELETE", path_of(bad), {"propagationPolicy": "Foreground"}).is_taken
    wait(lambda: ann.ask("GET", path_of(bad)).status == 404)


def test_job_controller_creates_pods_from_a_template_with_a_hold(ann, chief):
    job = thing("Job", name="held-pods", spec=job_spec({"hold": "audit", "ttl": "1d"}))
    assert chief.create(job, dry=False).is_taken
    pods_of_it = "/api/v1/namespaces/default/pods?labelSelector=job-name%3Dheld-pods"
    wait(lambda: ann.ask("GET", pods_of_it).body["items"])
    (made,) = ann.ask("GET", pods_of_it).body["items"]
    assert made["metadata"]["annotations"][f"{ANNOTATION_DOMAIN}/hold"] == "audit"


def test_cronjob_controller_creates_jobs_from_a_template_with_an_unreadable_annotation(ann, controller, owner):
    """Also of what was there before the guard rails, and cannot be read."""
    spec = {**cron_spec(job=BAD), "schedule": "@every 1s"}
    cron = thing("CronJob", name="bad", spec=spec, metadata={"ownerReferences": [owner]})
    assert controller.create(cron, dry=False).is_taken
    jobs_of_it = "/apis/batch/v1/namespaces/default/jobs"

    def made() -> Any:
        return [one for one in ann.ask("GET", jobs_of_it).body["items"] if one["metadata"]["name"].startswith("bad-")]

    wait(made)
    assert made()[0]["metadata"]["annotations"][f"{ANNOTATION_DOMAIN}/ttl"] == BAD["ttl"]
    assert ann.ask("DELETE", path_of(cron), {"propagationPolicy": "Background"}).is_taken


def test_namespace_is_deleted_with_any_content(ann, chief, controller):
    leaving = thing("Namespace", {"exempt": "true"}, "leaving")
    assert chief.create(leaving, dry=False).is_taken
    parent = ann.create(thing("ConfigMap", name="parent", metadata={"namespace": "leaving"}), dry=False).body
    owner = owned_by(parent)
    meta = {"namespace": "leaving", "annotations": ours(BAD)}
    for name, finalizers in (("plain", []), ("waiting", ["example.com/wait"])):
        held = thing("ConfigMap", name=name, metadata={**meta, "finalizers": finalizers, "ownerReferences": [owner]})
        assert controller.create(held, dry=False).is_taken
    assert ann.ask("DELETE", path_of(leaving)).is_taken
    waiting = thing("ConfigMap", name="waiting", metadata=meta)
    wait(lambda: "deletionTimestamp" in ann.ask("GET", path_of(waiting)).body["metadata"])
    assert ann.patch(waiting, {"metadata": {"finalizers": None}}, dry=False).is_taken
    wait(lambda: ann.ask("GET", path_of(leaving)).status == 404)


def test_garbage_collector_orphans_objects_with_unreadable_annotations(bad, ann, controller):
    """The garbage collector takes the owner out of each."""
    meta = {"annotations": ours(BAD), "ownerReferences": [owned_by(ann.ask("GET", path_of(bad)).body)]}
    assert controller.create(thing("ConfigMap", name="orphan", metadata=meta), dry=False).is_taken
    assert ann.patch(bad, {"metadata": {"finalizers": None}}, dry=False).is_taken
    assert ann.ask("DELETE", path_of(bad), {"propagationPolicy": "Orphan"}).is_taken
    wait(lambda: ann.ask("GET", path_of(bad)).status == 404)
    orphan = thing("ConfigMap", name="orphan")
    assert "ownerReferences" not in ann.ask("GET", path_of(orphan)).body["metadata"]
    assert ann.ask("DELETE", path_of(orphan)).is_taken


# Hints


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (thing("ConfigMap", {"ttl": "59s"}), "ttl: 59s is less than a minute"),
        (thing("ConfigMap", {"ttl": "0"}), "ttl: 0 is less than a minute"),
        (thing("ConfigMap", {"ttl-failed": "1d", "ttl-succeeded": "5"}), "ttl-succeeded: 5 is less than a minute"),
        (thing("Namespace", {"default-ttl": "5"}), "default-ttl: 5 is less than a minute"),
        (thing("Namespace", {"max-ttl": "59"}), "max-ttl: 59 is less than a minute"),
        (thing("CronJob", spec=cron_spec(job={"ttl": "59s"})), "ttl in spec.jobTemplate: 59s is less than a minute"),
        (
            thing("CronJob", spec=cron_spec(ttlSecondsAfterFinished=59)),
            "spec.jobTemplate.spec.ttlSecondsAfterFinished: 59 s is less than a minute",
        ),
        (thing("CronJob", spec=cron_spec(job={"ttl": "1m"}, ttlSecondsAfterFinished=60)), ""),
        (
            thing("CronJob", spec=cron_spec(job={"ttl": "1d"}, ttlSecondsAfterFinished=100)),
            "ttl in spec.jobTemplate: overridden, since kube-controller-manager deletes each Job 100 s after",
        ),
        (thing("CronJob", {"ttl": "1d"}), "ttl: a CronJob never finishes, so this has no effect; set it in spec.jobT"),
        (thing("CronJob", {"ttl": "5s"}), "ttl: a CronJob never finishes"),
        (thing("ConfigMap", {"ttl": "1m"}), ""),
        (thing("ConfigMap", {"ttl": "60"}), ""),
        (thing("ConfigMap", {"ttl": "never"}), ""),
        (thing("Job", spec=job_spec(ttlSecondsAfterFinished=0)), "spec.ttlSecondsAfterFinished: 0 s is less than"),
        (thing("Job", spec=job_spec(ttlSecondsAfterFinished=60)), ""),
        (thing("TrainJob", spec={"ttlSecondsAfterFinished": 59}), "spec.ttlSecondsAfterFinished: 59 s is less than"),
        (
            thing("Job", {"ttl": "1d"}, spec=job_spec(ttlSecondsAfterFinished=100)),
            "ttl: overridden, since kube-controller-manager deletes this Job 100 s after it finished, by spec.ttlSec",
        ),
        (thing("Job", {"ttl": "never"}, spec=job_spec(ttlSecondsAfterFinished=100)), "ttl: overridden"),
        (thing("Job", {"ttl-failed": "2m"}, spec=job_spec(ttlSecondsAfterFinished=100)), "ttl-failed: overridden"),
        (thing("Job", {"ttl": "100"}, spec=job_spec(ttlSecondsAfterFinished=100)), ""),
        (thing("Job", {"ttl": "1d"}), ""),
        (
            thing("PyTorchJob", {"ttl": "1d"}, spec={"runPolicy": {"ttlSecondsAfterFinished": 100}}),
            "this PyTorchJob 100 s after it finished, by spec.runPolicy.ttlSecondsAfterFinished",
        ),
        (thing("TrainJob", {"ttl": "1d"}, spec={"ttlSecondsAfterFinished": 100}), ""),  # no controller acts on it
        (thing("Pod", {"ttl": "1d"}), ""),
        (thing("Pod", {"active-deadline": "1d"}), ""),
        (thing("Pod", {"active-deadline": "1d", "on-deadline": "delete"}), ""),
        (thing("Pod", {"active-deadline": "never"}), ""),
        (thing("Pod", {"pending-deadline": "1h"}), ""),
        (thing("Job", {"active-deadline": "1d"}), ""),
        (
            thing("Job", {"active-deadline": "1d"}, spec=job_spec(activeDeadlineSeconds=9)),
            "this has no effect, since spec.",
        ),
        (
            thing("CronJob", spec=cron_spec(job={"active-deadline": "1d"}, activeDeadlineSeconds=9)),
            "active-deadline in spec.jobTemplate: this has no effect, since spec.jobTemplate.spec.activeDeadline",
        ),
        (thing("CronJob", {"active-deadline": "1d"}), "a CronJob never finishes, so this has no effect"),
        (
            thing("Job", spec=job_spec({"active-deadline": "1d"})),
            "a Job may create another Pod in place of one that is stopped; set it on the Job",
        ),
        (
            thing("Pod", {"ttl": "1d"}, spec={**SHAPES["Pod"]["spec"], "restartPolicy": "Always"}),
            "a Pod with restartPolicy Always does not finish by itself",
        ),
    ],
)
def test_rarely_intended_annotation_causes_a_warning(obj, said, ann):
    answer = ann.create(obj)
    assert answer.is_taken
    if said:
        (warning,) = answer.warnings
        assert said in warning
    else:
        assert not answer.warnings


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("ConfigMap", "tttl", OF_OBJECTS),
        ("ConfigMap", "default-ttl", OF_OBJECTS),  # of Namespaces alone
        ("Job", "TTL", OF_OBJECTS),
        ("Namespace", "default-ttll", (*(name for name in OF_NAMESPACES if name not in OF_OBJECTS), *OF_OBJECTS)),
    ],
)
def test_unknown_annotation_causes_a_warning(kind, name, expected, ann):
    answer = ann.create(thing(kind, {name: "1h"}))
    assert answer.is_taken
    (warning,) = answer.warnings
    assert f"unknown annotation {ANNOTATION_DOMAIN}/{name}: expected one of {', '.join(expected)}" in warning


@pytest.mark.parametrize(("kind", "names"), [("ConfigMap", OF_OBJECTS), ("Namespace", (*OF_NAMESPACES, *OF_OBJECTS))])
def test_known_annotations_cause_no_warning(kind, names, chief):
    texts = {"exempt": "true", "expire-at": "2026-01-02T03:04:05Z", "on-deadline": "stop"}
    answer = chief.create(thing(kind, {name: texts.get(name, "1h") for name in names}))
    assert answer.is_taken
    assert not answer.warnings


@pytest.mark.parametrize(
    ("obj", "where"),
    [
        (thing("Job", spec=job_spec({"tttl": "1h"})), " in spec.template"),
        (thing("CronJob", {"tttl": "1h"}), ""),
        (thing("CronJob", spec=cron_spec(job={"tttl": "1h"})), " in spec.jobTemplate"),
        (thing("CronJob", spec=cron_spec(pod={"default-ttl": "1h"})), " in spec.jobTemplate.spec.template"),
    ],
    ids=["job's pod", "cronjob", "cronjob's job", "cronjob's pod"],
)
def test_unknown_annotation_in_a_template_causes_a_warning_with_its_path(obj, where, ann):
    (warning,) = ann.create(obj).warnings
    assert f"ttl{where}: expected one of {', '.join(OF_OBJECTS)}" in warning
    assert ann.create({**obj, "metadata": {**obj["metadata"], "name": "slips"}}, dry=False).is_taken
    assert not ann.patch({**obj, "metadata": {"name": "slips"}}, {"metadata": {"labels": {"a": "b"}}}).warnings
    ann.ask("DELETE", path_of({**obj, "metadata": {"name": "slips"}}), {"propagationPolicy": "Background"})


def test_unknown_annotation_causes_one_warning_only(ann):
    slip = thing("ConfigMap", {"tttl": "1h"}, "slip")
    assert ann.create(slip, dry=False).warnings
    assert not ann.patch(slip, {"metadata": {"labels": {"a": "b"}}}).warnings
    assert ann.patch(slip, {"metadata": {"annotations": ours({"tttl": "2h"})}}).warnings
    ann.ask("DELETE", path_of(slip))


HONOURED = {
    name: rule
    for name, rule in kind_rules().items()
    if rule.ttl and rule.ttl.honoured_by and rule.group not in BUILT_IN
}


@pytest.fixture(scope="module")
def honoured(ann: User) -> User:
    """With a CRD of every kind whose own controller acts on its TTL field."""
    served = {one["metadata"]["name"] for one in CRDS}
    wanted = [
        one for one in crds_of(kind_rules().values()) if one["metadata"]["name"] in {r.name for r in HONOURED.values()}
    ]
    crds = [one for one in wanted if one["metadata"]["name"] not in served]
    kubectl(ann.server, "create", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": crds})
    kubectl(ann.server, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    for rule in HONOURED.values():
        wait(lambda rule=rule: ann.ask("GET", resource_path(rule)).is_taken)
    return ann


def with_field(rule: KindRule, field: TtlField) -> Object:
    """An object that its own controller deletes 100 seconds after its end."""
    obj: Object = {"apiVersion": rule.api_version, "kind": rule.kind, "metadata": {"name": "x"}}
    values = {field.path: {"seconds": 100, "milliseconds": 100_000, "duration": "1m40s"}[field.unit]}
    if field.when is not None and field.when.field:  # the field counts beside this one alone
        values[field.when.field] = field.when.values[0]
    for path, value in values.items():
        *steps, last = path.split(".")
        place = obj
        for step in steps:
            place = place.setdefault(step, {})
        place[last] = value
    return obj


def warnings_of(user: User, rule: KindRule, obj: Object, said: dict[str, str]) -> tuple[str, ...]:
    """The warnings when a user annotates an existing object with a status."""
    folder = resource_path(rule, "default")
    assert user.ask("POST", folder, obj).is_taken
    try:
        if "status" in obj:
            assert user.ask("PATCH", f"{folder}/x/status", {"status": obj["status"]}).is_taken
        answer = user.ask("PATCH", f"{folder}/x", {"metadata": {"annotations": ours(said)}}, dry=True)
        assert answer.is_taken
        return answer.warnings
    finally:
        user.ask("DELETE", f"{folder}/x")


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        pytest.param(rule, field, id=f"{name}-{field.path}")
        for name, rule in HONOURED.items()
        for field in not_none(rule.ttl).fields
    ],
)
def test_controller_that_acts_on_a_native_field_is_named(rule, field, honoured):
    obj = with_field(rule, field)
    means = next((one for one in ("succeeded", "failed") if one[:4] in field.path.lower()), "finished")
    (warning,) = warnings_of(honoured, rule, obj, {"ttl": "101s"})
    assert f"/ttl: overridden, since its own controller deletes this {rule.kind} 100 s after it {means}, by " in warning
    assert f", by {field.path}{',' if field.path.startswith('status') else ';'}" in warning
    assert not warnings_of(honoured, rule, obj, {"ttl": "100s"})
    for outcome in ("succeeded", "failed"):
        assert bool(warnings_of(honoured, rule, obj, {f"ttl-{outcome}": "1d"})) == (means in (outcome, "finished"))


def test_native_field_without_a_controller_causes_no_warning(honoured):
    rule = kind_rules()["mpijobs-v2beta1.kubeflow.org"]
    crd = next(one for one in crds_of(kind_rules().values()) if one["metadata"]["name"] == rule.name)
    versions = [{**crd["spec"]["versions"][0], "name": "v2beta1", "storage": False}]
    there = honoured.ask("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{rule.name}").body
    changed = {"spec": {"versions": [*there["spec"]["versions"], *versions]}}
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{rule.name}"
    assert honoured.ask("PATCH", path, changed).is_taken
    wait(lambda: honoured.ask("GET", resource_path(rule)).is_taken)
    obj = with_field(rule, TtlField(path="spec.runPolicy.ttlSecondsAfterFinished"))
    assert not warnings_of(honoured, rule, obj, {"ttl": "1d"})


def test_field_of_an_outcome_takes_precedence_in_the_warning(honoured):
    rule = kind_rules()["workflows.argoproj.io"]
    strategy = {"secondsAfterCompletion": 100, "secondsAfterSuccess": 604_800}
    obj = {**with_field(rule, not_none(rule.ttl).fields[0]), "spec": {"ttlStrategy": strategy}}
    template = {"ttlStrategy": {"secondsAfterFailure": 1}}
    assert not warnings_of(honoured, rule, obj, {"ttl-succeeded": "1d"})
    assert "secondsAfterCompletion" in warnings_of(honoured, rule, obj, {"ttl-failed": "1d"})[0]
    replaced = {**obj, "status": {"storedWorkflowTemplateSpec": template}}
    assert "spec.ttlStrategy.secondsAfterCompletion" in warnings_of(honoured, rule, replaced, {"ttl-failed": "1d"})[0]


@pytest.mark.parametrize(
    ("name", "path", "value", "is_overridden"),
    [
        ("sparkapplications.spark.apache.org", "spec.applicationTolerations.ttlAfterStopMillis", -1, False),
        ("sparkapplications.sparkoperator.k8s.io", "spec.timeToLiveSeconds", -1, True),
        ("buildruns.shipwright.io", "spec.retention.ttlAfterFailed", "soon", False),
        ("buildruns.shipwright.io", "spec.retention.ttlAfterFailed", "99999999999999h", False),
        ("buildruns.shipwright.io", "spec.retention.ttlAfterFailed", "1.5h30m", True),
        ("workflows.argoproj.io", "spec.ttlStrategy.secondsAfterCompletion", "100", False),
        ("workflows.argoproj.io", "spec.ttlStrategy", "text", False),
    ],
)
def test_unexpected_value_of_a_native_field_is_ignored_or_warned_about(name, path, value, is_overridden, honoured):
    rule = kind_rules()[name]
    for part in reversed(path.split(".")):
        value = {part: value}
    obj = {**with_field(rule, not_none(rule.ttl).fields[0]), **value}
    assert bool(warnings_of(honoured, rule, obj, {"ttl": "1d"})) == is_overridden
    assert warnings_of(honoured, rule, obj, {"ttl": "1s"})  # the other hints are there all the same


def test_hold_beside_a_native_field_causes_a_warning(chief):
    (warning,) = chief.create(thing("Job", {"hold": "audit"}, spec=job_spec(ttlSecondsAfterFinished=100))).warnings
    assert "hold: overridden" in warning
    assert "kubectl ttl hold" in warning


def test_warning_is_given_once(ann):
    job = thing("Job", {"ttl": "5s"}, "short", spec=job_spec(ttlSecondsAfterFinished=3, suspend=True))
    assert len(ann.create(job, dry=False).warnings) == 3
    assert not ann.patch(job, {"metadata": {"labels": {"a": "b"}}}).warnings
    assert len(ann.patch(job, {"spec": {"ttlSecondsAfterFinished": 4}}).warnings) == 2
    ann.ask("DELETE", path_of(job), {"propagationPolicy": "Background"})


# Templates


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (thing("Job", spec=job_spec({"ttl": "1d"})), "ttl in spec.template: a Job keeps its Pods while it runs"),
        (thing("Job", spec=job_spec({"expire-at": "2026-01-02T03:04:05Z"})), "expire-at in spec.template"),
        (thing("CronJob", spec=cron_spec(pod={"ttl": "1d"})), "set it in spec.jobTemplate"),
        (thing("CronJob", spec=cron_spec(job={"ttl": "1d"})), ""),
        (thing("Job", spec=job_spec({"ttl": "1d", "owner": "ignore"})), ""),
        (thing("Job", {"ttl": "1d"}), ""),
        (serving("Deployment", {"ttl": "1d"}), ""),
        (serving("ReplicaSet", {"ttl-failed": "1d"}), ""),
        (serving("Deployment", {"ttl": "1d", "active-deadline": "1d"}), "may create another Pod"),
        (serving("Deployment", {"pending-deadline": "1d"}), "may create another Pod"),
        (serving("StatefulSet", {"ttl": "1d"}), "a StatefulSet deletes its finished Pods itself"),
    ],
)
def test_ttl_in_a_template_of_pods_causes_a_warning(obj, said, ann):
    answer = ann.create(obj)
    assert answer.is_taken
    assert [said in warning for warning in answer.warnings] == ([True] if said else [])


# KEP-2899


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, ""),
        ({"ttlSecondsAfterFinished": 0}, ""),
        ({"ttlSecondsAfterFinished": 3600, "activeDeadlineSeconds": 1}, ""),
        ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished: expected whole seconds, 0 or more"),
        ({"ttlSecondsAfterFinished": "1h"}, "spec.ttlSecondsAfterFinished: expected whole seconds, 0 or more"),
        ({"ttlSecondsAfterFinished": 1.5}, "spec.ttlSecondsAfterFinished: expected whole seconds, 0 or more"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds: expected whole seconds, 1 or more"),
        ({"activeDeadlineSeconds": -5}, "spec.activeDeadlineSeconds: expected whole seconds, 1 or more"),
    ],
)
def test_trainjob_with_invalid_fields_of_kep_2899_is_refused(spec, said, ann):
    answer = ann.create(thing("TrainJob", spec=spec))
    assert answer.is_taken == (not said)
    assert said in answer.said


@pytest.mark.parametrize(("before", "after"), [(5, 6), (None, 5), (5, None)])
def test_trainjob_deadline_is_immutable_and_its_ttl_is_not(before, after, ann):
    job = thing("TrainJob", name="stays", spec={"activeDeadlineSeconds": before} if before else {})
    assert ann.create(job, dry=False).is_taken
    refused = ann.patch(job, {"spec": {"activeDeadlineSeconds": after}})
    assert refused.status == 422
    assert "cannot be set, changed or removed" in refused.said
    for ttl in (60, None, 0):
        assert ann.patch(job, {"spec": {"ttlSecondsAfterFinished": ttl, "suspend": True}}, dry=False).is_taken
    assert ann.patch(job, {"spec": {"ttlSecondsAfterFinished": -1}}).status == 422
    assert ann.ask("DELETE", path_of(job)).is_taken


def test_trainjob_of_a_crd_without_the_fields_is_accepted(ann):
    job = {**thing("TrainJob", {"ttl": "1h"}, "lacks"), "apiVersion": "trainer.kubeflow.org/v1"}
    assert ann.create({**job, "spec": {"ttlSecondsAfterFinished": -1}}, dry=False).is_taken  # it is dropped
    assert ann.patch(job, {"spec": {"activeDeadlineSeconds": 5}}).is_taken
    assert ann.patch(job, {"status": {}}, subresource="/status").is_taken
    assert ann.ask("DELETE", path_of(job)).is_taken


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (runtime(), ""),
        (runtime(pod={"restartPolicy": "OnFailure"}), ""),
        (thing("ClusterTrainingRuntime", spec={"runPolicy": {"ttlSecondsAfterFinished": 0}}), ""),
        (thing("ClusterTrainingRuntime", spec={"template": {}}), ""),
        (runtime(jobset={"ttlSecondsAfterFinished": 5}), "spec.template.spec.ttlSecondsAfterFinished: must be unset"),
        (runtime(job={"ttlSecondsAfterFinished": 5}), "[node].template.spec.ttlSecondsAfterFinished: must be"),
        (runtime(job={"activeDeadlineSeconds": 5}), "[node].template.spec.activeDeadlineSeconds: must be"),
        (runtime(pod={"activeDeadlineSeconds": 5}), "[node].template.spec.template.spec.activeDeadlineSeconds: must"),
        (runtime(pod={"restartPolicy": "Always"}), "restartPolicy: expected OnFailure or Never"),
        (runtime(runPolicy={"ttlSecondsAfterFinished": -1}), "spec.runPolicy.ttlSecondsAfterFinished: expected"),
        (runtime(runPolicy={"activeDeadlineSeconds": 0}), "spec.runPolicy.activeDeadlineSeconds: expected"),
    ],
)
def test_training_runtime_with_a_ttl_of_its_jobs_is_refused(obj, said, ann):
    answer = ann.create(obj)
    assert answer.is_taken == (not said)
    assert said in answer.said
