"""Run the functions in one process, for any cluster, without Knative.

The runner watches the kinds and makes the same CloudEvents as on Knative. It routes them by the same Trigger manifests.
It calls the same functions directly, with the headers and the body of the request on Knative. Timers are in SQLite. Of
several runners, a Lease elects one that works (see `shared.standalone.lease`). Sweeps find what events missed: a sweep
of a kind when its watch starts, and a sweep of all kinds at every interval.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import functions
import shared
from shared.adapters.events.answers import Respond
from shared.adapters.events.cloudevents import PURPOSE, TICK, Event
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.bootstrap.process import Process
from shared.bootstrap.start import collect_rarely, loading_for
from shared.errors import TtlError
from shared.source.watches import KindWatches
from shared.standalone.broker import LocalBroker, report_dead_letter, subscribers_of
from shared.standalone.triggers import read_triggers
from shared.usecases.usage.handler import has_unused_rule

MANIFESTS = Path(shared.__file__ or "").parents[1] / "knative" / "base"
SOURCE = "ttl-after-finished"

GRACE_SECONDS = 20
"""How long the end of the runner waits for the functions that are called."""

RELOAD_SECONDS = 2.0
"""Time between two checks for a new policy or a release. The check also logs a stop."""

FUNCTION_NAMES = ("schedule", "timers", "expire", "enforce", "archive", "sweep", "usage")


@asynccontextmanager
async def local_broker(process: Process) -> AsyncIterator[LocalBroker]:
    """Load the functions of this process behind a broker; when the block ends, finish the deliveries in flight."""
    broker = LocalBroker(dead_letter=partial(report_dead_letter, process.config.telemetry), source=SOURCE)
    triggers, loaded = read_triggers(MANIFESTS), load_functions(process.publishing_to(broker))
    broker.subscribe(subscribers_of(triggers, loaded))  # nothing is awaited before: no timer has fired yet
    try:
        yield broker
    finally:
        async with AsyncExitStack() as ends:  # each one, also if another fails
            ends.callback(_report_unstored, process)
            ends.push_async_callback(process.end)
            ends.push_async_callback(broker.close, grace_seconds=GRACE_SECONDS)
            await process.engine.stop()


def _report_unstored(process: Process) -> None:
    """Say at the end which timers are not stored: no event sets them again, since their objects do not change."""
    unstored, config = process.engine.unstored, process.config
    if count := unstored.count(config.clock.now()):
        config.telemetry.problem(
            "timers are not certain to be stored; the next sweep sets them", timers=count, error=unstored.reason
        )


class Runner:
    """Watches and sweeps one cluster.

    Args:
        process: This process.
        cluster: The cluster of `process`.
    """

    def __init__(self, process: Process, cluster: KubernetesCluster) -> None:
        self._process, self._config = process, process.config
        self._cluster = cluster

    async def run(self) -> None:
        """Watch and sweep until cancelled; then finish the deliveries in flight.

        Raises:
            ForbiddenError: The rights to watch are missing for every kind.
        """
        async with local_broker(self._process) as broker, asyncio.TaskGroup() as group:
            engine, ticks = self._process.engine, (self._tick(broker), self._tick_usage(broker))
            works = (*ticks, engine.ended(), self._sweep_on_change(broker))
            tasks = [group.create_task(work) for work in works]
            evaluator = await self._process.evaluator()
            collect_rarely()
            watches = KindWatches(self._config, self._cluster, evaluator, send=broker.send, publish=broker.publish)
            refusal = await watches.run()
            for task in tasks:
                task.cancel()
        raise refusal

    async def _tick(self, broker: LocalBroker) -> None:
        """Start a sweep at every interval, as a PingSource does on Knative."""
        interval, now = self._config.settings.sweep_interval.total_seconds(), asyncio.get_running_loop().time
        tick_at = now() + interval
        while True:
            await asyncio.sleep(tick_at - now())
            await self._sweep(broker)
            # The time of a sweep is no part of the interval; a sweep that is longer than it skips ticks.
            tick_at += interval * (1 + max(0, now() - tick_at) // interval)

    async def _sweep_on_change(self, broker: LocalBroker) -> None:
        """Start a sweep after each new policy and after each release.

        No event reports the objects that the policy makes due, or again those that fell due during the stop.
        """
        safeguards = await self._process.safeguards()
        known = self._config.policy(), 0
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            policy, releases = self._config.policy(), await safeguards.releases()
            if policy is not known[0] or releases != known[1]:
                known = policy, releases
                await self._sweep(broker)
                await self._find_unused(broker)

    async def _tick_usage(self, broker: LocalBroker) -> None:
        """Look for unused objects at the start and at every interval, as a second PingSource does on Knative."""
        if self._config.settings.kinds and has_unused_rule(self._config.policy()):
            reason = "TTL_KINDS or --kinds names the only kinds that are deleted"
            self._config.telemetry.problem("policy rules with unused are not applied", reason=reason)
        while True:
            await self._find_unused(broker)
            await asyncio.sleep(self._config.settings.usage_interval.total_seconds())

    async def _sweep(self, broker: LocalBroker) -> None:
        await self._send_tick(broker, "sweep skipped until the next interval")

    async def _find_unused(self, broker: LocalBroker) -> None:
        """Start a tick of `usage`, if a policy rule has unused objects deleted; none if only some kinds are deleted."""
        if has_unused_rule(self._config.policy()) and not self._config.settings.kinds:
            await self._send_tick(broker, "usage skipped until the next interval", **{PURPOSE: "usage"})

    async def _send_tick(self, broker: LocalBroker, problem: str, **extensions: str) -> None:
        tick = f"tick/{'/'.join((*extensions.values(), self._config.clock.now().isoformat()))}"
        try:
            await broker.send(Event(id=tick, source=SOURCE, type=TICK, data=b"{}", extensions=extensions))
        except TtlError as error:
            self._config.telemetry.problem(problem, error=str(error))


def load_functions(process: Process) -> Mapping[str, Respond]:
    """Load the functions for a process, by the names of their Knative Services.

    Each file is executed for each process: a module that is imported once would belong to the first process.
    """
    folder = Path(functions.__file__ or "").parent
    with loading_for(process):
        for name in FUNCTION_NAMES:
            _execute(name, folder / f"{name}.py")
    return process.functions


def _execute(name: str, file: Path) -> None:
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file}: expected a Python file", name=name, path=str(file))
    spec.loader.exec_module(module_from_spec(spec))
