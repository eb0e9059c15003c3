"""The reports of audits on the API server: PolicyReports of wgpolicyk8s.io/v1alpha2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shared.core.values.objects import ObjectRef


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What the rules with audit report in one namespace.

    Attributes:
        namespace: The namespace; empty for cluster-scoped objects.
        results: The results, in the form of a PolicyReport.
        count: How many results there are, with those that are left out.
        failed: On how many objects the sweep failed, so that their results may be missing.
    """

    namespace: str
    results: Sequence[Mapping[str, Any]]
    count: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report of ours that exists.

    Attributes:
        ref: Its identity.
        resource_version: Its version: a write or a DELETE carries it.
        digest: The digest of its contents, as it was written.
    """

    ref: ObjectRef
    resource_version: str
    digest: str


class PolicyReports(Protocol):
    """Reads and writes the reports; every method raises the errors of `shared.ports.Cluster`."""

    async def list_written(self) -> Mapping[str, WrittenReport] | None:
        """Return our reports, by namespace; None if no CRD of them is installed."""
        ...

    async def write(self, report: AuditReport, written: WrittenReport | None) -> bool:
        """Create a report, or replace it if its contents changed.

        Args:
            report: The report.
            written: The report that exists; None if there is none.

        Returns:
            Whether it was written: False if nothing changed, or if the CRD of its kind is not installed.
        """
        ...

    async def remove(self, written: WrittenReport) -> None:
        """Delete a report, exactly as it was read."""
        ...
