"""Objects as the API server sends them, as small as a test can read them; the kinds' rules; and the fixtures.

Times are relative to NOW: `job(complete=ago(10))` completed ten seconds before the instant of the decision. No
builder changes what it is given.
"""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from shared.adapters.config.kind_files import read_rule_files
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ANNOTATION_DOMAIN, format_instant

NOW = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=30)

ROOT = Path(__file__).parent.parent
COMMAND = (sys.executable, "-c", "from shared.cli.main import main; main()")
"""`kubectl ttl` as a process of its own."""

FRONT = "shared.adapters.events.http_limits:LimitedHttp"
"""What every uvicorn is started with, as its `--http`."""

FIXTURES = Path(__file__).parent / "fixtures"
KINDS = ROOT / "shared" / "kinds"


T = TypeVar("T")


def not_none(value: T | None) -> T:
    """The value; the test fails here if there is none."""
    assert value is not None
    return value


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def read_yaml(path: Path) -> list[Any]:
    """The documents of a file, read by the C library: the fixtures of all kinds take seconds without it."""
    return list(yaml.load_all(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@cache
def kind_rules() -> Mapping[str, KindRule]:
    """All shipped rules, by their files' names."""
    return {one.path.stem: one.rule for one in read_rule_files()}


def kind_rule(name: str) -> KindRule:
    """A rule of the shipped catalogue, by its file's name."""
    return kind_rules()[name]


@cache
def shipped_kinds() -> Catalogue:
    """The shipped catalogue: reading it takes longer than most tests."""
    return Catalogue(tuple(kind_rules().values()))


JOB = kind_rule("job")
POD = kind_rule("pod")
TRAINJOB = kind_rule("trainjob")
BARE_TRAINJOB = TRAINJOB.model_copy(update={"ttl": None})
"""A kind without a TTL field: only an annotation, a policy or a namespace sets the TTL of its objects."""


@cache
def kind_cases() -> Mapping[str, list[Any]]:
    """The fixtures of each shipped rule, by its file's name: a case has a name, an object and what is expected."""
    return {path.stem: read_yaml(path) for path in sorted((FIXTURES / "kinds").glob("*.yaml"))}


def fixture(name: str) -> dict[str, Any]:
    """A dump of `kubectl get -o yaml --show-managed-fields`, by its file's name."""
    (document,) = read_yaml(FIXTURES / f"{name}.yaml")
    return document


def rule_of(obj: Any) -> KindRule:
    """The shipped rule of the object's kind."""
    return kind_rule(obj["kind"].lower())


def stamp(at: datetime | str | None) -> str | None:
    """An instant as Kubernetes writes it; text and None stay, to build what is malformed."""
    return format_instant(at) if isinstance(at, datetime) else at


def condition(
    kind: str, at: datetime | str | None = None, *, status: str = "True", reason: str = "", message: str = ""
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": stamp(at),
        "lastTransitionTime": stamp(at),
        "reason": reason or kind,
        "message": message,
    }


def job(
    *,
    complete: datetime | str | None = None,
    failed: datetime | str | None = None,
    ttl: Any = None,
    conditions: Any = None,
    name: str = "build-42",
    namespace: str = "ci",
    uid: str = "6f1f8a52-0c7e-4c53-9f0e-0d9a3c1b7e11",
    **annotations: Any,
) -> dict[str, Any]:
    """A Job; finished where an instant is given, with the native TTL where one is."""
    if conditions is None:
        conditions = [condition(kind, at) for kind, at in (("Complete", complete), ("Failed", failed)) if at]
    obj: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, namespace, uid),
        "spec": {"backoffLimit": 6, "parallelism": 1, "completions": 1},
        "status": {"startTime": stamp(LONG_AGO), "conditions": conditions},
    }
    if ttl is not None:
        obj["spec"]["ttlSecondsAfterFinished"] = ttl
    return annotated(obj, **annotations)


def trainjob(
    *,
    complete: datetime | str | None = None,
    failed: datetime | str | None = None,
    conditions: Any = None,
    name: str = "llama-ft",
    namespace: str = "ml",
    uid: str = "0e1b2f6c-7c52-4a1c-8f0a-51f6a6a0d3c2",
    **annotations: Any,
) -> dict[str, Any]:
    """A TrainJob; finished where an instant is given."""
    if conditions is None:
        conditions = [condition(kind, at) for kind, at in (("Complete", complete), ("Failed", failed)) if at]
    obj = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(name, namespace, uid),
        "spec": {"runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"}},
        "status": {"conditions": conditions},
    }
    return annotated(obj, **annotations)


