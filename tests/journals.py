"""Entries of the journal, and a cluster that takes their Events."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from shared.adapters.kubernetes.journal import EventJournal, JournalLimits
from shared.core.values.objects import ObjectRef
from shared.errors import ForbiddenError
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports import Cluster, EventReason, JournalEntry, Refusal, Report
from shared.usecases.reports import (
    entry_of_archive,
    entry_of_deletion,
    entry_of_refusal,
    entry_of_report,
    entry_of_stop,
)
from tests.builders import NOW
from tests.fakes import FakeTelemetry


def deletion(name: str = "a", namespace: str = "ci", **fields: Any) -> ObjectDeleted:
    """A Job that failed an hour before it was deleted, by a policy rule."""
    usual: dict[str, Any] = {
        "ref": ObjectRef("batch/v1", "Job", namespace, name, f"uid-{namespace}-{name}"),
        "outcome": "failed",
        "finished_at": NOW - timedelta(hours=1),
        "ttl_from": "policy rule ci",
        "due_at": NOW,
        "deleted_at": NOW + timedelta(seconds=0.25),
        "lateness_seconds": 0.25,
        "policy": "0123456789ab",
    }
    return ObjectDeleted(**usual | fields)


def entry(name: str = "a", namespace: str = "ci", **fields: Any) -> JournalEntry:
    return entry_of_deletion(deletion(name, namespace, **fields), by="expire")


def refusal(name: str = "a", namespace: str = "ci", *, at: datetime = NOW, by: str = "expire") -> JournalEntry:
    """The DELETE of the same Job was refused."""
    error = ForbiddenError(f"jobs {name} is forbidden")
    return entry_of_refusal(
        Refusal.of(deletion(name, namespace).ref, EventReason.DELETION_REFUSED, error, at=at), by=by
    )


def stop(name: str = "a", namespace: str = "ci", *, at: datetime = NOW) -> JournalEntry:
    """The same Job was stopped at its deadline."""
    stopped = ObjectStopped(
        ref=deletion(name, namespace).ref,
        started_at=at - timedelta(hours=1),
        deadline_from="policy rule ci",
        due_at=at,
        stopped_at=at,
        lateness_seconds=0.0,
        stops=1,
    )
    return entry_of_stop(stopped, "", by="enforce")


def archived(name: str = "a", namespace: str = "ci", *, at: datetime = NOW) -> JournalEntry:
    """The same Job was archived."""
    version = ObjectArchived(
        ref=deletion(name, namespace).ref,
        archive="main",
        resource_version="7",
        digest="00",
        location="s3://main/a",
        archived_at=at,
    )
    return entry_of_archive(version, by="archive")


def report(
    name: str = "a",
    namespace: str = "ci",
    *,
    reason: EventReason = EventReason.INVALID_TTL,
    message: str = "kept: soon is no duration",
    at: datetime = NOW,
    about: Mapping[str, str] | None = None,
) -> JournalEntry:
    """The same Job, or another object, is kept because its TTL is malformed."""
    names = {"api_version": "batch/v1", "kind": "Job", "namespace": namespace, "name": name, "uid": f"uid-{name}"}
    return entry_of_report(Report.of(ObjectRef(**names | dict(about or {})), reason, message, at=at), by="sweep")


class TakesEvents:
    """A cluster that stores the Events of the journal, by their names.

    Attributes:
        events: What was written.
        failures: Raised by the next writes, the first first.
        gate: A write waits for it.
    """

    def __init__(self, *failures: Exception) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.failures = list(failures)
        self.gate = asyncio.Event()
        self.gate.set()

    async def create_event(self, event: Mapping[str, Any]) -> None:
        self.writes += 1
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.events.setdefault(event["metadata"]["name"], dict(event))


class Bench:
    """A journal over such a cluster.

    Attributes:
        now: The time of the journal, in seconds.
    """

    def __init__(self, *failures: Exception, **limits: Any) -> None:
        self.now = 0.0
        self.cluster, self.telemetry = TakesEvents(*failures), FakeTelemetry()

        async def connected() -> Cluster:
            return cast("Cluster", self.cluster)

        self.limits = JournalLimits(**limits)
        self.journal = EventJournal(
            connected, self.telemetry, self.limits, monotonic=lambda: self.now, instance="expire-7"
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self.cluster.events.values())
