"""The metric about the journal of deletions, stops, archives, refusals and reports."""

from prometheus_client import CollectorRegistry, Counter

from shared.ports import EventLevel, JournalResult, Refusal, Report, Telemetry


class JournalMetrics:
    """The part of the metrics about the journal; it passes each call on.

    Args:
        telemetry: The telemetry that receives each call.
        registry: Where the metrics are registered.
    """

    def __init__(self, telemetry: Telemetry, registry: CollectorRegistry) -> None:
        self._next = telemetry
        self._entries = Counter(
            "ttl_journal_entries_total",
            "Deletions, stops, archives, refusals and reports of decisions by what the journal did: an Event of their "
            "own, a count in the Event of a minute, or dropped.",
            ["result"],
            registry=registry,
        )

    def refused(self, refusal: Refusal, *, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.refused(refusal, by=by)

    def reported(self, report: Report, *, by: str, level: EventLevel = "Warning") -> None:
        """See `shared.ports.Telemetry`."""
        self._next.reported(report, by=by, level=level)

    def journaled(self, result: JournalResult, count: int = 1) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.journaled(result, count)
        self._entries.labels(result).inc(count)
