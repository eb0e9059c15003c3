"""The main job on show: a handful of Jobs and Pods that finish, and what becomes of each.

What is shown is the real thing: an API server, and the runner on it. Only the end of each object is played, by
writing the status that a Job controller or a kubelet would write.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.watched_versions import Memory
from shared.bootstrap.world import World
from shared.core.kinds.rule import KindRule
from shared.core.objects import ANNOTATION_DOMAIN, format_instant, get_text
from shared.devserver.apiserver.app import ApiServer
from shared.devserver.apiserver.serve import serve, write_kubeconfig
from shared.devserver.apiserver.store import Store
from shared.devserver.real_servers import RealServer, find_assets
from shared.ports import Clock
from shared.standalone.runner import Runner

NAMESPACE = "demo"
PATIENCE = timedelta(seconds=10)
"""How long after the last object was due it may take until it counts as left over."""


@dataclass
class Actor:
    """One object of the show.

    Attributes:
        story: What it is there for.
        finish_after: Seconds from the start until it finishes; None: it never does.
        ttl: Seconds from its finish until it is due; None: it must stay.
        status: How it finishes.
        spec: Of the object.
        annotations: Of ours, without their domain.
        owner: The name of the Job that controls it.
        later: Annotations that somebody sets a second after it finished.
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
    finished_at: datetime | None = None
    gone_at: datetime | None = None
    uid: str = ""

    @property
    def due_at(self) -> datetime | None:
        """When it is to be deleted; None while unknown, and for what stays."""
        if self.finished_at is None or self.ttl is None:
            return None
        return self.finished_at + timedelta(seconds=self.ttl)

    @property
    def problem(self) -> str:
        """What went wrong; empty while all is well."""
        if self.gone_at is None:
            return ""
        if self.ttl is None:
            return "deleted, but it had to stay"
        return "early" if self.due_at is None or self.gone_at < self.due_at else ""


def cast() -> list[Actor]:
    """Everybody in the show."""
    return [
        Actor("Job", "build-1", "ttlSecondsAfterFinished: 2", 1, 2, ttl_field=2),
        Actor("Job", "build-2", "ttlSecondsAfterFinished: 5", 1, 5, ttl_field=5),
        Actor("Job", "tests", "ttl-failed: 3s before the field's hour", 2, 3, "failed", 3600, {"ttl-failed": "3s"}),
        Actor("Job", "report", "ttl raised from 2s to 8s in time", 2, 8, ttl_field=2, later={"ttl": "8s"}),
        Actor(
            "Job", "release", "hold: somebody still looks at it", 1, None, ttl_field=1, annotations={"hold": "audit"}
        ),
        Actor("Job", "backup", "finished, but nothing gives it a TTL", 1, None),
        Actor("Job", "import", "a TTL nobody can read: kept, and said so", 1, None, annotations={"ttl": "5 minutes"}),
        Actor("Job", "training", "has a TTL, but still runs", None, None, ttl_field=1),
        Actor("Pod", "hello", "annotation ttl: 4s", 1, 4, annotations={"ttl": "4s"}),
        Actor("Pod", "crash", "annotation ttl-failed: 6s", 2, 6, "failed", annotations={"ttl-failed": "6s"}),
        Actor("Pod", "worker-0", "its Job still runs", 1, None, annotations={"ttl": "1s"}, owner="training"),
    ]


