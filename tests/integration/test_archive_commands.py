"""`archive ls`, `get`, `diff` and `restore` on a real API server, with an archive in a folder."""

import asyncio
import json
import os
import shutil
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.archive.open_archive import open_archive
from shared.adapters.kubernetes.requests import resource_path
from shared.core.archive.document import Document, Record, canonical
from shared.core.archive.identity import ArchiveCluster
from shared.core.archive.server_fields import without_server_fields
from shared.core.kinds.rule import KindRule
from shared.devserver.real_servers import RealServer
from shared.ports.archive import Stored
from tests.archives import key_of
from tests.builders import kind_rule
from tests.crds import crds_of
from tests.integration.conftest import Api, run_command
from tests.integration.test_run import POD_SPEC, Cluster

Ttl = Callable[..., subprocess.CompletedProcess[str]]
Store = Callable[..., Stored]

QUEUE = "kueue.x-k8s.io/queue-name"
HOLD = "ttlafterfinished.dev/hold"
SPECS: dict[str, dict[str, Any]] = {
    "job": {"template": {"spec": POD_SPEC}, "ttlSecondsAfterFinished": 86_400},
    "pod": POD_SPEC,
    "pipelineruns.tekton.dev": {"pipelineRef": {"name": "build"}, "timeouts": {"pipeline": "1h0m0s"}},
    "taskruns.tekton.dev": {"taskRef": {"name": "build"}, "serviceAccountName": "default"},
    "workflows.argoproj.io": {"entrypoint": "main", "ttlStrategy": {"secondsAfterCompletion": 60}},
    "jobsets.jobset.x-k8s.io": {"replicatedJobs": [{"name": "workers", "replicas": 2}]},
    "rayjobs.ray.io": {"entrypoint": "python main.py", "shutdownAfterJobFinishes": True},
    "trainjob": {"runtimeRef": {"name": "torch-distributed"}},
    "pytorchjobs.kubeflow.org": {"runPolicy": {"cleanPodPolicy": "None"}},
    "sparkapplications.sparkoperator.k8s.io": {"type": "Scala", "mode": "cluster"},
    "testruns.k6.io": {"parallelism": 4, "script": {"configMap": {"name": "k6"}}},
}
"""The kinds of the round trip, each with a spec."""

WITHOUT_SUBRESOURCE = ("workflows.argoproj.io",)
CUSTOM = [kind_rule(name) for name in SPECS if name not in ("job", "pod")]


@pytest.fixture(scope="module", autouse=True)
def crds(server: RealServer) -> None:
    """The CRDs of the custom kinds; that of Workflows has no status subresource, as Argo's."""
    api = Api(server)
    for crd in crds_of(CUSTOM):
        if crd["metadata"]["name"] in WITHOUT_SUBRESOURCE:
            for version in crd["spec"]["versions"]:
                del version["subresources"]
        api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    for rule in CUSTOM:
        api.wait(f"{rule.name} served", lambda rule=rule: _is_served(api, rule))


def _is_served(api: Api, rule: KindRule) -> bool:
    try:
        return api.get(resource_path(rule)) is not None
    except urllib.error.HTTPError:
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def here(api: Api) -> ArchiveCluster:
    """This cluster, under the default name."""
    return ArchiveCluster("default", api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])


@pytest.fixture
def store(folder: Path, here: ArchiveCluster) -> Store:
    """Store an object as `archive` does, with the keys of the environment."""

    def put(obj: dict[str, Any], *children: Stored, cluster: ArchiveCluster = here, **record: Any) -> Stored:
        now = datetime.now(UTC).replace(microsecond=0)
        keys = tuple(one.key.path for one in children)
        line = Record(archived_at=now, children=keys, cluster_id=cluster.id, **record)
        document = Document(line, canonical(obj))
        archive = open_archive("main", f"file://{folder}")
        return asyncio.run(archive.put(key_of(obj, document.digest, cluster=cluster.part, day=now.date()), document))

    return put


