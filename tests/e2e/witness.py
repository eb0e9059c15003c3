"""Record every deletion in a namespace with an independent watch, and check it with independent rules."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.e2e.cluster import DOMAIN, kubectl

PATHS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs",
}


@dataclass(frozen=True)
class Deletion:
    """An object as it was when it went, and when that was seen."""

    obj: dict[str, Any]
    seen_at: datetime

    @property
    def name(self) -> str:
        """Kind and name."""
        return f"{self.obj['kind']} {self.obj['metadata']['name']}"

    def earliness(self, stays: "Stays") -> timedelta | None:
        """How much too early it was; None where it was due. Of an object that never was due: for ever."""
        finished_at, ttl = finish_of(self.obj), stays(self.obj)
        if finished_at is None or ttl is None:
            return timedelta.max
        return finished_at + ttl - self.seen_at if self.seen_at < finished_at + ttl else None


Stays = Callable[[dict[str, Any]], timedelta | None]
"""How long a finished object is to stay; None for ever."""


def by_annotation(obj: dict[str, Any]) -> timedelta | None:
    """The TTL of the annotation of an object; None without one or with a hold."""
    annotations = obj["metadata"].get("annotations", {})
    if f"{DOMAIN}/ttl" not in annotations or f"{DOMAIN}/hold" in annotations:
        return None
    return timedelta(seconds=int(annotations[f"{DOMAIN}/ttl"].removesuffix("s")))


def finish_of(obj: dict[str, Any]) -> datetime | None:
    """When it finished, by the status of its controller or kubelet; None while it runs."""
    status = obj.get("status", {})
    if ended := status.get("finishedAt") or status.get("endedAt"):
        return _instant(ended)
    if obj["kind"] == "Pod":
        ends = [one.get("state", {}).get("terminated", {}) for one in status.get("containerStatuses", [])]
        return max(_instant(end["finishedAt"]) for end in ends) if ends and all(ends) else None
    for condition in status.get("conditions", []):
        if condition["type"] in {"Complete", "Failed"} and condition["status"] == "True":
            return _instant(condition["lastTransitionTime"])
        if condition["type"] == "Suspended" and condition["status"] == "True" and (stopped_at := stop_of(obj)):
            return max(stopped_at, _instant(condition["lastTransitionTime"]))
    return None


def stop_of(obj: dict[str, Any]) -> datetime | None:
    """When it was stopped at its active deadline, by the annotation that the stop leaves; None if it was not."""
    stopped_at = obj["metadata"].get("annotations", {}).get(f"{DOMAIN}/deadline-exceeded")
    return datetime.fromisoformat(stopped_at) if stopped_at else None


def _instant(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


@dataclass
class Witness:
    """What other clients than the test deleted in a namespace.

    Objects with a controller owner are left out: the garbage collector deletes them.

    Attributes:
        namespace: Where it looks.
        paths: What it looks at: by kind, the path of its collection.
        stays: How long it holds that an object must stay.
    """

    namespace: str
    paths: Mapping[str, str] = field(default_factory=lambda: PATHS)
    stays: Stays = by_annotation
    deletions: list[Deletion] = field(default_factory=list)
    _ours: set[str] = field(default_factory=set)
    _last: dict[str, str] = field(default_factory=dict)
    _end: threading.Event = field(default_factory=threading.Event)
    _watches: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object as a user does."""
        uid = kubectl("-n", self.namespace, "get", kind, name, "-o", "jsonpath={.metadata.uid}")
        self._ours.add(uid)
        kubectl("-n", self.namespace, "delete", kind, name, "--wait=false")

    def gone(self, uid: str) -> Deletion | None:
        """How an object went, if it went."""
        return next((one for one in self.deletions if one.obj["metadata"]["uid"] == uid), None)

    def last_version(self, uid: str) -> str:
        """The last resourceVersion of an object before it went."""
        return self._last[uid]

    def early(self) -> dict[str, str]:
        """The objects that were deleted too early, and by how much."""
        return {one.name: str(too_early) for one in self.deletions if (too_early := one.earliness(self.stays))}

    @contextmanager
    def watching(self) -> Iterator["Witness"]:
        """Watch until the block ends."""
        threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in self.paths]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._end.set()
            for watch in self._watches.values():
                watch.terminate()
            for thread in threads:
                thread.join(10)

    def _follow(self, kind: str) -> None:
        version = ""
        while not self._end.is_set():
            query = f"watch=true&allowWatchBookmarks=true&resourceVersion={version}"
            path = f"{self.paths[kind].format(self.namespace)}?{query}"
            command = ["kubectl", "get", "--raw", path]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watch:
                self._watches[kind] = watch
                for line in watch.stdout or ():
                    event = json.loads(line)
                    metadata = event["object"].get("metadata", {})
                    version = metadata.get("resourceVersion", "")
                    if event["type"] in {"ADDED", "MODIFIED"} and "deletionTimestamp" not in metadata:
                        self._last[metadata["uid"]] = version
                    elif event["type"] == "DELETED":
                        self._see(event["object"])
            time.sleep(0.5)

    def _see(self, obj: dict[str, Any]) -> None:
        owned = any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences", []))
        if not owned and obj["metadata"]["uid"] not in self._ours:
            self.deletions.append(Deletion(obj, datetime.now(UTC)))


@contextmanager
def witnessed(namespace: str, paths: Mapping[str, str] = PATHS) -> Iterator[Witness]:
    """Record every deletion in a new namespace; at the end, check that none was early or unwanted."""
    kubectl("create", "namespace", namespace)
    with Witness(namespace, paths).watching() as seen:
        yield seen
    assert seen.early() == {}
    kubectl("delete", "namespace", namespace, "--timeout=180s")
