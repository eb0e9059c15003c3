"""The configuration of one process: its settings, the files that they name, and the ports that the caller provides."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from shared import __version__
from shared.adapters.clock import SystemClock
from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import Settings, SettingsError
from shared.adapters.telemetry.logs import LogTelemetry
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.scope import Scope
from shared.ports import Archives, Clock, Cluster, Publisher, Telemetry, Timers
from shared.safeguards.state_schema import HOME

if TYPE_CHECKING:
    from shared.adapters.telemetry.metrics import Metrics
    from shared.core.references.carrier import Carriers


class Policies(Protocol):
    """The policy of a process, which may change while the process runs: a file, or the installed policy."""

    def policy(self) -> Policy:
        """Return the policy in force: the last one that is valid."""

    @property
    def is_good(self) -> bool:
        """Whether the last read brought the policy in force."""


@dataclass(frozen=True, kw_only=True)
class ProcessConfig:
    """The configuration of one process; a program that needs other values makes another one with `replace`.

    Attributes:
        settings: The settings.
        kinds: All known kinds.
        catalogue: The enabled kinds.
        policies: The policy file, or the installed policy; None if there is no policy.
        clock: The clock.
        telemetry: Reports decisions and problems.
        metrics: The metrics, which are also the telemetry; None if they are neither served nor pushed.
        namespace: The only namespace that this process handles; empty for all namespaces.
        home_namespace: The namespace of the shared state and of the brake. If it is empty, the state is kept in
            memory only, as in a demo whose API server ends with it.
        admit: Called with the Authorization header of each request; raises an error to reject the request. None
            admits every request.
        cluster: The Kubernetes API; None to connect when it is first needed.
        publisher: Sends events to the Broker; None for the sink of the settings.
        timers: The timer engine; None to start one when it is first needed.
        archives: The archives of the policy; None to open each when it is first needed.
    """

    settings: Settings
    kinds: Catalogue
    catalogue: Catalogue
    policies: Policies | None = None
    clock: Clock = field(default_factory=SystemClock)
    telemetry: Telemetry = field(default_factory=LogTelemetry)
    metrics: "Metrics | None" = None
    namespace: str = ""
    home_namespace: str = ""
    admit: Callable[[str], Awaitable[None]] | None = None
    cluster: Cluster | None = None
    publisher: Publisher | None = None
    timers: Timers | None = None
    archives: Archives | None = None

    @cached_property
    def carriers(self) -> "Carriers":
        """The carrier rules: the shipped ones, and those of TTL_REFERENCES_DIR; read when they are first needed.

        Raises:
            FileError: A rule in TTL_REFERENCES_DIR is invalid.
        """
        from shared.adapters.config.carrier_files import read_carriers  # noqa: PLC0415 - 100 files that only `usage` reads

        return read_carriers(self.settings.references_dir)

    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.policies.policy() if self.policies else NO_POLICY

    def scope(self) -> Scope:
        """Return what this process handles, for the annotations of its Lease."""
        kinds = tuple(rule.name for rule in self.catalogue.rules) if self.settings.kinds else ()
        digest, dry_run = self.policy().digest, self.settings.dry_run
        return Scope(self.namespace, kinds, digest, dry_run, __version__, state=self.home_namespace)


def read_config(
    settings: Settings, *, telemetry: Telemetry | None = None, kinds: Catalogue | None = None, **ports: Any
) -> ProcessConfig:
    """Read the files that the settings name.

    Args:
        settings: The settings.
        telemetry: Reports decisions and problems; by default to the log.
        kinds: All known kinds; by default the shipped kinds, and those of TTL_KINDS_DIR.
        ports: Other fields of the configuration.

    Raises:
        SettingsError: TTL_KINDS names an unknown kind.
        FileError: A rule in TTL_KINDS_DIR or the policy file of TTL_POLICY is invalid.
    """
    kinds = kinds or read_catalogue(settings.kinds_dir)
    try:
        catalogue = kinds.parse_names(settings.kinds)
    except ValueError as error:
        raise SettingsError(f"TTL_KINDS: {error}") from None
    report: Telemetry = telemetry or LogTelemetry()
    metrics = policies = None
    if settings.metrics_port is not None or settings.sends_metrics:
        from shared.adapters.telemetry.metrics import Metrics  # noqa: PLC0415 - 50 ms that only a measured process needs

        report = metrics = Metrics(report, kinds=kinds, sweep_interval=settings.sweep_interval)
    if settings.policy is not None:
        from shared.adapters.config.policy_file import PolicyFile  # noqa: PLC0415 - only a process with a policy file

        invalid = "invalid policy file: the last valid policy stays in force"
        policies = PolicyFile(settings.policy, kinds, lambda problem: report.problem(invalid, error=problem))
    return ProcessConfig(
        settings=settings,
        kinds=kinds,
        catalogue=catalogue,
        telemetry=report,
        metrics=metrics,
        **{"policies": policies, "home_namespace": settings.home_namespace or HOME, **ports},
    )