def runtime(ttl: Any = None, *, name: str = "torch-distributed", namespace: str = "") -> dict[str, Any]:
    """The runtime of TrainJobs: with a namespace a TrainingRuntime, else a ClusterTrainingRuntime."""
    kind = "TrainingRuntime" if namespace else "ClusterTrainingRuntime"
    metadata = {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}
    template = {"spec": {"ttlSecondsAfterFinished": 7}}  # of the JobSet: it sets no TTL for TrainJobs
    spec = {"template": template, **({} if ttl is None else {"runPolicy": {"ttlSecondsAfterFinished": ttl}})}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def pod(
    phase: Any = "Succeeded",
    *,
    containers: Any = (),
    init_containers: Any = (),
    ephemeral_containers: Any = (),
    conditions: Any = (),
    declared: tuple[str, ...] | None = None,
    started: datetime | None = LONG_AGO,
    name: str = "build-42-x7k2p",
    namespace: str = "ci",
    uid: str = "b2d1c6a4-5e0e-4a63-8a53-6f2f0e7d1a90",
    **annotations: Any,
) -> dict[str, Any]:
    """A Pod; the spec declares the containers of `containers` unless `declared` says otherwise."""
    containers = _as_json(containers)
    if declared is None:
        declared = tuple(status["name"] for status in containers or () if isinstance(status, dict)) or ("main",)
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, namespace, uid),
        "spec": {"restartPolicy": "Never", "containers": [{"name": each, "image": "busybox"} for each in declared]},
        "status": {
            "phase": phase,
            "startTime": stamp(started),
            "conditions": _as_json(conditions),
            "initContainerStatuses": _as_json(init_containers),
            "containerStatuses": containers,
            "ephemeralContainerStatuses": _as_json(ephemeral_containers),
        },
    }
    return annotated(obj, **annotations)


def namespace(name: str = "ci", *, labels: dict[str, str] | None = None, **annotations: Any) -> dict[str, Any]:
    """A Namespace; `namespace(default_ttl="1h")` says `ttlafterfinished.dev/default-ttl`."""
    metadata = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "7", "labels": labels or {}}
    return annotated({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, **annotations)


def ended(name: str = "main", at: datetime | str | None = None, *, exit_code: int = 0) -> dict[str, Any]:
    """The status of a container that terminated; without an instant, as one whose end no kubelet saw."""
    reason = "ContainerStatusUnknown" if at is None else "Error" if exit_code else "Completed"
    terminated = {"exitCode": exit_code, "reason": reason, "startedAt": stamp(LONG_AGO), "finishedAt": stamp(at)}
    return {"name": name, "ready": False, "restartCount": 0, "state": {"terminated": terminated}, "lastState": {}}


def waiting(name: str = "main") -> dict[str, Any]:
    return {"name": name, "ready": False, "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}


def running(name: str = "main", since: datetime = LONG_AGO) -> dict[str, Any]:
    return {"name": name, "ready": True, "restartCount": 0, "state": {"running": {"startedAt": stamp(since)}}}


def copied(value: Any) -> Any:
    """A copy of JSON, several times faster than `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, list) else value


def annotated(obj: dict[str, Any], **annotations: Any) -> dict[str, Any]:
    """The object with our annotations: `annotated(obj, ttl_failed="1h")` sets `ttlafterfinished.dev/ttl-failed`."""
    obj = copied(obj)
    for name, value in annotations.items():
        key = f"{ANNOTATION_DOMAIN}/{name.replace('_', '-')}"
        obj["metadata"].setdefault("annotations", {})[key] = stamp(value)
    return obj


def owned_by(
    obj: dict[str, Any], kind: str, *, api_version: str = "batch/v1", controller: bool = True
) -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": "owner-uid", "controller": controller}
    return having(obj, "metadata.ownerReferences", [owner])


def created(obj: dict[str, Any], at: datetime | str | None) -> dict[str, Any]:
    return having(obj, "metadata.creationTimestamp", stamp(at))


def status_written(obj: dict[str, Any], *instants: datetime | str | None) -> dict[str, Any]:
    """The object as if its status had been written at these instants, and nothing else of it."""
    writes = [
        {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "subresource": "status", "time": stamp(at)}
        for at in instants
    ]
    return having(obj, "metadata.managedFields", writes)


def having(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of the object with the value at the dotted path."""
    root = copied(obj)
    *parents, last = path.split(".")
    place = root
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return root


def without(obj: dict[str, Any], path: str) -> dict[str, Any]:
    """A copy of the object that lacks the dotted path."""
    root = copied(obj)
    *parents, last = path.split(".")
    place = root
    for key in parents:
        place = place[key]
    place.pop(last, None)
    return root


def _metadata(name: str, namespace: str, uid: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": "1042",
        "creationTimestamp": stamp(LONG_AGO),
    }


def _as_json(values: Any) -> Any:
    return list(values) if isinstance(values, tuple) else values
