"""The protocols through which the use cases reach the outside; the adapters and the tests' fakes implement them."""

from shared.ports.archive import Archive, ArchiveIds, Archives, ConfirmingArchive, MarkedArchive, Stored
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
from shared.ports.journal import Journal, JournalAction, JournalEntry, JournalResult, Refusal, Report
from shared.ports.process import Clock, Publisher, State
from shared.ports.telemetry import Telemetry
from shared.ports.timers import (
    EVERY_TIMER,
    ConnectedTimers,
    CountedTimers,
    DurableTimers,
    FiredTask,
    PendingTimers,
    TaskTimers,
    TimerFilter,
    TimerPage,
    Timers,
)
from shared.ports.usage_cluster import ListableKind, ListableKinds, Target, TargetPage, UsageCluster
from shared.ports.verdicts import EventReason, HandlingReason, Verdict

__all__ = [
    "EVERY_TIMER",
    "PASSED_OVER",
    "Archive",
    "ArchiveIds",
    "Archives",
    "Clock",
    "Cluster",
    "ConfirmingArchive",
    "ConnectedTimers",
    "CountedTimers",
    "DurableTimers",
    "EventLevel",
    "EventReason",
    "FiredTask",
    "HandlingReason",
    "Journal",
    "JournalAction",
    "JournalEntry",
    "JournalResult",
    "ListableKind",
    "ListableKinds",
    "MarkedArchive",
    "Page",
    "PendingTimers",
    "Propagation",
    "Publisher",
    "Refusal",
    "Report",
    "Snapshot",
    "State",
    "Stored",
    "Target",
    "TargetPage",
    "TaskTimers",
    "Telemetry",
    "TimerFilter",
    "TimerPage",
    "Timers",
    "Unreadable",
    "UsageCluster",
    "Verdict",
    "WriteEvent",
]
