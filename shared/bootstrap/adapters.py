"""The adapters of one process, each built from the settings when it is first needed.

A function builds only the adapters that it needs, so `schedule` never imports the Kubernetes client.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shared import __version__
from shared.adapters.clock import SystemClock
from shared.adapters.config.settings import Settings
from shared.adapters.telemetry.logs import LogTelemetry
from shared.bootstrap.admission import build_admission
from shared.bootstrap.installation_events import InstallationEvents
from shared.bootstrap.publishing import http_publisher, sink_token
from shared.bootstrap.timer_engine import TimerEngine
from shared.core.horizon import sweep_ahead
from shared.core.kinds.catalogue import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.scope import Scope
from shared.evaluation.evaluator import Evaluator
from shared.ports import Clock, Cluster, Publisher, Telemetry, Timers
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime

if TYPE_CHECKING:
    from shared.adapters.config.policy_file import PolicyFile
    from shared.adapters.kubernetes.access import Access
    from shared.adapters.telemetry.metrics import Metrics


@dataclass
class Adapters:
    """The adapters that the functions of this process share.

    Attributes:
        settings: The settings of this process.
        kinds: All known kinds.
        catalogue: The enabled kinds.
        clock: The clock.
        telemetry: Reports decisions and problems.
        cluster: The Kubernetes API; connected when it is first needed.
        publisher: Sends events to the Broker; made when it is first needed.
        timers: The timer engine; None until it has started.
        metrics: The metrics; None unless they are served.
        namespace: The only namespace that this process handles; empty for all namespaces.
        policies: The policy file; None if the settings name none.
        home_namespace: The namespace of the shared state and of the brake. If it is empty, nothing outlives this
            process, as in a demo whose API server ends with it.
    """

    settings: Settings
    kinds: Catalogue
    catalogue: Catalogue
    clock: Clock = field(default_factory=SystemClock)
    telemetry: Telemetry = field(default_factory=LogTelemetry)
    cluster: Cluster | None = None
    publisher: Publisher | None = None
    timers: Timers | None = None
    metrics: "Metrics | None" = None
    namespace: str = ""
    policies: "PolicyFile | None" = None
    home_namespace: str = ""
    _evaluator: Evaluator | None = None
    _safeguards: Safeguards | None = None
    _engine: TimerEngine | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)

    # The API server

    async def connected(self) -> Cluster:
        """Return the cluster; all callers share one connection."""
        async with self._connecting:
            if self.cluster is None:
                from shared.adapters.kubernetes.connect import connect  # noqa: PLC0415 - 240 ms that only some functions need

                self.cluster = await connect(access=self.access())
            return self.cluster

    def access(self) -> "Access | None":
        """Return how to reach the API server of the settings; None if they name none, or if a cluster is set.

        Raises:
            SettingsError: The settings of the API server are invalid.
        """
        from shared.adapters.kubernetes.access import get_access  # noqa: PLC0415 - schedule and timers need none

        return None if self.cluster else get_access(self.settings)

    # Events in and out

    def published(self) -> Publisher:
        """Return the publisher that sends events to the Broker."""
        if self.publisher is None:
            publisher = http_publisher(self.settings, **self.sink_token())
            self.publisher = self.metrics.measuring(publisher) if self.metrics else publisher
        return self.publisher

    def sink_token(self) -> dict[str, Any]:
        """See `shared.bootstrap.publishing`."""
        return sink_token(self.settings, self.connected)

    def admission(self) -> Callable[[str], Awaitable[None]] | None:
        """See `shared.bootstrap.admission`."""
        return build_admission(self.settings)

    # Telemetry

    def measure(self) -> Callable[[], None]:
        """Measure from now on and serve the metrics, if the settings name a port for them.

        Returns:
            A function that stops the server.

        Raises:
            TtlError: The port is in use.
        """
        if self.settings.metrics_port is None:
            return lambda: None
        from shared.bootstrap.metrics import serve_metrics  # noqa: PLC0415 - only a scraped process needs it

        metrics, close = serve_metrics(
            self.settings.metrics_port,
            self.settings,
            self.telemetry,
            kinds=self.kinds,
            timers=lambda: self.timers,
            read_safeguards=self.look,
            policies=self.policies,
        )
        self.telemetry = self.metrics = metrics
        return close

    @cached_property
    def events(self) -> InstallationEvents:
        """The Kubernetes Events about the installation."""
        return InstallationEvents(self.settings, self.connected)

    # Decisions

    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.policies.policy() if self.policies else NO_POLICY

    def report_policy(self, problem: str) -> None:
        """Report that the policy file is invalid."""
        self.telemetry.problem("invalid policy file: the last valid policy stays in force", error=problem)

    def scope(self) -> Scope:
        """Return what this process handles, for the annotations of its Lease."""
        kinds = tuple(rule.name for rule in self.catalogue.rules) if self.settings.kinds else ()
        digest, dry_run = self.policy().digest, self.settings.dry_run
        return Scope(self.namespace, kinds, digest, dry_run, __version__, state=self.home_namespace)

    async def evaluator(self) -> Evaluator:
        """Return the evaluator; all functions of this process share it and its caches."""
        cluster = await self.connected()
        if self._evaluator is None or self._evaluator.cluster is not cluster:
            self._evaluator = Evaluator(cluster, self.kinds, self.policy, telemetry=self.telemetry, only=self.namespace)
        return self._evaluator

    # Timers

    def start_timers(self) -> Timers:
        """Start the timer engine in the running loop."""
        if self.timers is None:
            self._engine = TimerEngine(self.settings, self.clock, self.published())
            self.timers = self._engine.timers
        return self.timers

    async def timers_ended(self) -> None:
        """Wait until the timer engine ends, and raise the error that ended it; return at once if none has started."""
        if self._engine:
            await self._engine.ended()

    async def stop_timers(self) -> None:
        """Stop the timer engine, after the deliveries in flight."""
        if self._engine:
            await self._engine.stop()
        self.timers = self._engine = None

    # Deletions

    async def safeguards(self) -> Safeguards:
        """Return the safeguards; all functions of this process share them."""
        cluster = await self.connected()
        if self._safeguards is None:
            from shared.adapters.kubernetes.state_configmap import (  # noqa: PLC0415 - loads the Kubernetes client
                StateLocation,
                build_safeguards,
            )

            write_event = functools.partial(self.events.write_in, self.home_namespace)
            runtime = Runtime(self.clock, time.monotonic, self.telemetry)
            self._safeguards = build_safeguards(
                StateLocation(cluster, self.home_namespace, write_event),
                lambda: self.policy().limits,
                runtime,
                namespace=self.namespace,
                horizon=sweep_ahead(self.settings.sweep_interval),
            )
        return self._safeguards

    async def look(self) -> None:
        """Read the shared state of the safeguards, if this process has used them."""
        if self._safeguards is not None:
            await self._safeguards.report()

    async def releases(self) -> int:
        """Return how often the breaker was released or deletions were restarted, as far as this process knows."""
        return await (await self.safeguards()).releases()

    async def end(self) -> None:
        """End the work of this process in a few seconds: stop the timers, and write the shared state."""
        await self.stop_timers()
        if self._safeguards is not None:
            await self._safeguards.flush()
