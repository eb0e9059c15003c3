"""The PolicyReports of a test, in memory."""

from shared.errors import TtlError
from shared.ports.telemetry import AuditReport


class FakeReports:
    """Reports in memory, by namespace."""

    def __init__(self):
        self.reports: dict[str, AuditReport] = {}
        self.calls: list[str] = []
        self.failure: TtlError | None = None

    async def list_written(self):
        self.calls.append("list")
        if self.failure:
            raise self.failure
        return dict(self.reports)

    async def write(self, report, written):
        self.calls.append(f"write {report.namespace}")
        self.reports[report.namespace] = report
        return True

    async def remove(self, written):
        self.calls.append(f"remove {written.namespace}")
        del self.reports[written.namespace]