@pytest.fixture
def ttl(server: RealServer, namespace: str, folder: Path, tmp_path: Path) -> Ttl:
    """`kubectl ttl archive` in the test's namespace."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"archives": {"main": {"url": f"file://{folder}"}}}))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        place = ("-n", namespace, "--policy", str(policy))
        return run_command(server.kubeconfig, "archive", words[0], *place, *words[1:])

    return run


class Life:
    """One object of a kind: created, finished, archived, deleted."""

    def __init__(self, api: Api, rule: KindRule, namespace: str) -> None:
        self.api, self.rule = api, rule
        self.collection = resource_path(rule, namespace)
        self.path = f"{self.collection}/one"

    def create(self, spec: dict[str, Any], **metadata: Any) -> Any:
        about = {"apiVersion": self.rule.api_version, "kind": self.rule.kind}
        named = {"name": "one", "labels": {"app": "shop"}, "annotations": {"example.com/why": "a test"}, **metadata}
        status = {"phase": "Succeeded"} if self.rule.name in WITHOUT_SUBRESOURCE else {}
        body = {**about, "metadata": named, "spec": spec, **({"status": status} if status else {})}
        return self.api.call("POST", self.collection, body)

    def present(self) -> Any:
        return self.api.get(self.path)

    def delete(self) -> None:
        options = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        self.api.call("DELETE", self.path, options)
        self.api.wait(f"the end of {self.path}", lambda: self.present() is None)


@pytest.fixture
def life_of(api: Api, namespace: str) -> Callable[[str], Life]:
    return lambda name: Life(api, kind_rule(name), namespace)


@pytest.fixture
def account(api: Api, namespace: str) -> None:
    """The service account of the namespace, whose controller does not run here; a Pod needs it."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if api.get(f"{path}/default") is None:
        api.call("POST", path, {"metadata": {"name": "default"}})


def annotations(obj: Any) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("annotations", {})
    return found


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.usefixtures("account")
def test_round_trip_brings_an_equal_object_back(
    kind: str, life_of: Callable[[str], Life], ttl: Ttl, store: Store, server: RealServer, tmp_path: Path
) -> None:
    life = life_of(kind)
    labels = {"labels": {"app": "shop", "workflows.argoproj.io/completed": "true"}}
    life.create(SPECS[kind], **labels)
    if kind == "job":
        life.api.wait("the Job's start", lambda: life.present().get("status", {}).get("startTime"))
    before = life.present()
    store(before)
    life.delete()

    restored = ttl("restore", f"{life.rule.name}/one", "--no-hold", "--yes-run-again")

    assert restored.returncode == 0, restored.stderr
    after = life.present()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert without_server_fields(after) == without_server_fields(before)
    compared = ttl("diff", f"{life.rule.name}/one")
    assert (compared.returncode, compared.stdout) == (0, ""), compared.stdout + compared.stderr
    if shutil.which("kubectl"):
        file = tmp_path / "archived.json"
        file.write_text(json.dumps(without_server_fields(before)))
        words = ["kubectl", "diff", "-f", str(file)]
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
        diff = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert _changes(diff.stdout) == [], diff.stderr


def _changes(diff: str) -> list[str]:
    """The lines that differ, without what kubectl itself writes: its managed fields and its annotation."""
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    ours = ("last-applied-configuration", '{"apiVersion"', "generation:", "managedFields")
    return [line for line in lines if not any(one in line for one in ours)]


