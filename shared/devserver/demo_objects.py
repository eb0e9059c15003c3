"""The objects of the demo: what each shows, its manifest, and the status with which it finishes."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.core.values.objects import ANNOTATION_DOMAIN


@dataclass
class Actor:
    """One object of the demo.

    Attributes:
        kind: The kind, Job or Pod.
        name: The name.
        story: What the object shows; at most 26 characters, so that its row is one line of a terminal of 80 columns.
        finish_after: Seconds from the start until the object finishes; None if it never finishes.
        ttl: Seconds from its finish until it is due; None if it is expected to stay.
        outcome: How it finishes: succeeded or failed.
        ttl_field: The value of spec.ttlSecondsAfterFinished; None to leave it out.
        annotations: Our annotations, without their domain.
        owner: The name of the Job that controls the object; empty for none.
        later: Annotations that the demo sets one second after the finish.
        is_restored: Whether the demo restores the object from the archive after its deletion.
        finished_at: When the object finished; None until then.
        gone_at: When a watch saw its deletion; None until then.
        restored_as: The uid of the restored object; empty until then.
        uid: The uid that the API server gave it.
    """

    kind: str
    name: str
    story: str
    finish_after: float | None
    ttl: int | None
    outcome: str = "succeeded"
    ttl_field: int | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    owner: str = ""
    later: dict[str, str] = field(default_factory=dict)
    is_restored: bool = False
    finished_at: datetime | None = None
    gone_at: datetime | None = None
    restored_as: str = ""
    uid: str = ""

    @property
    def due_at(self) -> datetime | None:
        """When the object is due; None before it finishes, and for an object that is expected to stay."""
        if self.finished_at is None or self.ttl is None:
            return None
        return self.finished_at + timedelta(seconds=self.ttl)

    @property
    def problem(self) -> str:
        """What went wrong; empty if nothing did."""
        if self.gone_at is None:
            return ""
        if self.ttl is None:
            return "deleted, but expected to stay"
        return "early" if self.due_at is None or self.gone_at < self.due_at else ""


_ARCHIVED = {"ttl": "3s", "archive": "main"}


def cast() -> list[Actor]:
    """Return the objects of the demo."""
    return [
        Actor("Job", "build-1", "ttlSecondsAfterFinished: 2", 1, 2, ttl_field=2),
        Actor("Job", "build-2", "ttlSecondsAfterFinished: 5", 1, 5, ttl_field=5),
        Actor("Job", "tests", "ttl-failed: 3s, not 1h", 2, 3, "failed", 3600, {"ttl-failed": "3s"}),
        Actor("Job", "report", "ttl raised from 2s to 8s", 2, 8, ttl_field=2, later={"ttl": "8s"}),
        Actor("Job", "release", "hold: kept until released", 1, None, ttl_field=1, annotations={"hold": "audit"}),
        Actor("Job", "backup", "finished, without a TTL", 1, None),
        Actor("Job", "import", "invalid TTL: reported", 1, None, annotations={"ttl": "5 minutes"}),
        Actor("Job", "deploy", "archived, then restored", 1, 3, annotations=_ARCHIVED, is_restored=True),
        Actor("Job", "training", "has a TTL, but is running", None, None, ttl_field=1),
        Actor("Pod", "hello", "annotation ttl: 4s", 1, 4, annotations={"ttl": "4s"}),
        Actor("Pod", "crash", "annotation ttl-failed: 6s", 2, 6, "failed", annotations={"ttl-failed": "6s"}),
        Actor("Pod", "worker-0", "its Job is running", 1, None, annotations={"ttl": "1s"}, owner="training"),
    ]


def manifest_of(api_version: str, kind: str, name: str) -> dict[str, Any]:
    """Make a manifest without a spec."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def our_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """Add the annotation domain to the names of annotations."""
    return {f"{ANNOTATION_DOMAIN}/{name}": value for name, value in annotations.items()}


def pod_spec() -> dict[str, Any]:
    """Make the spec of a Pod."""
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/demo:1"}]}


def job_spec(ttl_seconds: int | None) -> dict[str, Any]:
    """Make the spec of a Job."""
    spec: dict[str, Any] = {"template": {"spec": pod_spec()}}
    return spec if ttl_seconds is None else {**spec, "ttlSecondsAfterFinished": ttl_seconds}


def job_status(outcome: str, at: str) -> dict[str, Any]:
    """Make the status that the Job controller writes: an interim condition and the terminal one."""
    types = ("SuccessCriteriaMet", "Complete") if outcome == "succeeded" else ("FailureTarget", "Failed")
    conditions = [{"type": one, "status": "True", "lastTransitionTime": at, "lastProbeTime": at} for one in types]
    status = {"startTime": at, "conditions": conditions}
    return {**status, "completionTime": at} if outcome == "succeeded" else status


def pod_status(outcome: str, at: str) -> dict[str, Any]:
    """Make the status that a kubelet writes."""
    code = 0 if outcome == "succeeded" else 1
    terminated = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": at, "finishedAt": at}
    container = {
        "name": "main",
        "image": "example.com/demo:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": terminated},
    }
    return {"phase": "Succeeded" if code == 0 else "Failed", "startTime": at, "containerStatuses": [container]}
