"""The whole runner while CRDs come, go and change: what it watches, and whether its timers still find their objects."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from shared.adapters.clock import SystemClock
from shared.adapters.config.settings import Settings
from shared.adapters.config.timers_address import SqliteAddress
from shared.adapters.kubernetes import discovery
from shared.adapters.kubernetes.cluster import Memory
from shared.adapters.kubernetes.connect import connect
from shared.bootstrap.build import build
from shared.bootstrap.config import ProcessConfig
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import format_instant
from shared.source import watches
from shared.standalone.runner import Runner
from tests.fakes import FakeTelemetry

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Looks that are half a minute apart elsewhere."""
    monkeypatch.setattr(discovery, "ABSENT_KIND_SECONDS", 0.1)
    monkeypatch.setattr(discovery, "REREAD_SECONDS", 0.0)
    monkeypatch.setattr(watches, "ABSENT_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(watches, "SWEEP_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(watches, "SERVED_POLL_SECONDS", 0.2)


@asynccontextmanager
async def running(server, api, tmp_path, *rules):
    """The runner on the test's namespace; its telemetry holds what it saw."""
    telemetry = FakeTelemetry()
    kinds = Catalogue(rules)
    cluster = await connect(kubeconfig=str(server.kubeconfig), memory=Memory())
    config = ProcessConfig(
        settings=Settings().model_copy(update={"timers": SqliteAddress(tmp_path / "timers.db")}),
        kinds=kinds,
        catalogue=kinds,
        telemetry=telemetry,
        cluster=cluster,
        namespace=api.namespace,
    )
    task = asyncio.create_task(Runner(build(config), cluster).run())
    try:
        yield telemetry
    finally:
        task.cancel()
        await asyncio.wait([task])
        await cluster.close()
    assert task.cancelled(), "it must not have ended by itself"


async def finished(crds, version, plural, kind, name, ttl):
    """An object that finishes after its creation, which the real API server may put off by two seconds."""
    await crds.create(version, plural, kind, name, spec={"ttlSecondsAfterFinished": ttl})
    at = format_instant(SystemClock().now().replace(microsecond=0))
    done = {"type": "Complete", "status": "True", "lastTransitionTime": at}
    path = crds.api.path(plural, name, group=crds.group, version=version)
    assert (await crds.api.patch(path, {"status": {"conditions": [done]}})).status == 200


async def deleted(telemetry, *names):
    await until(lambda: {one.ref.name for one in telemetry.deletions} == set(names))


def troubles(telemetry):
    """What went wrong, but for a server that has to make the storage of a new CRD first: that is tried again."""
    return [fields for _, fields in telemetry.problems if "(re)initializing" not in str(fields.get("error"))]


async def until(true, seconds=30):
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.05)


async def test_kind_whose_crd_is_installed_later_is_watched(server, api, crds, tmp_path):
    async with running(server, api, tmp_path, crds.rule("Run", "runs", "v1")) as telemetry:
        await crds.install("Run", "runs", "v1")
        await finished(crds, "v1", "runs", "Run", "one", 0)
        await deleted(telemetry, "one")

    assert troubles(telemetry) == []


async def test_timer_finds_its_object_after_its_version_is_no_longer_served(server, api, crds, tmp_path):
    await crds.install("Run", "runs", "v1beta1", "v1alpha1")
    async with running(server, api, tmp_path, crds.rule("Run", "runs", "v1beta1", "v1alpha1")) as telemetry:
        await until(lambda: telemetry.swept_kinds)
        await finished(crds, "v1beta1", "runs", "Run", "patient", 5)
        await until(lambda: ("timer-set", "not-due") in telemetry.verdicts())
        await crds.unserve("runs", "v1beta1")
        await deleted(telemetry, "patient")
        await finished(crds, "v1alpha1", "runs", "Run", "next", 0)
        await deleted(telemetry, "patient", "next")

    assert [str(one.ref) for one in telemetry.deletions] == [
        f"Run {api.namespace}/{name}" for name in ("patient", "next")
    ]
    assert troubles(telemetry) == []


async def test_kind_whose_crd_is_removed_returns_in_another_version_and_stops_no_other(server, api, crds, tmp_path):
    await crds.install("Run", "runs", "v1")
    await crds.install("PodChaos", "podchaos", "v1")
    rules = crds.rule("Run", "runs", "v1", "v2"), crds.rule("PodChaos", "podchaoses", "v1")
    async with running(server, api, tmp_path, *rules) as telemetry:
        await until(lambda: {"Run", "PodChaos"} <= set(telemetry.swept_kinds))
        await crds.remove("runs")
        await finished(crds, "v1", "podchaos", "PodChaos", "one", 0)
        await deleted(telemetry, "one")
        await crds.install("Run", "runs", "v2")
        await finished(crds, "v2", "runs", "Run", "two", 0)
        await deleted(telemetry, "one", "two")

    assert {one.ref.api_version for one in telemetry.deletions} == {f"{crds.group}/v1", f"{crds.group}/v2"}
    assert troubles(telemetry) == []
