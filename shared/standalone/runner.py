"""The whole thing in one process, for any cluster, without Knative.

It watches the kinds itself, makes the same CloudEvents, routes them by the same Trigger manifests to the same
functions over HTTP, keeps the timers in SQLite, and is the leader among its like by a Lease. Its safety net is the
sweep: one for each kind when its watch starts, and one for all at every interval.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import shared
from shared.adapters.events.cloudevents import TICK, Event
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.bootstrap import world as bootstrap
from shared.bootstrap.world import World
from shared.errors import TtlError
from shared.source.watches import KindWatches
from shared.standalone.broker import LocalBroker
from shared.standalone.dead_letters import ReportedDeadLetters
from shared.standalone.delivery import open_session, subscribers_of
from shared.standalone.functions_server import GRACE_SECONDS, URLS, serve_functions
from shared.standalone.trigger_files import read_triggers

MANIFESTS = Path(shared.__file__ or "").parents[1] / "knative" / "base"
SOURCE = "ttl-after-finished"

RELOAD_SECONDS = 2.0
"""Between two looks for a new policy, and at the shared state: a stop is logged within five seconds."""


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
                    await world.end()


class Runner:
    """Watches and sweeps one cluster.

    Args:
        world: With the kinds, the settings and a place for timers.
        cluster: The same as the world's.
    """

    def __init__(self, world: World, cluster: KubernetesCluster) -> None:
        self._world = world
        self._cluster = cluster

    async def run(self) -> None:
        """Work until cancelled; then finish what is in flight.

        Raises:
            ForbiddenError: No kind at all may be watched.
        """
        async with local_broker(self._world) as broker, asyncio.TaskGroup() as group:
            ticks = group.create_task(self._tick(broker))
            engine = group.create_task(self._world.timers_ended())
            reloads = group.create_task(self._sweep_on_reload(broker))
            releases = group.create_task(self._sweep_on_release(broker))
            evaluator = await self._world.evaluator()
            watches = KindWatches(self._world, self._cluster, evaluator, send=broker.send, publish=broker.publish)
            refusal = await watches.run()
            ticks.cancel()
            reloads.cancel()
            releases.cancel()
            engine.cancel()
        raise refusal

    async def _tick(self, broker: LocalBroker) -> None:
        """What a PingSource does on Knative."""
        interval = self._world.settings.sweep_interval.total_seconds()
        while True:
            await asyncio.sleep(interval)
            await self._sweep(broker)

    async def _sweep_on_reload(self, broker: LocalBroker) -> None:
        """What a new policy makes due, no event tells of."""
        known = self._world.policy()
        while self._world.policies is not None:
            await asyncio.sleep(RELOAD_SECONDS)
            if self._world.policy() is not known:
                known = self._world.policy()
                await self._sweep(broker)

    async def _sweep_on_release(self, broker: LocalBroker) -> None:
        """What fell due while the breaker was open, or the deletions were stopped, no event reports again."""
        known = 0
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            if (releases := await self._world.releases()) != known:
                known = releases
                await self._sweep(broker)

    async def _sweep(self, broker: LocalBroker) -> None:
        now = self._world.clock.now().isoformat()
        try:
            await broker.send(Event(id=f"tick/{now}", source=SOURCE, type=TICK, data=b"{}"))
        except TtlError as error:
            self._world.telemetry.problem("sweep put off until the next interval", error=str(error))
