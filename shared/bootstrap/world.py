"""The one place that knows all adapters: builds them from the settings, each when it is first needed.

A function asks for what it needs and no more, so `schedule` never imports the Kubernetes client. The local runner
and the tests put a world of their own in place before the functions are loaded.
"""

import asyncio
import functools
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared import __version__
from shared.adapters.clock import SystemClock
from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import Settings, SettingsError, log_form, read_settings
from shared.adapters.telemetry.logs import LogTelemetry, configure_logging
from shared.core.horizon import horizon, sweep_ahead
from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import ObjectRef
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.scope import Scope
from shared.evaluation.evaluator import Evaluator
from shared.messages import TimersSet
from shared.ports import Clock, Cluster, EventLevel, Publisher, Telemetry, Timers
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime
from shared.safeguards.state_schema import HOME
from shared.usecases.deadletter import DeadLetters
from shared.usecases.expire import Expiry
from shared.usecases.large_pages import LargePages
from shared.usecases.schedule import schedule
from shared.usecases.sweep import Sweep
from shared.usecases.timers import set_timers

if TYPE_CHECKING:
    from shared.adapters.config.policy_file import PolicyFile
    from shared.adapters.events.publisher import HttpPublisher
    from shared.adapters.kubernetes.access import Access
    from shared.adapters.telemetry.metrics import Metrics

TIMERS_PATH = Path("timers.db")

SWEPT_PAUSE_SECONDS = 10.0
"""Between two Events of ends of sweeps: whoever makes up last steps must not fill etcd."""


