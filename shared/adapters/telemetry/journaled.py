"""A telemetry that also writes the journal: each deletion, stop, archive, refusal and report passes here once."""

from typing import Any

from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports import EventLevel, Journal, Refusal, Report, Telemetry
from shared.usecases.reports import (
    entry_of_archive,
    entry_of_deletion,
    entry_of_refusal,
    entry_of_report,
    entry_of_stop,
)


class ReportingTelemetry:
    """Passes each call on, and gives the reports of decisions to a journal.

    Args:
        telemetry: The telemetry that receives each call.
        journal: The journal.
    """

    def __init__(self, telemetry: Telemetry, journal: Journal) -> None:
        self._next, self._journal = telemetry, journal

    def __getattr__(self, name: str) -> Any:
        """Pass on everything that the journal does not record."""
        return getattr(self._next, name)

    def reported(self, report: Report, *, by: str, level: EventLevel = "Warning") -> None:
        """See `shared.ports.Telemetry`."""
        self._next.reported(report, by=by, level=level)
        self._journal.note(entry_of_report(report, by=by, level=level))


class JournaledTelemetry(ReportingTelemetry):
    """Passes each call on, and gives the reports, and what was done to an object or refused, to a journal."""

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.deleted(deleted, by=by, missed=missed)
        self._journal.note(entry_of_deletion(deleted, by=by))

    def object_stopped(self, stopped: ObjectStopped, *, by: str, detail: str = "") -> None:
        """See `shared.ports.Telemetry`."""
        self._next.object_stopped(stopped, by=by, detail=detail)
        self._journal.note(entry_of_stop(stopped, detail, by=by))

    def archived(self, archived: ObjectArchived, *, size: int, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.archived(archived, size=size, by=by)
        self._journal.note(entry_of_archive(archived, by=by))

    def refused(self, refusal: Refusal, *, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.refused(refusal, by=by)
        self._journal.note(entry_of_refusal(refusal, by=by))