class Show:
    """Plays the cast on a cluster and watches what becomes of it, independently of the runner.

    Args:
        cluster: A connection of its own.
        clock: For finish times and for what is seen.
    """

    def __init__(self, cluster: KubernetesCluster, clock: Clock) -> None:
        self.actors = cast()
        self._cluster, self._clock = cluster, clock
        self._rules = {rule.kind: rule for rule in read_catalogue().parse_names(("jobs.batch", "pods")).rules}

    async def play(self) -> None:
        """Create all, finish each at its time, and return when all that should be gone is, or patience is over."""
        await self._cluster.request("POST", "/api/v1/namespaces", body=_manifest("v1", "Namespace", NAMESPACE))
        versions = {kind: await self._version(self._rules[kind]) for kind in ("Job", "Pod")}
        for actor in self.actors:
            await self._create(actor)
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(self._watch(self._rules[kind], since)) for kind, since in versions.items()]
            acts = [group.create_task(self._finish(actor)) for actor in self.actors if actor.finish_after is not None]
            await asyncio.wait(acts)
            await self._settle()
            for watch in watches:
                watch.cancel()

    @property
    def left_over(self) -> list[Actor]:
        """What should be gone by now."""
        return [actor for actor in self.actors if actor.ttl is not None and actor.gone_at is None]

    async def _settle(self) -> None:
        dues = [actor.due_at for actor in self.actors if actor.due_at is not None]
        while self.left_over and self._clock.now() < max(dues) + PATIENCE:  # noqa: ASYNC110 - a deadline in wall time
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)  # a moment for what must stay to be deleted wrongly

    async def _version(self, rule: KindRule) -> str:
        return (await self._cluster.list_page(rule, namespace=NAMESPACE, limit=1)).resource_version

    async def _create(self, actor: Actor) -> None:
        rule = self._rules[actor.kind]
        manifest = _manifest(rule.api_version, rule.kind, actor.name)
        manifest["metadata"]["annotations"] = _ours(actor.annotations)
        if actor.owner:
            owner = next(one for one in self.actors if one.name == actor.owner)
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner.name, "uid": owner.uid}
            manifest["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        manifest["spec"] = _pod_spec() if actor.kind == "Pod" else _job_spec(actor.ttl_field)
        answer = await self._cluster.request("POST", rule.path_in(NAMESPACE), body=manifest)
        actor.uid = get_text(answer and answer.body, "metadata.uid")

    async def _finish(self, actor: Actor) -> None:
        await asyncio.sleep(actor.finish_after or 0)
        actor.finished_at = self._clock.now().replace(microsecond=0)
        at = format_instant(actor.finished_at)
        status = _pod_status(actor.outcome, at) if actor.kind == "Pod" else _job_status(actor.outcome, at)
        await self._patch(actor, {"status": status}, "/status")
        if actor.later:
            await asyncio.sleep(1)
            await self._patch(actor, {"metadata": {"annotations": _ours(actor.later)}})

    async def _patch(self, actor: Actor, patch: dict[str, Any], subresource: str = "") -> None:
        path = f"{self._rules[actor.kind].path_in(NAMESPACE)}/{actor.name}{subresource}"
        await self._cluster.request("PATCH", path, body=patch)

    async def _watch(self, rule: KindRule, version: str) -> None:
        async for change in self._cluster.watch(rule, version, namespace=NAMESPACE):
            for actor in self.actors:
                if change.type == "DELETED" and actor.uid == get_text(change.obj, "metadata.uid"):
                    actor.gone_at = self._clock.now()


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[tuple[str, Path]]:
    """An API server of its own: a real kube-apiserver where its binaries are found, else the embedded one.

    Yields:
        What it is, in words, and a kubeconfig for it.
    """
    assets = find_assets()
    if assets is None:
        async with serve(ApiServer(Store(lambda: datetime.now(UTC)))) as url:  # noqa: TID251 - a server's own clock
            yield "the embedded API server (no kube-apiserver was found)", write_kubeconfig(folder / "kubeconfig", url)
        return
    server = await asyncio.to_thread(RealServer, assets, folder)
    try:
        yield f"a real kube-apiserver from {assets}", server.kubeconfig
    finally:
        await asyncio.to_thread(server.stop)


@asynccontextmanager
async def running_show() -> AsyncIterator[tuple[str, Show, asyncio.Task[None]]]:
    """An API server, the runner on it, and the show as a task.

    Yields:
        What the API server is, the show, and the task that ends with it.
    """
    with tempfile.TemporaryDirectory(prefix="ttl-demo-") as home:
        async with api_server(Path(home)) as (what, kubeconfig):
            kinds = read_catalogue()
            settings = read_settings({"TTL_TIMERS_PATH": f"{home}/timers.db"}, environment={})
            cluster = await connect(kubeconfig=str(kubeconfig), memory=Memory())
            stage = await connect(kubeconfig=str(kubeconfig))
            world = World(settings, kinds, kinds, cluster=cluster)
            runner = asyncio.create_task(Runner(world, cluster).run())
            show = Show(stage, world.clock)
            playing = asyncio.create_task(show.play())
            try:
                yield what, show, playing
            finally:
                playing.cancel()
                runner.cancel()
                with suppress(asyncio.CancelledError):
                    await runner
                await stage.close()
                await cluster.close()


def _manifest(api_version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def _ours(annotations: dict[str, str]) -> dict[str, str]:
    return {f"{ANNOTATION_DOMAIN}/{name}": value for name, value in annotations.items()}


def _pod_spec() -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/demo:1"}]}


def _job_spec(ttl_seconds: int | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"spec": _pod_spec()}}
    return spec if ttl_seconds is None else {**spec, "ttlSecondsAfterFinished": ttl_seconds}


def _job_status(outcome: str, at: str) -> dict[str, Any]:
    """What the Job controller writes: the interim condition beside the terminal one."""
    types = ("SuccessCriteriaMet", "Complete") if outcome == "succeeded" else ("FailureTarget", "Failed")
    conditions = [{"type": one, "status": "True", "lastTransitionTime": at, "lastProbeTime": at} for one in types]
    status = {"startTime": at, "conditions": conditions}
    return {**status, "completionTime": at} if outcome == "succeeded" else status


def _pod_status(outcome: str, at: str) -> dict[str, Any]:
    """What a kubelet writes."""
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
