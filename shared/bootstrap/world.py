"""The World of one process: its use cases, on the adapters of its settings.

In the process of a single function, `world` builds a World from the environment. The runner and the tests set a World
of their own before the functions are loaded.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import Settings, SettingsError, log_form, read_settings
from shared.adapters.telemetry.logs import configure_logging
from shared.bootstrap.adapters import Adapters
from shared.core.timing import horizon
from shared.messages import TimersSet
from shared.safeguards.state_schema import HOME
from shared.usecases.deadletter import DeadLetters
from shared.usecases.expire import Expiry
from shared.usecases.schedule import schedule
from shared.usecases.sweep import Sweep
from shared.usecases.sweep_pages import LargePages
from shared.usecases.timers import set_timers


@dataclass
class World(Adapters):
    """The use cases of this process, on its adapters."""

    _large_pages: LargePages = field(default_factory=LargePages)

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

    async def set_timers(self, wanted: TimersSet) -> None:
        """See `shared.usecases.timers`."""
        await set_timers(
            wanted,
            timers=self.timers or self.start_timers(),
            clock=self.clock,
            horizon=horizon(self.settings.sweep_interval),
            telemetry=self.telemetry,
        )

    async def expiry(self, by: str = "expire") -> Expiry:
        """Make the use case that deletes due objects, for the named function."""
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
        """Make the use case that lists all objects and deletes those that are due."""
        expiry = await self.expiry("sweep")
        return Sweep(
            cluster=expiry.cluster,
            catalogue=expiry.catalogue,
            evaluator=expiry.evaluator,
            clock=self.clock,
            telemetry=self.telemetry,
            expiry_with=lambda telemetry: replace(expiry, telemetry=telemetry),
            publisher=self.published(),
            interval=self.settings.sweep_interval,
            concurrency=self.settings.concurrency,
            namespace=self.namespace,
            write_event=self.events.write_swept,
            large_pages=self._large_pages,
        )

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """The use case that reports dead letters."""
        return DeadLetters(clock=self.clock, telemetry=self.telemetry, write_event=self.events.write)


def build(settings: Settings) -> World:
    """Build a World from settings.

    Raises:
        SettingsError: TTL_KINDS names an unknown kind.
        FileError: A rule in TTL_KINDS_DIR or the policy file of TTL_POLICY is invalid.
    """
    kinds = read_catalogue(settings.kinds_dir)
    try:
        catalogue = kinds.parse_names(settings.kinds)
        world = World(settings, kinds, catalogue, home_namespace=settings.home_namespace or HOME)
    except ValueError as error:
        raise SettingsError(f"TTL_KINDS: {error}") from None
    if settings.policy is not None:
        from shared.adapters.config.policy_file import PolicyFile  # noqa: PLC0415 - only a process with a policy file

        world.policies = PolicyFile(settings.policy, kinds, world.report_policy)
    return world


_worlds: list[World] = []


def use(world: World) -> None:
    """Set the World of this process."""
    _worlds[:] = [world]


def world() -> World:
    """Return the World of this process; if none is set, build one from the environment."""
    if not _worlds:
        configure_logging(log_form() or "json")  # before the settings, so that an error in them is logged
        settings = read_settings()
        built = build(settings)
        built.measure()
        use(built)
    return _worlds[0]


def is_in_use() -> bool:
    """Whether a World is set; if not, this process is a function's own."""
    return bool(_worlds)
