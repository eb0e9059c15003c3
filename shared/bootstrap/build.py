"""Build the process of a configuration: which part gets which other parts."""

import functools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from shared.adapters.kubernetes.journal import EventJournal
from shared.adapters.telemetry.journaled import JournaledTelemetry, ReportingTelemetry
from shared.bootstrap.archives import OpenedArchives
from shared.bootstrap.config import ProcessConfig
from shared.bootstrap.installation_events import InstallationEvents
from shared.bootstrap.process import Once, Process
from shared.bootstrap.timer_engine import TimerEngine
from shared.core.values.timing import sweep_ahead
from shared.evaluation.archive_identity import ClusterIdentity, IdentifiedArchives
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.ports import Cluster, Telemetry
from shared.safeguards.archive_ids import SharedArchiveIds
from shared.safeguards.pace import Pace
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime

if TYPE_CHECKING:
    from shared.evaluation.proofs import Proofs
    from shared.usecases.archives.writer import ArchiveWriter
    from shared.usecases.policy_reports import AuditReports


def build(config: ProcessConfig) -> Process:
    """Build the process of a configuration; it connects and starts nothing."""
    settings = config.settings

    async def build_cluster() -> Cluster:
        from shared.adapters.kubernetes.access import get_access  # noqa: PLC0415 - only some functions need it
        from shared.adapters.kubernetes.connect import connect  # noqa: PLC0415 - only some functions need it

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

    async def build_safeguards() -> Safeguards:
        from shared.bootstrap import safeguards  # noqa: PLC0415 - loads the HTTP client

        write_event = functools.partial(events.write_in, config.home_namespace)
        return safeguards.build_safeguards(
            safeguards.StateLocation(await cluster(), config.home_namespace, write_event),
            lambda: config.policy().limits,
            Runtime(config.clock, time.monotonic, config.telemetry),
            namespace=config.namespace,
            horizon=sweep_ahead(settings.sweep_interval),
        )

    async def build_proofs() -> "Proofs":
        from shared.bootstrap import proofs  # noqa: PLC0415 - only a process with a key needs it

        return proofs.build_proofs(config, await evaluator(), await cluster())

    cluster = Once(build_cluster, config.cluster)
    evaluator = Once(build_evaluator)
    journal = None if settings.dry_run else EventJournal(cluster, config.telemetry)
    if journal is not None:
        recording = JournaledTelemetry if settings.journal else ReportingTelemetry
        config = replace(config, telemetry=cast("Telemetry", recording(config.telemetry, journal)))
    safeguards = Once(build_safeguards)
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
        proofs=Once(build_proofs),
        engine=TimerEngine(settings, config.clock, config.timers),
        events=events,
        archives=archives,
        archive_writer=Once(build_archive_writer),
        journal=journal,
        audit_reports=Once(build_reports),
    )
