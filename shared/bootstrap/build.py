"""Build the process of a configuration: which part gets which other parts.

What only some processes need is imported when it is built.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from shared.adapters.kubernetes.access import get_access
from shared.adapters.kubernetes.journal import EventJournal, JournaledTelemetry, ReportingTelemetry
from shared.bootstrap.archives import OpenedArchives
from shared.bootstrap.config import ProcessConfig
from shared.bootstrap.installation_events import InstallationEvents
from shared.bootstrap.process import Once, Process
from shared.bootstrap.timer_engine import TimerEngine
from shared.core.kinds.rule import KindRule
from shared.core.values.timing import sweep_ahead
from shared.errors import PermanentError
from shared.evaluation.archive_identity import ClusterIdentity, IdentifiedArchives
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.ports import Cluster, Telemetry, WriteEvent
from shared.safeguards.archive_ids import SharedArchiveIds
from shared.safeguards.pace import Pace
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime, SharedState

if TYPE_CHECKING:
    from shared.adapters.kubernetes.cluster import KubernetesCluster
    from shared.evaluation.proofs import Proofs
    from shared.usecases.archives.writer import ArchiveWriter
    from shared.usecases.policy_reports import AuditReports


def build(config: ProcessConfig) -> Process:
    """Build the process of a configuration; it connects and starts nothing."""
    settings = config.settings

    async def build_cluster() -> Cluster:
        from shared.adapters.kubernetes.connect import connect  # noqa: PLC0415 - loads the HTTP client

        return await connect(access=get_access(settings))

    async def build_evaluator() -> Evaluator:
        return Evaluator(
            await cluster(),
            config.kinds,
            config.policy,
            telemetry=config.telemetry,
            only=config.namespace,
            archives=archives,
            enabled=config.catalogue,
        )

    async def build_archive_writer() -> "ArchiveWriter":
        from shared.evaluation.pod_logs import PodLogs  # noqa: PLC0415 - only a process that archives needs it
        from shared.usecases.archives.byte_gate import ArchiveGates  # noqa: PLC0415 - as above
        from shared.usecases.archives.writer import ArchiveWriter  # noqa: PLC0415 - as above

        gates = ArchiveGates.of(settings.archive_bytes)
        return ArchiveWriter(archives, Children(await cluster(), config.kinds), PodLogs(await cluster()), gates)

    async def build_reports() -> "AuditReports":
        """None are written in a dry run, or without an API server."""
        from shared.adapters.kubernetes.policy_reports import KubernetesPolicyReports  # noqa: PLC0415 - only a sweep
        from shared.adapters.kubernetes.requests import ApiServer  # noqa: PLC0415 - as above
        from shared.usecases.policy_reports import AuditReports  # noqa: PLC0415 - as above

        server = None if settings.dry_run else await cluster()
        reports = KubernetesPolicyReports(server, config.namespace) if isinstance(server, ApiServer) else None
        return AuditReports(reports, config.clock, config.telemetry)

    async def make_safeguards() -> Safeguards:
        return build_safeguards(config, await cluster(), functools.partial(events.write_in, config.home_namespace))

    async def make_proofs() -> "Proofs":
        return build_proofs(config, await evaluator(), await cluster())

    cluster = Once(build_cluster, config.cluster)
    evaluator = Once(build_evaluator)
    journal = None if settings.dry_run else EventJournal(cluster, config.telemetry)
    if journal is not None:
        recording = JournaledTelemetry if settings.journal else ReportingTelemetry
        config = replace(config, telemetry=cast("Telemetry", recording(config.telemetry, journal)))
    safeguards = Once(make_safeguards)
    ids = SharedArchiveIds(safeguards, config.telemetry, may_write=not settings.dry_run)
    opened = config.archives or OpenedArchives(ClusterIdentity(settings.cluster_name, cluster))
    archives = IdentifiedArchives(opened, ids, config.clock.now)
    events = InstallationEvents(settings, cluster)
    return Process(
        config=config,
        cluster=cluster,
        evaluator=evaluator,
        safeguards=safeguards,
        pace=Pace(config.telemetry),
        proofs=Once(make_proofs),
        engine=TimerEngine(settings, config.clock, config.timers),
        events=events,
        archives=archives,
        archive_writer=Once(build_archive_writer),
        journal=journal,
        audit_reports=Once(build_reports),
    )


def build_safeguards(
    config: ProcessConfig,
    cluster: object,
    write_event: WriteEvent,
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> Safeguards:
    """Build the safeguards of one process, which delay or deny DELETEs of due objects.

    Args:
        config: The configuration of the process. If it has no home namespace, the process counts alone.
        cluster: The cluster; only an `ApiServer` can keep the shared state.
        write_event: Writes a Kubernetes Event about the installation.
        monotonic: A monotonic clock, in seconds.
    """
    from shared.adapters.kubernetes.requests import ApiServer, count_objects  # noqa: PLC0415 - loads the HTTP client
    from shared.adapters.kubernetes.state_configmap import ConfigMapState  # noqa: PLC0415 - as above

    server = cluster if isinstance(cluster, ApiServer) else None

    async def count(rule: KindRule) -> int:
        if server is None:
            raise PermanentError(f"cannot count {rule.plural}: this process has no API server")
        return await count_objects(server, rule, config.namespace)

    runtime, home = Runtime(config.clock, monotonic, config.telemetry), config.home_namespace
    state = ConfigMapState(server, home) if server and home else None
    shared_state = SharedState(state, runtime, write_event=write_event, namespace=home)
    horizon = sweep_ahead(config.settings.sweep_interval)
    return Safeguards(lambda: config.policy().limits, shared_state, runtime, count_objects=count, horizon=horizon)


def build_proofs(config: ProcessConfig, evaluator: Evaluator, cluster: Cluster) -> "Proofs":
    """Build what deletes objects without reading them; without TTL_PROOF_KEY it can make and check no proof.

    Args:
        config: The configuration of the process.
        evaluator: Its evaluator.
        cluster: Its Kubernetes API.
    """
    from shared.evaluation.proofs import Proofs  # noqa: PLC0415 - only a process with a key needs it
    from shared.installation.guard_status import GuardCheck  # noqa: PLC0415 - as above

    key = config.settings.proof_key
    guards = GuardCheck(cast("KubernetesCluster", cluster), config.kinds, config.home_namespace, time.monotonic)
    return Proofs(
        key=key.get_secret_value().encode() if key else b"",
        evaluator=evaluator,
        cluster=cluster,
        is_authenticated=config.admit is not None,
        is_guarded=guards.is_in_force,
    )