def test_restored_job_does_not_run(ttl: Ttl, store: Store, api: Api, namespace: str) -> None:
    jobs = Cluster(api, namespace)
    jobs.create_job("report", ttl=1)
    jobs.finish_pods_of("report")
    finished = jobs.job("report")
    store(finished, outcome="succeeded", finished_at=finished["status"]["completionTime"])
    api.call("DELETE", f"{jobs.jobs}/report", {"propagationPolicy": "Background"})
    api.wait("the end of the Job", lambda: jobs.job("report") is None)
    api.wait("the end of its Pods", lambda: not api.call("GET", jobs.pods)["items"])

    refused = ttl("restore", "job/report")
    assert refused.returncode == 1
    assert "Job " in refused.stderr
    assert "would run again; set --suspended" in refused.stderr
    assert jobs.job("report") is None

    tried = ttl("restore", "job/report", "--suspended", "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert "nothing is created" in tried.stdout
    assert jobs.job("report") is None

    restored = ttl("restore", "job/report", "--suspended")

    assert restored.returncode == 0, restored.stderr
    job = jobs.job("report")
    assert job["spec"]["suspend"] is True
    assert annotations(job)[HOLD] == "restored from the archive"
    assert "ttlSecondsAfterFinished" not in job["spec"]
    suspended = api.wait("the suspension", lambda: jobs.job("report").get("status", {}).get("conditions"))
    assert [one["type"] for one in suspended] == ["Suspended"]
    time.sleep(2)
    assert not api.call("GET", jobs.pods)["items"]

    again = ttl("restore", "job/report", "--suspended")
    assert again.returncode == 1
    assert "never overwrites" in again.stderr

    differs = ttl("diff", "job/report")
    assert differs.returncode == 1, differs.stderr
    assert "+  suspend: true" in differs.stdout

    (line,) = [line for line in restored.stdout.splitlines() if "to let it run" in line]
    command = line.partition("`")[2].partition("`")[0]
    if shutil.which("kubectl"):
        environment = {**os.environ, "KUBECONFIG": str(api.server.kubeconfig)}
        subprocess.run(["/bin/sh", "-c", command], env=environment, check=True, timeout=60)
        jobs.finish_pods_of("report")


def _archive_finished_job(api: Api, namespace: str, store: Store, **metadata: Any) -> Cluster:
    """Create the Job `train-7`, let it finish, archive it, and delete it."""
    jobs = Cluster(api, namespace)
    about = {"name": "train-7", **metadata}
    api.call("POST", jobs.jobs, {"metadata": about, "spec": {"suspend": False, "template": {"spec": POD_SPEC}}})
    jobs.finish_pods_of("train-7")
    store(jobs.job("train-7"))
    api.call("DELETE", f"{jobs.jobs}/train-7", {"propagationPolicy": "Background"})
    api.wait("the end of the Job", lambda: jobs.job("train-7") is None)
    return jobs


def test_job_of_a_queue_is_restored_without_the_queue(ttl: Ttl, store: Store, api: Api, namespace: str) -> None:
    labels = {QUEUE: "team-a", "app": "shop"}
    jobs = _archive_finished_job(api, namespace, store, labels=labels)

    restored = ttl("restore", "job/train-7", "--suspended")

    assert restored.returncode == 0, restored.stderr
    job = jobs.job("train-7")
    assert job["spec"]["suspend"] is True
    assert QUEUE not in job["metadata"]["labels"]
    assert job["metadata"]["labels"]["app"] == "shop"
    text = " ".join(restored.stdout.split())
    assert f"label {QUEUE}=team-a is left out: Kueue would start the object" in text
    assert "it is suspended; to let it run without Kueue: `kubectl patch" in text
    command = text.partition("to let Kueue start it: `")[2].partition("`")[0]
    if shutil.which("kubectl"):
        environment = {**os.environ, "KUBECONFIG": str(api.server.kubeconfig)}
        subprocess.run(["/bin/sh", "-c", command], env=environment, check=True, timeout=60)
        assert jobs.job("train-7")["metadata"]["labels"][QUEUE] == "team-a"


@pytest.fixture
def default_queue(api: Api, namespace: str) -> Iterator[None]:
    """An admission policy that sets the queue of each Job, as the webhook of Kueue does for a LocalQueue `default`."""
    path, name = "/apis/admissionregistration.k8s.io/v1", f"{namespace}-queue"
    places = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    resources = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}]
    labels = f'Object{{metadata: Object.metadata{{labels: {{"{QUEUE}": "default"}}}}}}'
    spec = {
        "matchConstraints": {"namespaceSelector": places, "resourceRules": resources},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": labels}}],
    }
    api.call("POST", f"{path}/mutatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    binding = {"metadata": {"name": name}, "spec": {"policyName": name}}
    api.call("POST", f"{path}/mutatingadmissionpolicybindings", binding)
    probe = {"metadata": {"name": "probe"}, "spec": {"template": {"spec": POD_SPEC}}}
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All"
    api.wait("the queue", lambda: QUEUE in api.call("POST", jobs, probe)["metadata"].get("labels", {}))
    yield
    api.call("DELETE", f"{path}/mutatingadmissionpolicybindings/{name}")
    api.call("DELETE", f"{path}/mutatingadmissionpolicies/{name}")


@pytest.mark.usefixtures("default_queue")
def test_job_whose_queue_the_cluster_sets_is_refused(ttl: Ttl, store: Store, api: Api, namespace: str) -> None:
    jobs = _archive_finished_job(api, namespace, store)

    refused = ttl("restore", "job/train-7", "--suspended")

    assert refused.returncode == 1
    assert f"would run again: the cluster sets label {QUEUE}=default, so Kueue" in " ".join(refused.stderr.split())
    assert jobs.job("train-7") is None
    assert ttl("restore", "job/train-7", "--yes-run-again").returncode == 0
    assert jobs.job("train-7")["metadata"]["labels"][QUEUE] == "default"


@pytest.fixture
def priority_class(api: Api, namespace: str) -> Iterator[Callable[[int], str]]:
    """Create the PriorityClass of the test with a value again; the name is that of the namespace."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"

    def create(value: int) -> str:
        if api.get(f"{path}/{namespace}") is not None:
            api.call("DELETE", f"{path}/{namespace}")
        api.call("POST", path, {"metadata": {"name": namespace}, "value": value, "preemptionPolicy": "Never"})
        return namespace

    yield create
    api.call("DELETE", f"{path}/{namespace}")


@pytest.mark.usefixtures("account")
def test_pod_gets_the_priority_that_its_class_has_now(
    life_of: Callable[[str], Life], ttl: Ttl, store: Store, priority_class: Callable[[int], str]
) -> None:
    life = life_of("pod")
    name = priority_class(1000)
    life.api.wait("the PriorityClass", lambda: _is_created(life, {**POD_SPEC, "priorityClassName": name}))
    before = life.present()
    assert before["spec"]["priority"] == 1000
    store(before)
    life.delete()
    priority_class(2000)
    probe = {"metadata": {"name": "probe"}, "spec": {**POD_SPEC, "priorityClassName": name}}
    dry_run = f"{life.collection}?dryRun=All"
    life.api.wait("the new value", lambda: life.api.call("POST", dry_run, probe)["spec"]["priority"] == 2000)

    restored = ttl("restore", "pod/one", "--suspended")

    assert restored.returncode == 0, restored.stderr
    assert life.present()["spec"]["priority"] == 2000


def _is_created(life: Life, spec: dict[str, Any]) -> bool:
    """Create the object; false while the API server has not yet seen what its spec names."""
    try:
        return life.create(spec) is not None
    except urllib.error.HTTPError:
        return False


@pytest.mark.usefixtures("account")
def test_field_that_the_server_refuses_is_named_and_left_out(
    life_of: Callable[[str], Life], ttl: Ttl, store: Store
) -> None:
    life = life_of("pod")
    life.create(POD_SPEC)
    obj = life.present()
    life.delete()
    obj["spec"]["priorityClassName"] = "of-another-cluster"
    obj["spec"]["hostname"] = "Not_A_Name"
    store(obj)

    refused = ttl("restore", "pod/one", "--suspended")
    assert refused.returncode == 1
    option = ("--leave-out", "spec.priorityClassName")
    assert f"set {' '.join(option)}" in " ".join(refused.stderr.split())

    refused = ttl("restore", "pod/one", "--suspended", *option)
    assert refused.returncode == 1
    other = ("--leave-out", "spec.hostname")
    assert f"set {' '.join(other)}" in " ".join(refused.stderr.split())

    restored = ttl("restore", "pod/one", "--suspended", *option, *other)
    assert restored.returncode == 0, restored.stderr
    assert "left out, as --leave-out says: spec.priorityClassName, spec.hostname" in " ".join(restored.stdout.split())
    assert ttl("restore", "pod/one", "--leave-out", "kind").returncode == 2


@pytest.mark.usefixtures("account")
def test_suspended_pod_waits_at_its_gate(life_of: Callable[[str], Life], ttl: Ttl, store: Store) -> None:
    life = life_of("pod")
    life.create(POD_SPEC)
    store(life.present())
    life.delete()

    restored = ttl("restore", "pod/one", "--suspended")

    assert restored.returncode == 0, restored.stderr
    assert life.present()["spec"]["schedulingGates"] == [{"name": "ttlafterfinished.dev/restored"}]


@pytest.mark.usefixtures("account")
def test_forged_pod_is_not_restored(
    life_of: Callable[[str], Life], ttl: Ttl, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer stored it after ours, with the same uid and resource version, and its own digest."""
    life = life_of("pod")
    life.create(POD_SPEC)
    obj = life.present()
    volumes = [{"name": "node", "hostPath": {"path": "/"}}]
    forged = store({**obj, "spec": {**obj["spec"], "volumes": volumes}})
    life.delete()
    monkeypatch.setenv("TTL_ARCHIVE_KEYS", f"{'k' * 32},{'o' * 32}")
    ours = store(obj)
    monkeypatch.delenv("TTL_ARCHIVE_KEYS")

    verified, refused = ttl("verify", "pods"), ttl("restore", "pod/one", "--yes-run-again")

    assert (verified.returncode, verified.stdout.splitlines()[-1]) == (1, "2 documents verified, 2 damaged")
    assert refused.returncode == 1
    assert all(one.location in refused.stderr for one in (ours, forged))
    assert life.present() is None
    monkeypatch.setenv("TTL_ARCHIVE_KEYS", f"{'o' * 32},{'k' * 32}")
    assert "it has no signature" in ttl("verify", "pods").stdout
    named = ttl("restore", "pod/one", "--yes-run-again", "--digest", forged.key.digest)
    assert (named.returncode, life.present()) == (1, None)
    restored = ttl("restore", "pod/one", "--yes-run-again")
    assert restored.returncode == 0, restored.stderr
    assert "hostPath" not in json.dumps(life.present()["spec"])


def test_lost_owner_is_left_out_and_a_present_one_stays(
    life_of: Callable[[str], Life], ttl: Ttl, store: Store, api: Api, namespace: str
) -> None:
    config = api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "owner"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": config["metadata"]["uid"]}
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "6f1f8a52-0c7e-4c53-9f0e-0d9a3c1b7e11"}
    life = life_of("pipelineruns.tekton.dev")
    life.create({}, ownerReferences=[owner])
    obj = life.present()
    obj["metadata"]["ownerReferences"].append(gone)
    store(obj)
    life.delete()

    restored = ttl("restore", "pipelinerun/one", "--suspended")

    assert restored.returncode == 0, restored.stderr
    assert "its owner ConfigMap gone, uid 6f1f8a52" in restored.stdout
    after = life.present()
    assert after["metadata"]["ownerReferences"] == [owner]
    assert after["spec"]["status"] == "PipelineRunPending"


