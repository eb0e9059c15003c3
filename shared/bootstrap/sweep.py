"""Build the use case `Sweep`, with the reports of rules with audit."""

from typing import TYPE_CHECKING

from shared.usecases.expire import DELETION
from shared.usecases.policy_reports import AuditReports
from shared.usecases.sweep import Sweep
from shared.usecases.sweeps.chains import SweepChains
from shared.usecases.sweeps.pages import LargePages

if TYPE_CHECKING:
    from shared.bootstrap.config import ProcessConfig
    from shared.bootstrap.process import Process
    from shared.ports import Cluster


async def build_sweep(process: "Process", large_pages: LargePages, chains: SweepChains) -> Sweep:
    """Build the use case that lists all objects and deletes those that are due.

    Args:
        process: The process.
        large_pages: The turns of all sweeps of the process.
        chains: The steps of sweeps that the process has returned.
    """
    return Sweep(
        handler=await process.handler(DELETION, "sweep"),
        publisher=process.published(),
        interval=process.config.settings.sweep_interval,
        concurrency=process.config.settings.concurrency,
        write_event=process.events.write_swept,
        large_pages=large_pages,
        chains=chains,
        audit_reports=await process.audit_reports(),
    )


def build_audit_reports(cluster: "Cluster", config: "ProcessConfig") -> AuditReports:
    """Build what writes the reports of rules with audit: none in a dry run, or without an API server."""
    from shared.adapters.kubernetes.policy_reports import KubernetesPolicyReports  # noqa: PLC0415 - needs the client
    from shared.adapters.kubernetes.requests import ApiServer  # noqa: PLC0415 - as above

    if not isinstance(cluster, ApiServer) or config.settings.dry_run:
        return AuditReports(None, config.clock, config.telemetry)
    return AuditReports(KubernetesPolicyReports(cluster, config.namespace), config.clock, config.telemetry)