@dataclass
class World:
    """The adapters that the functions of this process share.

    Attributes:
        kinds: All kinds that are known.
        catalogue: Those that are enabled.
        cluster: Connected when first needed.
        publisher: Made when first needed.
        timers: The engine, once started.
        metrics: What measures, where it is asked for.
        namespace: What this process is limited to; empty for all namespaces.
        policies: The policy file, where the settings name one.
        home_namespace: Where it keeps what must outlive it, and reads whether deletions are stopped; empty for nowhere,
            as in a demo on an API server that ends with this process.
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
    _engine: asyncio.Task[None] | None = None
    _close_engine: Callable[[], Awaitable[None]] = field(init=False)
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _large_pages: LargePages = field(default_factory=LargePages)
    _swept_reported_at: dict[str, float] = field(default_factory=dict)

    async def connected(self) -> Cluster:
        """The cluster; one connection for all who ask."""
        async with self._connecting:
            if self.cluster is None:
                from shared.adapters.kubernetes.connect import connect  # noqa: PLC0415 - 240 ms that only some functions need

                self.cluster = await connect(access=self.access())
            return self.cluster

    def access(self) -> "Access | None":
        """How to reach an API server elsewhere; None where the settings speak of none, or there is one already.

        Raises:
            SettingsError: What they say cannot be used.
        """
        from shared.adapters.kubernetes.access import get_access  # noqa: PLC0415 - schedule and timers need none

        return None if self.cluster else get_access(self.settings)

    def published(self) -> Publisher:
        """The way into the Broker."""
        if self.publisher is None:
            publisher = http_publisher(self.settings, **self.sink_token())
            self.publisher = self.metrics.measuring(publisher) if self.metrics else publisher
        return self.publisher

    def measure(self) -> Callable[[], None]:
        """Measure from now on, and serve the metrics, where the settings name a port for them.

        Returns:
            What ends the serving.

        Raises:
            TtlError: The port is taken.
        """
        if self.settings.metrics_port is None:
            return lambda: None
        from shared.adapters.events.answers import observe_answers  # noqa: PLC0415 - as below
        from shared.adapters.telemetry.metrics import Metrics  # noqa: PLC0415 - 50 ms that only who is scraped needs

        metrics = Metrics(self.telemetry, kinds=self.kinds, sweep_interval=self.settings.sweep_interval)
        metrics.count_timers(lambda: self.timers)
        metrics.watch_shared_state(self.look)
        if (policies := self.policies) is not None:
            metrics.watch_policy(lambda: policies.is_good)
        close = metrics.serve(self.settings.metrics_port)
        observe_answers(metrics.answered)
        self.telemetry = self.metrics = metrics
        return close

    def sink_token(self) -> dict[str, Any]:
        """For `http_publisher`: who publishes, where the cluster around does not say so."""
        account, audience = self.settings.sink_account, self.settings.sink_audience
        if bool(account) != bool(audience):
            raise SettingsError("TTL_SINK_ACCOUNT: expected TTL_SINK_AUDIENCE beside it, and neither without the other")
        if not account:
            return {}
        from shared.adapters.auth.identity import RenewedToken  # noqa: PLC0415 - as above
        from shared.adapters.kubernetes.service_account_tokens import AccountTokens  # noqa: PLC0415 - only outside of the cluster

        return {"token": RenewedToken(AccountTokens(self.connected, account, audience)).token}

    def admission(self) -> Callable[[str], Awaitable[None]] | None:
        """What lets a request pass by its Authorization header; None where anybody may call."""
        asked = self.settings
        if not asked.callers and (asked.callers_audience or asked.callers_issuer):
            raise SettingsError("TTL_CALLERS: expected the subjects that may call, got none")
        if not asked.callers:
            return None
        if not asked.callers_audience:
            raise SettingsError("TTL_CALLERS_AUDIENCE: expected what the callers' tokens are meant for, got none")
        from shared.adapters.auth import callers  # noqa: PLC0415 - cryptography, which is only needed here

        issuer = callers.Issuer(asked.callers_issuer) if asked.callers_issuer else callers.ApiServerIssuer()
        keys = callers.Keys(issuer)
        return callers.Callers(asked.callers, audience=asked.callers_audience, keys=keys).admit

    async def schedule(self, obj: object) -> TimersSet | None:
        """See `shared.usecases.schedule`."""
        return await schedule(
            obj,
            catalogue=self.catalogue,
            clock=self.clock,
            telemetry=self.telemetry,
            policy=self.policy(),
            get_cached=self._evaluator.namespaces.get_cached if self._evaluator else lambda _: None,
            horizon=horizon(self.settings.sweep_interval),
        )

    def policy(self) -> Policy:
        """The policy in force."""
        return self.policies.policy() if self.policies else NO_POLICY

    def scope(self) -> Scope:
        """What this process handles, as its Lease says it."""
        kinds = tuple(rule.name for rule in self.catalogue.rules) if self.settings.kinds else ()
        digest, dry_run = self.policy().digest, self.settings.dry_run
        return Scope(self.namespace, kinds, digest, dry_run, __version__, state=self.home_namespace)

    def report_policy(self, problem: str) -> None:
        """Say that the policy file is bad."""
        self.telemetry.problem("bad policy file: the last good one stays in force", error=problem)

    async def evaluator(self) -> Evaluator:
        """What decides; one for all functions of this process, which share what it remembers."""
        cluster = await self.connected()
        if self._evaluator is None or self._evaluator.cluster is not cluster:
            self._evaluator = Evaluator(cluster, self.kinds, self.policy, telemetry=self.telemetry, only=self.namespace)
        return self._evaluator

    async def set_timers(self, wanted: TimersSet) -> None:
        """See `shared.usecases.timers`."""
        await set_timers(
            wanted,
            timers=self.timers or self.start_timers(),
            clock=self.clock,
            horizon=horizon(self.settings.sweep_interval),
            telemetry=self.telemetry,
        )

    def start_timers(self) -> Timers:
        """Start the timer engine in the running loop; it ends when its task is cancelled with the loop."""
        if self.timers is None:
            from shared.adapters.timers.sqlite import SqliteTimers  # noqa: PLC0415 - only `timers` keeps timers

            engine = SqliteTimers(self.settings.timers_path or TIMERS_PATH, self.clock, self.published())
            self._engine = asyncio.get_running_loop().create_task(engine.run(), name="timers")
            self._close_engine = engine.close
            self.timers = engine
        return self.timers

    async def timers_ended(self) -> None:
        """Wait for the engine's end; what ended it is raised. It ends by itself only by a fault."""
        if self._engine:
            await asyncio.shield(self._engine)

    async def stop_timers(self) -> None:
        """Let the deliveries in flight finish, and let go of the file."""
        if self._engine:
            self._engine.cancel()
            with suppress(asyncio.CancelledError):
                await self._engine
            await self._close_engine()  # a task cancelled before its first step closes nothing
        self.timers = self._engine = None

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """What takes the events that no function would."""
        return DeadLetters(clock=self.clock, telemetry=self.telemetry, write_event=self._write_event)

    async def _write_event(self, reason: str, message: str, level: EventLevel = "Warning") -> None:
        """Write an Event about this installation; a dry run writes none."""
        if self.settings.home_namespace:
            await self._write_event_at(self.settings.home_namespace, reason, message, level)

    async def _write_event_at(self, home: str, reason: str, message: str, level: EventLevel) -> None:
        if home and not self.settings.dry_run:
            about = ObjectRef(api_version="v1", kind="Namespace", namespace=home, name=home, uid="")
            await (await self.connected()).record_event(about, reason, message, level=level)

    async def safeguards(self) -> Safeguards:
        """What stands between a due object and its DELETE: one for all that this process deletes."""
        cluster = await self.connected()
        if self._safeguards is None:
            from shared.adapters.kubernetes.state_configmap import StateLocation, build_safeguards  # noqa: PLC0415 - only who deletes; loads the client

            home = StateLocation(
                cluster, self.home_namespace, functools.partial(self._write_event_at, self.home_namespace)
            )
            runtime = Runtime(self.clock, time.monotonic, self.telemetry)
            ahead = sweep_ahead(self.settings.sweep_interval)
            self._safeguards = build_safeguards(
                home, lambda: self.policy().limits, runtime, namespace=self.namespace, horizon=ahead
            )
        return self._safeguards

    async def look(self) -> None:
        """Read what stands between due objects and their DELETE, if this process has ever asked for it."""
        if self._safeguards is not None:
            await self._safeguards.look()

    async def releases(self) -> int:
        """How often the breaker was released, or the deletions started again, as far as this process knows."""
        return await (await self.safeguards()).releases()

    async def end(self) -> None:
        """What a process does at last, in a few seconds: stop the timers, and write down what nobody else knows."""
        await self.stop_timers()
        if self._safeguards is not None:
            await self._safeguards.flush()

    async def expiry(self, by: str = "expire") -> Expiry:
        """What deletes due objects, for the named function."""
        return Expiry(
            cluster=await self.connected(),
            catalogue=self.catalogue,
            evaluator=await self.evaluator(),
            clock=self.clock,
            telemetry=self.telemetry,
            dry_run=self.settings.dry_run,
            by=by,
            namespace=self.namespace,
            safeguards=await self.safeguards(),
        )

    async def sweeper(self) -> Sweep:
        """What looks at everything."""
        return Sweep(
            expiry=await self.expiry("sweep"),
            publisher=self.published(),
            interval=self.settings.sweep_interval,
            concurrency=self.settings.concurrency,
            namespace=self.namespace,
            write_event=self._report_swept,
            large_pages=self._large_pages,
        )

    async def _report_swept(self, reason: str, message: str, level: EventLevel) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._swept_reported_at.get(reason, -math.inf) >= SWEPT_PAUSE_SECONDS:
            self._swept_reported_at[reason] = now
            await self._write_event(reason, message, level)


