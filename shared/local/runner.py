"""The whole thing in one process, for any cluster, without Knative.

It watches the kinds itself, makes the same CloudEvents, routes them by the same Trigger manifests to the same
functions over HTTP, keeps the timers in SQLite, and is the leader among its like by a Lease. Its safety net is the
sweep: one for each kind when its watch starts, and one for all at every interval.
"""

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import shared
from shared.adapters import bootstrap
from shared.adapters.bootstrap import World
from shared.adapters.cluster import KubernetesCluster
from shared.adapters.events import TICK, Event, event_of
from shared.core.kinds import KindRule
from shared.errors import ForbiddenError, TtlError
from shared.local.broker import LocalBroker
from shared.local.deadletters import ReportedDeadLetters
from shared.local.delivery import open_session, subscribers_of
from shared.local.manifests import read_triggers
from shared.local.server import GRACE_SECONDS, URLS, serve_functions
from shared.local.watch import KindWatch
from shared.messages import SweepStep

MANIFESTS = Path(shared.__file__ or "").parents[1] / "knative" / "base"
SOURCE = "ttl-after-finished"
RESTART_SECONDS = 10.0
_log = logging.getLogger("ttl")


@asynccontextmanager
async def local_broker(world: World) -> AsyncIterator[LocalBroker]:
    """The functions of this process behind a broker; what is in flight is finished when the block ends."""
    with tempfile.TemporaryDirectory(prefix="ttl-") as folder:  # of mode 0700: nobody else may post events
        socket = Path(folder) / "functions.sock"
        async with open_session(socket) as session:
            subscribers = subscribers_of(read_triggers(MANIFESTS), URLS, session=session)
            broker = LocalBroker(subscribers, dead_letter=ReportedDeadLetters(world.telemetry), source=SOURCE)
            world.publisher = broker
            bootstrap.use(world)
            async with serve_functions(socket):
                try:
                    yield broker
                finally:
                    await world.stop_timers()
                    await broker.close(grace_seconds=GRACE_SECONDS)


class Runner:
    """Watches and sweeps one cluster.

    Args:
        world: With the kinds, the settings and a place for timers.
        cluster: The same as the world's.
    """

    def __init__(self, world: World, cluster: KubernetesCluster) -> None:
        self._world = world
        self._cluster = cluster
        self._forbidden: list[ForbiddenError] = []
        self._all_forbidden = asyncio.Event()
        self._sweeping: list[KindRule] = []

    async def run(self) -> None:
        """Work until cancelled; then finish what is in flight.

        Raises:
            ForbiddenError: No kind at all may be watched.
        """
        async with local_broker(self._world) as broker, asyncio.TaskGroup() as group:
            ticks = group.create_task(self._tick(broker))
            for rule in self._world.catalogue.rules:
                group.create_task(self._watch(rule, broker, group))
            engine = group.create_task(self._world.timers_ended())
            await self._all_forbidden.wait()
            ticks.cancel()
            engine.cancel()
        raise self._forbidden[0]

    async def _watch(self, rule: KindRule, broker: LocalBroker, group: asyncio.TaskGroup) -> None:
        watch = KindWatch(
            self._cluster,
            rule,
            send=broker.send,
            sweep=lambda rule: self._sweep_soon(broker, rule, group),
            clock=self._world.clock,
            telemetry=self._world.telemetry,
            namespace=self._world.namespace,
        )
        while True:
            try:
                await watch.run()
            except ForbiddenError as error:
                self._give_up(rule, error)
                return
            except Exception:  # noqa: BLE001 - one kind's fault must not end the others
                _log.exception("a watch failed and is started again", extra={"fields": {"kind": rule.kind}})
                await asyncio.sleep(RESTART_SECONDS)

    def _give_up(self, rule: KindRule, error: ForbiddenError) -> None:
        self._world.telemetry.problem("kind not watched: a right is missing", kind=rule.kind, error=str(error))
        self._forbidden.append(error)
        if len(self._forbidden) == len(self._world.catalogue.rules):
            self._all_forbidden.set()

    def _sweep_soon(self, broker: LocalBroker, rule: KindRule, group: asyncio.TaskGroup) -> None:
        """Sweep a kind beside its watch; one sweep of it at a time is enough."""
        if rule not in self._sweeping:
            self._sweeping.append(rule)
            task = group.create_task(self._sweep(broker, rule))
            task.add_done_callback(lambda _: self._sweeping.remove(rule))

    async def _tick(self, broker: LocalBroker) -> None:
        """What a PingSource does on Knative."""
        interval = self._world.settings.sweep_interval.total_seconds()
        while True:
            await asyncio.sleep(interval)
            now = self._world.clock.now().isoformat()
            await self._send(broker, Event(id=f"tick/{now}", source=SOURCE, type=TICK, data=b"{}"))

    async def _sweep(self, broker: LocalBroker, rule: KindRule) -> None:
        now = self._world.clock.now().isoformat()
        step = SweepStep(kinds=(f"{rule.api_version}/{rule.kind}",), sweep_id=f"{rule.kind}/{now}")
        await self._send(broker, event_of(step, source=SOURCE))

    async def _send(self, broker: LocalBroker, event: Event) -> None:
        try:
            await broker.send(event)
        except TtlError as error:
            self._world.telemetry.problem("sweep put off until the next interval", error=str(error))
