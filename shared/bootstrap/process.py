"""The ports and use cases of one process.

Each is made, and its modules are imported, when it is first needed: else it would lengthen each cold start.
"""

# ruff: noqa: PLC0415 - see above
import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from shared.adapters.config.settings import Settings, SettingsError
from shared.adapters.events.answers import Function, Read, Respond, answering, responding
from shared.adapters.events.cloudevents import parse_event
from shared.bootstrap.config import ProcessConfig
from shared.bootstrap.installation_events import InstallationEvents
from shared.bootstrap.timer_engine import TimerEngine
from shared.core.values.timing import horizon
from shared.errors import TryLaterError
from shared.messages import Proof, Purpose, Timer, TimersSet
from shared.ports import Archives, Cluster, FiredTask, Journal, Publisher, Timers
from shared.usecases.sweeps.chains import SweepChains
from shared.usecases.sweeps.pages import LargePages
from shared.usecases.timers import fire_task, schedule, set_timers

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from shared.adapters.events.publisher import HttpPublisher
    from shared.adapters.kubernetes.access import Access
    from shared.evaluation.evaluator import Evaluator
    from shared.evaluation.proofs import Proofs
    from shared.ports import UsageCluster
    from shared.safeguards.pace import Pace
    from shared.safeguards.safeguards import Safeguards
    from shared.usecases.archives.writer import ArchiveWriter
    from shared.usecases.deadletter import DeadLetters
    from shared.usecases.handler import Handled, Handler, Procedure
    from shared.usecases.policy_reports import AuditReports
    from shared.usecases.sweep import Sweep
    from shared.usecases.usage.tick import Usage

_T = TypeVar("_T")


class Once(Generic[_T]):
    """A part that is made once; all callers share it.

    Args:
        make: Makes the part. If it raises, the next call tries again.
        made: The part, if there is one already.

    Attributes:
        made: The part; None until it is made.
    """

    def __init__(self, make: Callable[[], Awaitable[_T]], made: _T | None = None) -> None:
        self.made = made
        self._make = make
        self._making = asyncio.Lock()

    async def __call__(self) -> _T:
        """Return the part; once it is made, without the lock, because each event asks for several parts."""
        if self.made is not None:
            return self.made
        async with self._making:
            if self.made is None:
                self.made = await self._make()
            return self.made