def build(settings: Settings) -> World:
    """A world by the settings.

    Raises:
        SettingsError: TTL_KINDS names an unknown kind.
        FileError: A rule in TTL_KINDS_DIR is none, or the file of TTL_POLICY no policy.
    """
    kinds = read_catalogue(settings.kinds_dir)
    try:
        catalogue = kinds.parse_names(settings.kinds)
        world = World(settings, kinds, catalogue, home_namespace=settings.home_namespace or HOME)
    except ValueError as error:
        raise SettingsError(f"TTL_KINDS: {error}") from None
    if settings.policy is not None:
        from shared.adapters.config.policy_file import PolicyFile  # noqa: PLC0415 - only where there is one

        world.policies = PolicyFile(settings.policy, kinds, world.report_policy)
    return world


def http_publisher(settings: Settings, **options: Any) -> "HttpPublisher":
    """The way into the Broker that the settings name; the caller closes it.

    Args:
        settings: With a sink.
        options: See HttpPublisher.

    Raises:
        SettingsError: K_SINK names none.
    """
    from shared.adapters.events.publisher import HttpPublisher  # noqa: PLC0415 - only some functions publish

    if not settings.sink:
        raise SettingsError("K_SINK: expected the Broker's URL, got none")
    return HttpPublisher(settings.sink, source="ttl-after-finished", **options)


_worlds: list[World] = []


def use(world: World) -> None:
    """Let the functions of this process use this world from now on."""
    _worlds[:] = [world]


def world() -> World:
    """The world of this process: the one in use, else one built from the environment."""
    if not _worlds:
        configure_logging(log_form() or "json")  # before the settings: an error in them is a line of the log
        settings = read_settings()
        built = build(settings)
        built.measure()
        use(built)
    return _worlds[0]


def is_in_use() -> bool:
    """Whether somebody put a world in place; otherwise this process is a function's own."""
    return bool(_worlds)
