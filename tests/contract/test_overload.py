"""What slows the pace down on a real server: a 429 for all kinds, and a slow admission webhook for its kind only."""

import asyncio

import pytest

from shared.adapters.clock import SystemClock
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import format_instant, ref_of
from shared.errors import TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.messages import ObjectDeleted, Purpose, Timer
from shared.safeguards import pace
from shared.safeguards.pace import PERMITS_MIN, Pace
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB, POD
from tests.contract.admission import validating_deletes
from tests.fakes import FakeTelemetry

pytestmark = pytest.mark.anyio

APF = "/apis/flowcontrol.apiserver.k8s.io/v1"
NAME = "refuses-all"
USER = "crowded"
LEVEL = {
    "metadata": {"name": NAME},
    "spec": {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        },
    },
}
SCHEMA = {
    "metadata": {"name": NAME},
    "spec": {
        "priorityLevelConfiguration": {"name": NAME},
        "matchingPrecedence": 10,
        "rules": [
            {
                "subjects": [{"kind": "User", "user": {"name": USER}}],
                "resourceRules": [
                    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
                ],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }
        ],
    },
}


@pytest.fixture
async def crowded(api):
    """A user of whom the API server accepts one request at a time."""
    for plural, body in (("prioritylevelconfigurations", LEVEL), ("flowschemas", SCHEMA)):
        answer = await api.post(f"{APF}/{plural}", body)
        assert answer.status == 201, answer
    yield USER
    for plural in ("flowschemas", "prioritylevelconfigurations"):
        await api.delete(f"{APF}/{plural}/{NAME}")


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_429_of_priority_and_fairness_is_an_overload_with_its_retry_after(cluster, crowded):
    refused: list[TryLaterError] = []
    for _ in range(50):  # one request at a time is accepted, whatever the level says
        requests = (cluster.request("GET", "/version", as_user=crowded) for _ in range(20))
        answers = await asyncio.gather(*requests, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, TryLaterError)]
        if refused:
            break
    assert refused
    assert all(one.is_overload and one.retry_after_seconds >= 1 for one in refused)


TTL = {"annotations": {"ttlafterfinished.dev/ttl": "0s"}}
COUNT = 12
SLOW_SECONDS = 4.0
"""As long as no DELETE takes without a webhook, also on a busy machine."""


async def finished_jobs(api):
    """Jobs that are due."""
    at = format_instant(SystemClock().now().replace(microsecond=0))
    status = {"startTime": at, "completionTime": at, "succeeded": 1}
    kinds = ("SuccessCriteriaMet", "Complete")
    status["conditions"] = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds]
    jobs = [await api.job(f"job-{number}", **TTL) for number in range(COUNT)]
    for job in jobs:
        answer = await api.patch(api.jobs(job["metadata"]["name"]) + "/status", {"status": status})
        assert answer.status == 200, answer
    return jobs


async def failed_pods(api):
    """Pods that are due."""
    pods = [await api.pod(f"pod-{number}", **TTL) for number in range(COUNT)]
    for pod in pods:
        await api.patch(api.pods(pod["metadata"]["name"]) + "/status", {"status": {"phase": "Failed"}})
    return pods


@pytest.fixture
def expiry(cluster):
    kinds, telemetry = Catalogue((JOB, POD)), FakeTelemetry()
    evaluator, few = Evaluator(cluster, kinds), Pace(telemetry, COUNT)
    return Handler(DELETION, cluster, kinds, evaluator, SystemClock(), telemetry, dry_run=False, pace=few)


async def expire_all(expiry, objects):
    timers = [Timer(ref=ref_of(one), purpose=Purpose.EXPIRE, due_at=SystemClock().now()) for one in objects]
    return await asyncio.gather(*(expiry.handle(timer) for timer in timers))


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_slow_webhook_of_one_kind_reduces_the_permits_of_this_kind_only(server, real, api, expiry, monkeypatch):
    monkeypatch.setattr(pace, "SLOW_SECONDS", SLOW_SECONDS)

    async def review(_asked):
        await asyncio.sleep(SLOW_SECONDS + 0.2)
        return {}

    jobs, pods = await finished_jobs(api), await failed_pods(api)
    async with validating_deletes(real, api, "jobs", review, group="batch"):
        await asyncio.sleep(3)  # until the webhook is in force
        answers = [*await asyncio.gather(expire_all(expiry, jobs), expire_all(expiry, pods))]

    assert all(isinstance(one, ObjectDeleted) for of_a_kind in answers for one in of_a_kind)
    paces = dict(expiry.telemetry.paces)
    assert paces == {JOB.name: max(PERMITS_MIN, COUNT // 2), POD.name: COUNT}


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_429_of_a_webhook_is_no_overload(server, real, api, cluster):
    async def review(_asked):
        details = {"retryAfterSeconds": 3}
        return {"allowed": False, "status": {"code": 429, "message": "later", "details": details}}

    job = await api.job("refused")
    async with validating_deletes(real, api, "jobs", review, group="batch"):
        await asyncio.sleep(3)  # until the webhook is in force
        with pytest.raises(TryLaterError, match="admission webhook") as refused:
            await cluster.delete(JOB, job)

    assert (refused.value.retry_after_seconds, refused.value.is_overload) == (3, False)
