"""The demo: Jobs and Pods finish on an API server, and the runner deletes those that are due.

The API server and the runner are real. Only the finish of each object is simulated: the demo writes the status that a
Job controller or a kubelet would write. The end of the module has these objects, as manifests.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shared.adapters.archive.open_archive import open_archive
from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.cluster import KubernetesCluster, Memory
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.creation import ObjectCreation
from shared.adapters.kubernetes.requests import resource_path
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.core.archive.identity import ArchiveCluster
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ANNOTATION_DOMAIN, format_instant, get_text
from shared.devserver.apiserver.app import EmbeddedApiServer, serve, write_kubeconfig
from shared.devserver.apiserver.store import Store
from shared.devserver.real_servers import RealServer, find_assets
from shared.evaluation.archive_identity import ClusterIdentity
from shared.ports import Clock
from shared.standalone.runner import Runner
from shared.usecases.archives.search import ArchiveSelection, Wanted, choose, find_versions
from shared.usecases.restore import RestoreOptions, restore

NAMESPACE = "demo"
PATIENCE = timedelta(seconds=10)
"""How long the demo waits after the last object was due; an object that still exists then is left over."""

_ARCHIVE = "main"
"""The name of the archive, also in the annotation of the object."""


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


class Show:
    """Creates and finishes the objects on a cluster, and watches their deletion, independently of the runner.

    Args:
        cluster: A connection that the runner does not use.
        clock: The clock for finish times and deletion times.
        archive: The URL of the archive.
    """

    def __init__(self, cluster: KubernetesCluster, clock: Clock, archive: str) -> None:
        self.actors = cast()
        self._archive = archive
        self._cluster, self._clock = cluster, clock
        self._rules = {rule.kind: rule for rule in read_catalogue().parse_names(("jobs.batch", "pods")).rules}

    async def play(self) -> None:
        """Create all objects, finish each at its time, and wait until all due objects are gone, or PATIENCE is over."""
        await self._cluster.request("POST", "/api/v1/namespaces", body=manifest_of("v1", "Namespace", NAMESPACE))
        versions = {kind: await self._version(self._rules[kind]) for kind in ("Job", "Pod")}
        for actor in self.actors:
            await self._create(actor)
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(self._watch(self._rules[kind], since)) for kind, since in versions.items()]
            acts = [group.create_task(self._finish(actor)) for actor in self.actors if actor.finish_after is not None]
            await asyncio.wait(acts)
            await self._settle()
            await self._restore()
            for watch in watches:
                watch.cancel()

    @property
    def left_over(self) -> list[Actor]:
        """The objects that are expected to be gone, but exist."""
        return [actor for actor in self.actors if actor.ttl is not None and actor.gone_at is None]

    async def _settle(self) -> None:
        dues = [actor.due_at for actor in self.actors if actor.due_at is not None]
        while self.left_over and self._clock.now() < max(dues) + PATIENCE:  # noqa: ASYNC110 - a deadline in wall time
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)  # time for a wrong deletion of an object that must stay

    async def _restore(self) -> None:
        """Restore the archived objects that are gone, and give the runner time to delete them by mistake."""
        kinds, name = read_catalogue(), read_settings(environment={}).cluster_name
        here = await ClusterIdentity.of(name, self._cluster).find()
        for actor in self.actors:
            if actor.is_restored and actor.gone_at is not None:
                place = (NAMESPACE, actor.kind, actor.name)
                actor.restored_as = await _restore_one(self._archive, self._cluster, kinds, place=place, here=here)
        await asyncio.sleep(1)

    async def _version(self, rule: KindRule) -> str:
        return (await self._cluster.list_page(rule, namespace=NAMESPACE, limit=1)).resource_version

    async def _create(self, actor: Actor) -> None:
        rule = self._rules[actor.kind]
        manifest = manifest_of(rule.api_version, rule.kind, actor.name)
        manifest["metadata"]["annotations"] = our_annotations(actor.annotations)
        if actor.owner:
            owner = next(one for one in self.actors if one.name == actor.owner)
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner.name, "uid": owner.uid}
            manifest["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        manifest["spec"] = pod_spec() if actor.kind == "Pod" else job_spec(actor.ttl_field)
        answer = await self._cluster.request("POST", resource_path(rule, NAMESPACE), body=manifest)
        actor.uid = get_text(answer and answer.body, "metadata.uid")

    async def _finish(self, actor: Actor) -> None:
        await asyncio.sleep(actor.finish_after or 0)
        actor.finished_at = self._clock.now().replace(microsecond=0)
        at = format_instant(actor.finished_at)
        status = pod_status(actor.outcome, at) if actor.kind == "Pod" else job_status(actor.outcome, at)
        await self._patch(actor, {"status": status}, "/status")
        if actor.later:
            await asyncio.sleep(1)
            await self._patch(actor, {"metadata": {"annotations": our_annotations(actor.later)}})

    async def _patch(self, actor: Actor, patch: dict[str, Any], subresource: str = "") -> None:
        path = f"{resource_path(self._rules[actor.kind], NAMESPACE)}/{actor.name}{subresource}"
        await self._cluster.request("PATCH", path, body=patch)

    async def _watch(self, rule: KindRule, version: str) -> None:
        async for change in self._cluster.watch(rule, version, namespace=NAMESPACE):
            for actor in self.actors:
                if change.type != "DELETED":
                    continue
                uid = get_text(change.obj, "metadata.uid")
                if uid == actor.uid:
                    actor.gone_at = self._clock.now()
                elif uid == actor.restored_as:
                    actor.restored_as = ""


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[tuple[str, Path]]:
    """Start an API server: a real kube-apiserver if its binaries are found, else the embedded one.

    Yields:
        A description of the API server, and its kubeconfig.
    """
    assets = find_assets()
    if assets is None:
        async with serve(EmbeddedApiServer(Store(lambda: datetime.now(UTC)))) as url:  # noqa: TID251 - a server's own clock
            yield "the embedded API server (no kube-apiserver was found)", write_kubeconfig(folder / "kubeconfig", url)
        return
    server = await asyncio.to_thread(RealServer, assets, folder)
    try:
        yield f"a real kube-apiserver from {assets}", server.kubeconfig
    finally:
        await asyncio.to_thread(server.stop)


@asynccontextmanager
async def running_show() -> AsyncIterator[tuple[str, Show, asyncio.Task[None]]]:
    """Start an API server, the runner on it, and the show.

    Yields:
        A description of the API server, the show, and the task that plays it.
    """
    with tempfile.TemporaryDirectory(prefix="ttl-demo-") as home:
        async with api_server(Path(home)) as (what, kubeconfig):
            values = {"TTL_TIMERS": f"sqlite:{home}/timers.db", "TTL_POLICY": str(_write_policy(Path(home)))}
            settings = read_settings(values, environment={})
            cluster = await connect(kubeconfig=str(kubeconfig), memory=Memory())
            show_cluster = await connect(kubeconfig=str(kubeconfig))
            config = read_config(settings, cluster=cluster, home_namespace="")
            runner = asyncio.create_task(Runner(build(config), cluster).run())
            show = Show(show_cluster, config.clock, _archive_url(Path(home)))
            playing = asyncio.create_task(show.play())
            try:
                yield what, show, playing
            finally:
                playing.cancel()
                runner.cancel()
                with suppress(asyncio.CancelledError):
                    await runner
                await show_cluster.close()
                await cluster.close()


def _write_policy(folder: Path) -> Path:
    """Write a policy with an archive in a folder; return its file."""
    path = folder / "policy.yaml"
    archives = {_ARCHIVE: {"url": _archive_url(folder)}}
    path.write_text(json.dumps({"archives": archives}))
    return path


def _archive_url(folder: Path) -> str:
    """Return the URL of the archive."""
    return f"file://{folder}/archive"


async def _restore_one(
    url: str, cluster: KubernetesCluster, kinds: Catalogue, *, place: tuple[str, str, str], here: ArchiveCluster
) -> str:
    """Create an archived object again, suspended, as `archive restore --suspended` does; return its new uid.

    Args:
        url: The archive.
        cluster: Where the object is created.
        kinds: All known kinds.
        place: The namespace, the kind and the name of the object.
        here: The cluster, as the archive names it.

    Raises:
        TtlError: It is not in the archive, or cannot be created.
    """
    namespace, kind, name = place
    archive = open_archive(_ARCHIVE, url)
    selection = ArchiveSelection(here.part, (namespace,), lambda _, one: one == kind, name)
    found = await find_versions(archive, selection)
    chosen = choose(found, Wanted(), what=f"{kind} {namespace}/{name}")
    document = await archive.read(chosen.stored.key)
    options = RestoreOptions(suspended=True, archive=_ARCHIVE)
    (restored,) = await restore([document], options, creator=ObjectCreation(cluster), kinds=kinds)
    return get_text(restored.snapshot.obj, "metadata.uid")


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