@pytest.mark.usefixtures("account")
def test_children_come_back_with_their_object(
    life_of: Callable[[str], Life], ttl: Ttl, store: Store, api: Api, namespace: str
) -> None:
    jobs = Cluster(api, namespace)
    jobs.create_job("report")
    jobs.finish_pods_of("report")
    finished = jobs.job("report")
    (pod,) = api.call("GET", jobs.pods)["items"]
    pod = api.get(f"{jobs.pods}/{pod['metadata']['name']}")
    store(finished, store(pod, parent=finished["metadata"]["uid"]))
    api.call("DELETE", f"{jobs.jobs}/report", {"propagationPolicy": "Background"})
    api.wait("the end of its Pods", lambda: not api.call("GET", jobs.pods)["items"])

    alone = ttl("restore", "job/report", "--suspended", "--dry-run")
    assert "1 archived child is not restored" in alone.stdout

    restored = ttl("restore", "job/report", "--suspended", "--children")

    assert restored.returncode == 0, restored.stderr
    again = api.get(f"{jobs.pods}/{pod['metadata']['name']}")
    assert "ownerReferences" not in again["metadata"]
    assert again["spec"]["schedulingGates"]
    time.sleep(2)
    assert api.get(f"{jobs.pods}/{pod['metadata']['name']}") is not None  # the suspended Job does not adopt it
    listed = json.loads(ttl("ls", "-o", "json").stdout)
    assert sorted(one["kind"] for one in listed) == ["Job", "Pod"]


