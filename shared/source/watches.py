"""Watches all enabled kinds that are served, each for itself: one that fails, or may not be watched, stops no other."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.bootstrap.world import World
from shared.core.kinds.rule import KindRule
from shared.errors import ForbiddenError, TtlError
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.served import list_served
from shared.source.watch import KindWatch, Publish, Send

LOOK_SECONDS = 30.0
"""From one look at what is served to the next: one for all kinds."""

RESTART_SECONDS = 10.0
"""Before a watch that ended by a fault of ours is started again."""

REFUSED_SECONDS = 10.0
REFUSED_SECONDS_MAX = 600.0
"""How often a kind is tried again that may not be watched: soon at first, for roles that aggregate take their time."""

_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class _Running:
    watch: KindWatch
    task: asyncio.Task[None]


class KindWatches:
    """Every enabled kind that a cluster serves, watched; one whose CRD comes later is found, one that goes is left.

    Args:
        world: With the kinds.
        evaluator: The world's.
        cluster: Where to watch them; the same as the world's where that has one.
        send: Takes what a change has to tell.
        publish: Takes the beginning of a sweep.
    """

    def __init__(
        self, world: World, cluster: KubernetesCluster, evaluator: Evaluator, *, send: Send, publish: Publish
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._evaluator = evaluator
        self._send = send
        self._publish = publish
        self._running: list[_Running] = []
        self._names: set[str] | None = None
        self._refusals: dict[int, ForbiddenError] = {}  # by watch: kinds of two groups may have one plural
        self._none_left = asyncio.Event()

    async def run(self) -> ForbiddenError:
        """Watch until cancelled.

        Returns:
            Why, once no kind at all may be watched.
        """
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look_on(group))
            await self._none_left.wait()
            refusal = next(iter(self._refusals.values()))
            looking.cancel()
            for one in self._running:
                one.task.cancel()
        return refusal

    async def _look_on(self, group: asyncio.TaskGroup) -> None:
        """Look at what is served, sooner again where that cannot be told."""
        failures = 0
        while True:
            try:
                self._follow(await self._list_served(), group)
                failures = 0
            except TtlError as error:
                failures += 1
                if failures == 1:
                    self._world.telemetry.problem("cannot tell which kinds are served", error=str(error))
            await asyncio.sleep(min(2.0**failures, LOOK_SECONDS) if failures else LOOK_SECONDS)

    async def _list_served(self) -> Sequence[KindRule]:
        return await list_served(self._world.catalogue, cluster=self._cluster, namespace=self._world.namespace)

    def _follow(self, served: Sequence[KindRule], group: asyncio.TaskGroup) -> None:
        """End the watches of what is not served any more, or not in that way; start those of what is."""
        self._tell_change({rule.name for rule in served})
        for one in [one for one in self._running if one.watch.rule not in served]:
            one.task.cancel()
            self._running.remove(one)
        watched = [one.watch.rule for one in self._running]
        for watch in map(self._watch_of, (rule for rule in served if rule not in watched)):
            self._running.append(_Running(watch, group.create_task(self._watch_on(watch))))

    def _tell_change(self, names: set[str]) -> None:
        """One line for each kind that came or went since the last look; those of the start are told by others."""
        before = names if self._names is None else self._names
        for words, kinds in (("kind served from now on", names - before), ("kind not served any more", before - names)):
            for kind in sorted(kinds):
                _log.info(words, extra={"fields": {"kind": kind}})
        self._names = names

    def _watch_of(self, rule: KindRule) -> KindWatch:
        return KindWatch(
            self._cluster,
            rule,
            send=self._send,
            publish=self._publish,
            clock=self._world.clock,
            telemetry=self._world.telemetry,
            evaluator=self._evaluator,
            namespace=self._world.namespace,
        )

    async def _watch_on(self, watch: KindWatch) -> None:
        """Start a watch again, whatever ended it."""
        pause = REFUSED_SECONDS
        try:
            while True:
                try:
                    await watch.run()
                except ForbiddenError as error:
                    self._refuse(watch, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, REFUSED_SECONDS_MAX)
                    self._refusals.pop(id(watch))
                except Exception:  # noqa: BLE001 - one kind's fault must not end the others
                    _log.exception("a watch failed and is started again", extra={"fields": {"kind": watch.rule.name}})
                    await asyncio.sleep(RESTART_SECONDS)
        finally:
            self._refusals.pop(id(watch), None)

    def _refuse(self, watch: KindWatch, error: ForbiddenError) -> None:
        self._world.telemetry.problem("kind not watched: a right is missing", kind=watch.rule.name, error=str(error))
        self._refusals[id(watch)] = error
        if len(self._refusals) == len(self._running):
            self._none_left.set()
