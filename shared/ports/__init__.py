"""The protocols through which the use cases reach the outside; the adapters and the tests' fakes implement them."""

from shared.ports.archive import Archive, Archives, ConfirmingArchive, Stored
from shared.ports.cluster import (
    PASSED_OVER,
    Cluster,
    EventLevel,
    Page,
    Propagation,
    Snapshot,
    Unreadable,
    WriteEvent,
)
from shared.ports.process import Clock, CountedTimers, Publisher, State, Timers
from shared.ports.reasons import EventReason, HandlingReason, Verdict
from shared.ports.telemetry import Telemetry

__all__ = [
    "PASSED_OVER",
    "Archive",
    "Archives",
    "Clock",
    "Cluster",
    "ConfirmingArchive",
    "CountedTimers",
    "EventLevel",
    "EventReason",
    "HandlingReason",
    "Page",
    "Propagation",
    "Publisher",
    "Snapshot",
    "State",
    "Stored",
    "Telemetry",
    "Timers",
    "Unreadable",
    "Verdict",
    "WriteEvent",
]
