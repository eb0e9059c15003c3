"""How `expire` handles an object that changes between its read and its DELETE, and each 409, on real servers."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from shared.adapters.clock import SystemClock
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import format_instant, ref_of
from shared.errors import PermanentError
from shared.evaluation.evaluator import Evaluator
from shared.messages import ObjectDeleted, Purpose, Timer
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB, POD
from tests.contract.admission import validating_deletes
from tests.fakes import FakeTelemetry

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD))


@pytest.fixture
def telemetry():
    return FakeTelemetry()


@pytest.fixture
def expiry(cluster, telemetry):
    return Handler(DELETION, cluster, KINDS, Evaluator(cluster, KINDS), SystemClock(), telemetry, dry_run=False)


def fired(obj):
    return Timer(ref=ref_of(obj), purpose=Purpose.EXPIRE, due_at=SystemClock().now())


async def finished_job(api, **metadata):
    """A Job that is due: it finished an hour ago."""
    job = await api.job("a", annotations={"ttlafterfinished.dev/ttl": "0s"}, **metadata)
    at = format_instant(SystemClock().now().replace(microsecond=0) - timedelta(hours=1))
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": at} for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"conditions": conditions, "startTime": at, "completionTime": at, "succeeded": 1}
    answer = await api.patch(api.jobs("a") + "/status", {"status": status})
    assert answer.status == 200, answer
    return job


def after_the_read(cluster, act):
    """Have something done once, between a read of an object and what follows from it."""
    read = cluster.get

    async def get(rule, ref):
        cluster.get = read
        snapshot = await read(rule, ref)
        await act()
        return snapshot

    cluster.get = get


@pytest.mark.smoke
async def test_expire_keeps_a_job_that_is_held_after_the_read(api, cluster, expiry, telemetry):
    job = await finished_job(api)

    async def hold():
        held = {"metadata": {"annotations": {"ttlafterfinished.dev/hold": "why"}}}
        assert (await api.patch(api.jobs("a"), held)).status == 200

    after_the_read(cluster, hold)

    assert await expiry.handle(fired(job)) is None
    assert (await api.get(api.jobs("a"))).status == 200
    assert telemetry.verdicts() == [("kept", "held")]


@pytest.mark.smoke
@pytest.mark.parametrize("when", ["before", "after"])
async def test_expire_keeps_a_job_that_was_made_again_before_or_after_the_read(api, cluster, expiry, telemetry, when):
    """The new one is due, too: this timer is not its own."""
    job, uids = await finished_job(api), []

    async def make_again():
        await api.delete(api.jobs("a"), {"propagationPolicy": "Background"})
        uids.append((await finished_job(api))["metadata"]["uid"])

    if when == "before":
        await make_again()
    else:
        after_the_read(cluster, make_again)

    assert await expiry.handle(fired(job)) is None
    assert (await api.get(api.jobs("a"))).meta["uid"] == uids[0] != job["metadata"]["uid"]
    assert telemetry.deletions == []
    assert telemetry.verdicts() == [("already-gone", "")]


@pytest.mark.parametrize("finalizer", ["orphan", "foregroundDeletion"])
async def test_expire_reports_a_job_that_every_delete_is_refused_for(api, expiry, telemetry, finalizer):
    job = await finished_job(api, finalizers=[finalizer])

    with pytest.raises(PermanentError, match=f"409.*unchanged.*finalizer {finalizer}"):
        await expiry.handle(fired(job))

    assert (await api.get(api.jobs("a"))).status == 200
    assert telemetry.verdicts() == [("failed", "PermanentError")]


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_expire_treats_a_job_marked_by_another_client_as_deleted(api, cluster, expiry, telemetry, propagation):
    job = await finished_job(api, finalizers=["example.com/keep"])

    async def mark():
        await api.delete(api.jobs("a"), {"propagationPolicy": propagation})

    after_the_read(cluster, mark)

    assert await expiry.handle(fired(job)) is None
    assert telemetry.deletions == []
    assert telemetry.verdicts() == [("already-gone", "")]


@asynccontextmanager
async def written_between_the_two_steps(real, api):
    """A kubelet's write between the two steps of a terminal Pod's DELETE: an admission webhook is asked at both."""
    steps = []

    async def review(asked):
        if not asked["dryRun"]:
            steps.append("deletionTimestamp" in asked["oldObject"]["metadata"])
        if steps and steps[-1]:
            await api.patch(api.pods("p") + "/status", {"status": {"message": "the kubelet was here"}})
        return {}

    async with validating_deletes(real, api, "pods", review):
        yield steps


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_expire_deletes_a_terminal_pod_that_is_written_between_the_two_steps(
    server, real, api, expiry, telemetry
):
    """The write itself removes the Pod, since it is marked with no grace period left; the answer is still 200."""
    pod = await api.pod("p", annotations={"ttlafterfinished.dev/ttl": "0s"})
    await api.patch(api.pods("p") + "/status", {"status": {"phase": "Failed", "reason": "Evicted"}})
    await asyncio.sleep(1)
    async with written_between_the_two_steps(real, api) as steps:
        await asyncio.sleep(3)  # until the webhook is in force
        answer = await expiry.handle(fired(pod))

    assert steps == [False, True]
    assert telemetry.deletions == [answer]
    assert isinstance(answer, ObjectDeleted)
    assert (await api.get(api.pods("p"))).status == 404
    assert await expiry.handle(fired(pod)) is None
    assert telemetry.verdicts() == [("already-gone", "")]