def test_secret_comes_back_only_with_its_data(ttl: Ttl, store: Store, api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for name, is_redacted in (("whole", False), ("redacted", True)):
        secret = api.call("POST", path, {"metadata": {"name": name}, "data": {"a": "eA=="}, "type": "Opaque"})
        store({"apiVersion": "v1", "kind": "Secret", **secret}, redacted=is_redacted)
        api.call("DELETE", f"{path}/{name}")

    whole, redacted = ttl("restore", "secret/whole"), ttl("restore", "secret/redacted")

    assert whole.returncode == 0, whole.stderr
    assert api.get(f"{path}/whole")["data"] == {"a": "eA=="}
    assert redacted.returncode == 1
    assert "its data is not in the archive" in redacted.stderr
    assert api.get(f"{path}/redacted") is None


def test_unserved_kind_is_a_clear_error(ttl: Ttl, store: Store, namespace: str) -> None:
    about = {"name": "one", "namespace": namespace, "uid": "1", "resourceVersion": "1"}
    store({"apiVersion": "tekton.dev/v1alpha1", "kind": "Run", "metadata": about})
    refused = ttl("restore", "Run.tekton.dev/one", "--yes-run-again")
    assert (refused.returncode, "does not serve Run of tekton.dev/v1alpha1" in refused.stderr) == (1, True)


def test_absent_namespace_is_a_clear_error(ttl: Ttl, store: Store) -> None:
    about = {"name": "one", "namespace": "absent", "uid": "1", "resourceVersion": "1"}
    store({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about})
    refused = ttl("restore", "configmaps/one", "-n", "absent")
    assert refused.returncode == 1
    assert "to make it: `kubectl create namespace absent`" in refused.stderr


def test_installed_policy_names_the_archive(server: RealServer, namespace: str) -> None:
    without = run_command(server.kubeconfig, "archive", "ls", "-n", namespace)
    assert without.returncode == 1
    assert "no policy names an archive: nothing is installed in namespace ttl-after-finished" in without.stderr


def test_diff_exits_like_kubectl(ttl: Ttl, store: Store, api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.call("POST", path, {"metadata": {"name": "one"}, "data": {"a": "1"}})
    store(api.get(f"{path}/one"))
    assert ttl("diff", "configmap/one").returncode == 0
    api.call("PATCH", f"{path}/one", {"data": {"a": "2"}})
    changed = ttl("diff", "configmap/one")
    assert (
        changed.returncode,
        [line for line in changed.stdout.splitlines() if line[:2] in ("- ", "+ ", "-a", "+a")],
    ) == (
        1,
        ["-  a: '1'", "+  a: '2'"],
    )
    assert "resourceVersion" in ttl("diff", "configmap/one", "--all-fields").stdout
    api.call("DELETE", f"{path}/one")
    absent = ttl("diff", "configmap/one")
    assert (absent.returncode, "does not exist on" in absent.stderr) == (2, True)


def test_doctor_probes_the_archive_and_finds_what_waits(
    server: RealServer, api: Api, namespace: str, folder: Path, tmp_path: Path
) -> None:
    jobs = Cluster(api, namespace)
    jobs.create_job("report")
    jobs.finish_pods_of("report")
    rule = {"name": "ci", "match": {"kinds": ["jobs"], "namespaces": {"names": [namespace]}}, "archive": {"to": "main"}}
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"archives": {"main": {"url": f"file://{folder}"}}, "rules": [rule]}))

    report = run_command(server.kubeconfig, "doctor", "--policy", str(policy), "-o", "json")

    checks = {one["check"]: one for one in json.loads(report.stdout)}
    assert checks["archive main"]["level"] == "ok"
    assert checks["archive main: clock"]["level"] == "ok"
    waiting = checks["archive: oldest unacknowledged"]
    assert (waiting["level"], f"Job {namespace}/report" in waiting["detail"]) == ("ok", True)

    explained = run_command(
        server.kubeconfig, "explain", "job/report", "-n", namespace, "--policy", str(policy), "-o", "json"
    )
    shown = json.loads(explained.stdout)
    assert (shown["reason"], shown["archive"]["acknowledged"]) == ("no-ttl", False)


