"""A proxy before the API server that writes its own Date: what is due by that alone waits, and recovers by itself."""

from contextlib import asynccontextmanager
from datetime import timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.connect import connect
from shared.cli.objects.preview import find_all, find_one
from shared.core.decision.decide import Reason, Wait
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY
from shared.core.values.objects import ref_of
from shared.doctor.findings import Level
from shared.doctor.server import check_server
from shared.evaluation.evaluator import CLOCK_AHEAD, Evaluator
from shared.messages import ObjectDeleted, Purpose, Timer, TimersSet
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import POD
from tests.fakes import FakeTelemetry
from tests.loopback import answering_with

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
KINDS = Catalogue((POD,))


class Proxy:
    """Passes requests on, and writes a Date so far ahead of this machine's clock."""

    def __init__(self, server, session):
        self.ahead = HOUR
        self._server, self._session = server, session

    async def handle(self, request):
        kept = ("Accept", "Content-Type")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        url = self._server.url + request.path_qs
        body = await request.read() or None
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            date = format_datetime(SystemClock().now() + self.ahead, usegmt=True)
            kind = {"content-type": answer.headers["content-type"]}
            return web.Response(status=answer.status, body=await answer.read(), headers={"date": date, **kind})


@asynccontextmanager
async def proxied(server, api, tmp_path):
    """The proxy, and a cluster that is connected to it."""
    proxy = Proxy(server, api.session)
    async with answering_with(proxy.handle) as url:
        path = tmp_path / "kubeconfig"
        path.write_text(f"""
            current-context: test
            contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
            clusters: [{{name: test, cluster: {{server: "{url}"}}}}]
            users: [{{name: test, user: {{token: test}}}}]
        """)
        cluster = await connect(kubeconfig=str(path))
        try:
            yield proxy, cluster
        finally:
            await cluster.close()


async def finished_pod(api, name, ttl):
    await api.pod(name, annotations={"ttlafterfinished.dev/ttl": ttl})
    answer = await api.patch(f"{api.pods(name)}/status", {"status": {"phase": "Succeeded"}})
    assert answer.status == 200, answer
    return ref_of({**answer.body, "apiVersion": "v1", "kind": "Pod"})


def expiry_of(cluster, api):
    telemetry = FakeTelemetry()
    evaluator = Evaluator(cluster, KINDS, telemetry=telemetry, only=api.namespace)
    return Handler(DELETION, cluster, KINDS, evaluator, SystemClock(), telemetry, dry_run=False)


def fired(ref):
    return Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=SystemClock().now() + HOUR)


async def test_object_due_by_the_date_alone_is_deleted_when_the_clocks_agree(server, api, tmp_path):
    ref = await finished_pod(api, "early", "30m")
    async with proxied(server, api, tmp_path) as (proxy, cluster):
        expiry = expiry_of(cluster, api)
        waiting = await expiry.handle(fired(ref))
        again = await expiry.handle(fired(ref))

        assert isinstance(waiting, TimersSet)
        left = waiting.timers[0].due_at - SystemClock().now()
        assert timedelta(minutes=25) < left <= timedelta(minutes=30)
        assert isinstance(again, TimersSet)
        assert expiry.telemetry.verdicts() == [("timer-set", "server-clock-ahead")] * 2
        assert [problem for problem, _ in expiry.telemetry.problems] == [CLOCK_AHEAD]
        assert [(about, reason) for about, reason, _ in expiry.telemetry.events] == [(ref, "ServerClockAhead")]
        assert (await api.get(api.pods("early"))).status == 200

        proxy.ahead = timedelta(0)
        await api.patch(api.pods("early"), {"metadata": {"annotations": {"ttlafterfinished.dev/ttl": "0s"}}})
        assert isinstance(await expiry.handle(fired(ref)), ObjectDeleted)


async def test_object_due_by_both_clocks_is_deleted(server, api, tmp_path):
    ref = await finished_pod(api, "due", "0s")
    async with proxied(server, api, tmp_path) as (_, cluster):
        expiry = expiry_of(cluster, api)
        while not isinstance(deleted := await expiry.handle(fired(ref)), ObjectDeleted):
            assert expiry.telemetry.verdicts()[-1] == ("timer-set", "server-clock-ahead")  # within its first second
    assert deleted.ref.uid == ref.uid


async def test_sweep_plan_explain_and_doctor_use_the_same_clock(server, api, tmp_path):
    ref = await finished_pod(api, "early", "30m")
    async with proxied(server, api, tmp_path) as (proxy, cluster):
        expiry = expiry_of(cluster, api)
        page = await cluster.list_page(POD, namespace=api.namespace)
        sight = await find_all(cluster, [POD], policies=[NO_POLICY], kinds=KINDS, namespace=api.namespace)
        one = await find_one(cluster, POD, kinds=KINDS, namespace=api.namespace, name="early")
        findings, _ = await check_server(cluster, SystemClock())

        decisions = [one.decision, sight.objects[0].decisions[0]]
        assert [(type(each), each.reason) for each in decisions] == [(Wait, Reason.SERVER_CLOCK_AHEAD)] * 2
        assert page.ahead > timedelta(minutes=59)
        assert page.read_at <= SystemClock().now()
        assert findings[1].level is Level.FAIL
        proxy.ahead = timedelta(seconds=30)
        assert (await cluster.list_page(POD, namespace=api.namespace)).ahead == timedelta(0)
    assert (await api.get(api.pods("early"))).body["metadata"]["uid"] == ref.uid
    assert expiry.telemetry.verdicts() == []
