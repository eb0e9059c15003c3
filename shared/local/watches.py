"""Watches all enabled kinds, each for itself: one that fails, or may not be watched, stops no other."""

import asyncio
import logging

from shared.adapters.bootstrap import World
from shared.adapters.cluster import KubernetesCluster
from shared.errors import ForbiddenError
from shared.local.watch import KindWatch, Publish, Send
from shared.usecases.judge import Judge

RESTART_SECONDS = 10.0
"""Before a watch that ended by a fault of ours is started again."""

REFUSED_SECONDS = 10.0
REFUSED_SECONDS_MAX = 600.0
"""How often a kind is tried again that may not be watched: soon at first, for roles that aggregate take their time."""

_log = logging.getLogger("ttl")


class Watches:
    """Every enabled kind of a cluster, watched.

    Args:
        world: With the kinds.
        judge: The world's.
        cluster: Where to watch them; the same as the world's where that has one.
        send: Takes what a change has to tell.
        publish: Takes the beginning of a sweep.
    """

    def __init__(self, world: World, cluster: KubernetesCluster, judge: Judge, *, send: Send, publish: Publish) -> None:
        self._telemetry = world.telemetry
        self._watches = [
            KindWatch(
                cluster,
                rule,
                send=send,
                publish=publish,
                clock=world.clock,
                telemetry=world.telemetry,
                judge=judge,
                namespace=world.namespace,
            )
            for rule in world.catalogue.rules
        ]
        self._refusals: dict[int, ForbiddenError] = {}  # by watch: kinds of two groups may have one plural
        self._none_left = asyncio.Event()

    async def run(self) -> ForbiddenError:
        """Watch until cancelled.

        Returns:
            Why, once no kind at all may be watched.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._watch_on(watch)) for watch in self._watches]
            await self._none_left.wait()
            for task in tasks:
                task.cancel()
        return next(iter(self._refusals.values()))

    async def _watch_on(self, watch: KindWatch) -> None:
        """Start a watch again, whatever ended it."""
        pause = REFUSED_SECONDS
        while True:
            try:
                await watch.run()
            except ForbiddenError as error:
                self._refuse(watch, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, REFUSED_SECONDS_MAX)
                self._refusals.pop(id(watch))
            except Exception:  # noqa: BLE001 - one kind's fault must not end the others
                _log.exception("a watch failed and is started again", extra={"fields": {"kind": watch.rule.kind}})
                await asyncio.sleep(RESTART_SECONDS)

    def _refuse(self, watch: KindWatch, error: ForbiddenError) -> None:
        self._telemetry.problem("kind not watched: a right is missing", kind=watch.rule.plural, error=str(error))
        self._refusals[id(watch)] = error
        if len(self._refusals) == len(self._watches):
            self._none_left.set()