@pytest.fixture
def config_map(life_of: Callable[[str], Life], api: Api, namespace: str) -> Any:
    """A ConfigMap `one`, which was deleted."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.call("POST", path, {"metadata": {"name": "one"}, "data": {"a": "b"}})
    obj = api.get(f"{path}/one") | {"apiVersion": "v1", "kind": "ConfigMap"}
    api.call("DELETE", f"{path}/one")
    return obj


def _of_config_map(api: Api, namespace: str) -> Any:
    return api.get(f"/api/v1/namespaces/{namespace}/configmaps/one")


@pytest.mark.parametrize("name", ["default", "prod"])
def test_object_of_another_cluster_is_restored_only_if_its_cluster_is_named(
    name: str, ttl: Ttl, store: Store, here: ArchiveCluster, config_map: Any, api: Api, namespace: str
) -> None:
    other = ArchiveCluster(name, "0a1b2c3d-0000-4000-8000-00000000000e")
    store(config_map, cluster=other)

    # A name without an id is not enough: with --policy, the command does not know the name of the installation.
    words: tuple[list[str], ...] = ([], ["--dry-run"], ["--cluster", name])
    refused = [ttl("restore", "configmap/one", "--yes-run-again", *one) for one in words]

    for one in refused:
        text = " ".join(one.stderr.split())
        assert one.returncode == 2, text
        assert f"from cluster {other} to this cluster, {here} at https://" in text
        assert f"set --cluster {other.part}" in text
    assert _of_config_map(api, namespace) is None
    for word in ("ls", "get"):
        shown = ttl(word, "configmap/one")
        assert f"cluster {other.part}; not this cluster, {here}" in " ".join(shown.stderr.split())

    restored = ttl("restore", "configmap/one", "--yes-run-again", "--cluster", other.part)

    assert restored.returncode == 0, restored.stderr
    assert f"from cluster {other} to this cluster, {here}" in " ".join(restored.stderr.split())
    compared = ttl("diff", "configmap/one")
    assert f"cluster {other.part}; not this cluster, {here}" in " ".join(compared.stderr.split())
    assert _of_config_map(api, namespace)["data"] == {"a": "b"}


def test_object_of_this_cluster_is_preferred_to_one_of_the_same_name(
    ttl: Ttl, store: Store, here: ArchiveCluster, config_map: Any, api: Api, namespace: str
) -> None:
    store(config_map)
    other = ArchiveCluster(here.name, "0a1b2c3d-0000-4000-8000-00000000000e")
    store({**config_map, "data": {"a": "of another cluster"}}, cluster=other)

    restored = ttl("restore", "configmap/one", "--yes-run-again")

    assert restored.returncode == 0, restored.stderr
    assert f"from cluster {here} to this cluster, {here}" in " ".join(restored.stderr.split())
    assert _of_config_map(api, namespace)["data"] == {"a": "b"}


def test_documents_of_this_cluster_under_another_name_are_mentioned(
    ttl: Ttl, store: Store, here: ArchiveCluster, config_map: Any
) -> None:
    former, said = ArchiveCluster("before", here.id), "documents of this cluster under another name; --cluster selects"
    store(config_map)
    assert "another name" not in ttl("ls").stderr
    store({**config_map, "data": {"a": "before"}}, cluster=former)

    for word in ("ls", "get"):
        shown = ttl(word, "configmap/one")
        assert f"{said} them: {former.part}" in " ".join(shown.stderr.split()), shown.stderr
    chosen = ttl("get", "configmap/one", "--cluster", former.part)

    assert yaml.safe_load(chosen.stdout)["data"] == {"a": "before"}
    assert "another name" not in chosen.stderr


def test_object_of_an_unknown_cluster_has_to_be_named(
    ttl: Ttl, folder: Path, config_map: Any, api: Api, namespace: str
) -> None:
    """A version before the ids of clusters stored it."""
    now = datetime.now(UTC).replace(microsecond=0)
    document = Document(Record(archived_at=now), canonical(config_map))
    key = key_of(config_map, document.digest, cluster="default", day=now.date())
    asyncio.run(open_archive("main", f"file://{folder}").put(key, document))

    refused = ttl("restore", "configmap/one", "--yes-run-again")

    assert (refused.returncode, "from cluster default (id unknown)" in refused.stderr) == (2, True), refused.stderr
    assert ttl("restore", "configmap/one", "--yes-run-again", "--cluster", "default").returncode == 0
    assert _of_config_map(api, namespace) is not None
