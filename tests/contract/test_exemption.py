"""When an exemption takes effect: on an API server, with safeguards that answer slowly."""

import asyncio
from datetime import timedelta

import pytest

from shared.adapters.clock import SystemClock
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ref_of
from shared.evaluation import namespaces_and_owners as namespaces
from shared.evaluation.evaluator import Evaluator
from shared.messages import Purpose, Timer
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB
from tests.fakes import FakeTelemetry

pytestmark = pytest.mark.anyio

FRESH = 0.3
EXEMPT = {"metadata": {"annotations": {"ttlafterfinished.dev/exempt": "true"}}}
JOBS = 60


class Slow:
    """Safeguards that let everything through, after a while."""

    def __init__(self, act=None, *, seconds=FRESH):
        self.act, self.seconds, self.spared_names = act, seconds, []

    async def ask(self, rule, obj, *, by):
        if self.act:
            await self.act()
        await asyncio.sleep(self.seconds)

    async def ask_brake(self):
        return None

    def deleted(self, obj):
        pass

    def not_deleted(self, rule, ref):
        self.spared_names.append(ref.name)

    def maybe_deleted(self, ref):
        pass


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(namespaces, "NAMESPACE_AGE_SECONDS_MAX", FRESH)


async def due_job(api, name):
    """A Job that finished an hour ago and is due."""
    at = (SystemClock().now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    job = await api.job(name, annotations={"ttlafterfinished.dev/expire-at": at})
    done = [
        {"type": one, "status": "True", "lastTransitionTime": at, "lastProbeTime": at, "reason": "x", "message": ""}
        for one in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": done}
    answer = await api.patch(f"{api.jobs(name)}/status", {"status": status})
    assert answer.status == 200, answer
    return Timer(ref=ref_of(job | {"apiVersion": "batch/v1", "kind": "Job"}), purpose=Purpose.EXPIRE, due_at=at)


def expiry_of(cluster, safeguards):
    kinds = Catalogue((JOB,))
    telemetry = FakeTelemetry()
    return Handler(
        DELETION,
        cluster,
        kinds,
        Evaluator(cluster, kinds),
        SystemClock(),
        telemetry,
        dry_run=False,
        safeguards=safeguards,
    )


async def test_exemption_acknowledged_during_the_safeguards_keeps_the_object(api, cluster):
    async def exempt():
        assert (await api.patch(f"/api/v1/namespaces/{api.namespace}", EXEMPT)).status == 200

    safeguards = Slow(exempt)
    expiry = expiry_of(cluster, safeguards)

    assert await expiry.handle(await due_job(api, "report")) is None

    assert (await api.get(api.jobs("report"))).status == 200
    assert expiry.telemetry.verdicts() == [("kept", "exempt")]
    assert safeguards.spared_names == ["report"]


@pytest.mark.realtime
async def test_delete_is_not_sent_later_than_the_bound_after_an_exemption(api, cluster, monkeypatch):
    timers = [await due_job(api, f"job-{number}") for number in range(JOBS)]
    loop, sent, delete = asyncio.get_running_loop(), [], cluster.delete

    async def delete_and_note(rule, obj, **options):
        sent.append(loop.time())
        return await delete(rule, obj, **options)

    monkeypatch.setattr(cluster, "delete", delete_and_note)
    expiry = expiry_of(cluster, Slow(seconds=FRESH / 2))

    async def work():
        while timers:
            await expiry.handle(timers.pop())

    workers = [asyncio.create_task(work()) for _ in range(6)]
    while len(sent) < JOBS // 6 and timers:
        await asyncio.sleep(0.01)
    assert (await api.patch(f"/api/v1/namespaces/{api.namespace}", EXEMPT)).status == 200
    exempt_at = loop.time()
    await asyncio.gather(*workers)

    assert max(sent) - exempt_at <= FRESH
    kept = (await api.get(api.path("jobs", group="batch"))).names
    assert len(kept) == JOBS - len(sent)
    assert kept