def build_publisher(settings: Settings, connected: Callable[[], Awaitable[Cluster]], **options: Any) -> "HttpPublisher":
    """Make the publisher for the sink in the settings; the caller closes it.

    Args:
        settings: The settings, with a sink.
        connected: Returns the cluster that issues the token, if the settings name a ServiceAccount for the sink.
        options: The options of HttpPublisher.

    Raises:
        SettingsError: K_SINK is empty, or only one of TTL_SINK_ACCOUNT and TTL_SINK_AUDIENCE is set.
    """
    from shared.adapters.events.publisher import HttpPublisher

    account, audience = settings.sink_account, settings.sink_audience
    if not settings.sink:
        raise SettingsError("K_SINK: expected the Broker's URL, got none")
    if bool(account) != bool(audience):
        raise SettingsError("TTL_SINK_ACCOUNT: expected it together with TTL_SINK_AUDIENCE, got only one of the two")
    if account:
        from shared.adapters.auth.identity import RenewedToken
        from shared.adapters.kubernetes.connect import fetch_account_token

        options["token"] = RenewedToken(partial(fetch_account_token, connected, account, audience)).token
    return HttpPublisher(settings.sink, source="ttl-after-finished", **options)


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process; `build` makes it, and all functions of the process share it.

    Attributes:
        config: What it was built from.
        cluster: Returns the Kubernetes API.
        evaluator: Returns the evaluator, with its caches.
        safeguards: Returns the safeguards.
        pace: Gives the permits for deletions.
        proofs: Returns what deletes objects without reading them; only for a process with a key.
        engine: The timer engine.
        events: Writes Kubernetes Events about the installation.
        archives: The archives of the policy.
        archive_writer: Returns what stores objects, with its limits.
        audit_reports: Returns what writes the reports of rules with audit.
        journal: Writes Kubernetes Events about deletions, stops, archives, refusals and reports; None in a dry run.
        functions: The functions that were loaded for this process, by name, for a broker in this process.
    """

    config: ProcessConfig
    cluster: Once[Cluster]
    evaluator: "Once[Evaluator]"
    safeguards: "Once[Safeguards]"
    pace: "Pace"
    proofs: "Once[Proofs]"
    engine: TimerEngine
    events: InstallationEvents
    archives: Archives
    archive_writer: "Once[ArchiveWriter]"
    audit_reports: "Once[AuditReports]"
    journal: Journal | None = None
    functions: dict[str, Respond] = field(default_factory=dict, init=False)
    _large_pages: LargePages = field(default_factory=LargePages)
    _chains: SweepChains = field(default_factory=SweepChains)
    _usage_turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def access(self) -> "Access | None":
        """Return how to reach the API server of the settings; None if they name none, or if a cluster is given.

        Raises:
            SettingsError: The settings of the API server are invalid.
        """
        from shared.adapters.kubernetes.access import get_access

        return None if self.config.cluster else get_access(self.config.settings)

    def answering(self, function: Function, read: Read = parse_event) -> "Callable[[Request], Awaitable[Response]]":
        """Make an HTTP function, with the admission and the metrics of this process; see `answers.answering`.

        The function is added to `functions` too.
        """
        admit, observe = self.config.admit, self.config.metrics.answered if self.config.metrics else None
        self.functions[function.__name__] = responding(function, read=read, admit=admit, observe=observe)
        return answering(function, read=read, admit=admit, observe=observe)

    def published(self) -> Publisher:
        """Return the publisher that sends events to the Broker."""
        return self.config.publisher or self._sink

    def publishing_to(self, publisher: Publisher) -> "Process":
        """Return this process with another publisher; both share all other ports."""
        return replace(self, config=replace(self.config, publisher=publisher))

    @cached_property
    def _sink(self) -> Publisher:
        return self._measured(build_publisher(self.config.settings, self.cluster))

    def _measured(self, publisher: Publisher) -> Publisher:
        return self.config.metrics.measuring(publisher) if self.config.metrics else publisher

    async def schedule(self, obj: object, proof: Proof | None = None) -> TimersSet | None:
        """See `shared.usecases.timers`."""
        config, evaluator = self.config, self.evaluator.made
        return await schedule(
            obj,
            proof,
            catalogue=config.catalogue,
            clock=config.clock,
            telemetry=config.telemetry,
            policy=config.policy(),
            get_cached=evaluator.namespaces.get_cached if evaluator else lambda _: None,
            horizon=horizon(config.settings.sweep_interval),
        )

    async def set_timers(self, wanted: TimersSet | FiredTask | None) -> None:
        """Set the timers of an event, if it has any, or fire the timer of a task; see `shared.usecases.timers`."""
        if wanted is None:
            return
        timers, config = self.start_timers(), self.config
        if isinstance(wanted, FiredTask):
            await fire_task(wanted, timers=timers)
            return
        ahead, unstored = horizon(config.settings.sweep_interval), self.engine.unstored
        try:
            await set_timers(wanted, timers=timers, clock=config.clock, horizon=ahead, telemetry=config.telemetry)
        except (TryLaterError, asyncio.CancelledError) as error:
            unstored.failed(wanted.timers, str(error) or "the process ended first", config.clock.now())
            raise
        unstored.stored(wanted.timers)

    async def handler(self, procedure: "Procedure", by: str) -> "Handler":
        """Make what carries out a procedure, for the named function."""
        from shared.usecases.handler import Handler

        return Handler(
            procedure,
            cluster=await self.cluster(),
            catalogue=self.config.catalogue,
            evaluator=await self.evaluator(),
            clock=self.config.clock,
            telemetry=self.config.telemetry,
            dry_run=self.config.settings.dry_run,
            by=by,
            namespace=self.config.namespace,
            safeguards=await self.safeguards(),
            pace=self.pace,
            proofs=await self.proofs() if self.config.settings.proof_key else None,
        )

    async def expire(self, timer: Timer) -> "Handled | None":
        """Delete the timer's object if it is due, or warn of that; see `Handler.handle`."""
        if timer.purpose is Purpose.WARN:
            from shared.usecases.expire import WARNING

            return await (await self.handler(WARNING, "expire")).handle(timer)
        from shared.usecases.expire import DELETION

        return await (await self.handler(DELETION, "expire")).handle(timer)

    async def enforce(self, timer: Timer) -> "Handled | None":
        """Stop the timer's object if its active deadline is over; see `Handler.handle`."""
        from shared.usecases.enforce import ENFORCEMENT

        return await (await self.handler(ENFORCEMENT, "enforce")).handle(timer)

    async def archive(self, timer: Timer) -> "Handled | None":
        """Archive the timer's object if it has finished; see `Handler.handle`."""
        from shared.usecases.archive import archival

        return await (await self.handler(archival(await self.archive_writer()), "archive")).handle(timer)

    async def sweeper(self) -> "Sweep":
        """Make the use case that lists all objects and deletes those that are due."""
        from shared.usecases.expire import DELETION
        from shared.usecases.sweep import Sweep

        return Sweep(
            handler=await self.handler(DELETION, "sweep"),
            publisher=self.published(),
            interval=self.config.settings.sweep_interval,
            concurrency=self.config.settings.concurrency,
            write_event=self.events.write_swept,
            large_pages=self._large_pages,
            chains=self._chains,
            audit_reports=await self.audit_reports(),
        )

    @cached_property
    def dead_letters(self) -> "DeadLetters":
        """The use case that reports dead letters."""
        from shared.usecases.deadletter import DeadLetters

        return DeadLetters(clock=self.config.clock, telemetry=self.config.telemetry, write_event=self.events.write)

    async def usage(self) -> "Usage":
        """Make the use case that deletes unused Secrets and ConfigMaps."""
        from shared.evaluation.usage_reader import UsageReader
        from shared.usecases.usage.handler import UsageArchive, UsageHandler
        from shared.usecases.usage.tick import Usage

        config, evaluator = self.config, await self.evaluator()
        cluster = await self.cluster()
        of_usage = cast("UsageCluster", cluster)
        handler = UsageHandler(
            cluster=cluster,
            policy=config.policy,
            namespaces=evaluator.namespaces,
            clock=config.clock,
            telemetry=config.telemetry,
            interval=config.settings.usage_interval,
            dry_run=config.settings.dry_run,
            safeguards=await self.safeguards(),
            archive=UsageArchive(of_usage, await self.archive_writer(), evaluator.archive_check, config.telemetry),
        )
        return Usage(
            handler=handler,
            reader=UsageReader(of_usage, config.carriers),
            publisher=self.published(),
            concurrency=config.settings.concurrency,
            namespace=config.namespace,
            turn=self._usage_turn,
        )

    def start_timers(self) -> Timers:
        """Start the timer engine in the running loop."""
        from shared.adapters.timers.delivery import TIMER_PUBLISH_SECONDS_MAX

        if self.engine.timers:
            return self.engine.timers
        if self.config.publisher:
            return self.engine.start(self.config.publisher)
        sink = build_publisher(self.config.settings, self.cluster, seconds_max=TIMER_PUBLISH_SECONDS_MAX)
        return self.engine.start(self._measured(sink), sink.close)

    async def end(self) -> None:
        """End the work of this process in a few seconds: stop the timers, write the shared state and the journal."""
        await self.engine.stop()
        for part in (self.safeguards.made, self.journal):
            if part is not None:
                await part.flush()
