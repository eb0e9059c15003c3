"""What a process reports: logs and metrics, the journal, and the PolicyReports of audits (wgpolicyk8s.io/v1alpha2).

The journal is a record of what was done to single objects, refused or decided, for which people can ask afterwards. A
`Refusal` is what the API server or an archive refused for good, and a `Report` is what a person has to know about a
decision.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from shared.core.decision.decide import Reason
from shared.core.decision.facts import Audited
from shared.core.decision.forecast import Forecast
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import PermanentError
from shared.messages import Message, ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports.cluster import EventLevel
from shared.ports.verdicts import EventReason, Verdict

_MESSAGE_CHARACTERS_MAX = 1_000
_TEXT_CHARACTERS_MAX = 1_000


class Report(BaseModel):
    """A decision that is reported by an Event, such as that an object is kept because its TTL is malformed.

    Attributes:
        ref: The object, or its Namespace.
        reason: The reason of the Event.
        message: What was decided and why; at most 1,000 characters.
        reported_at: When it was reported, by this process's clock.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    ref: ObjectRef
    reason: EventReason
    message: str
    reported_at: datetime

    @classmethod
    def of(cls, ref: ObjectRef, reason: EventReason, message: str, *, at: datetime) -> Self:
        """Describe a decision about an object."""
        return cls(ref=ref, reason=reason, message=message[:_TEXT_CHARACTERS_MAX], reported_at=at)

    @property
    def id(self) -> str:
        """The uid, and a hash of what is reported without the time: each sweep finds the same again."""
        digest = hashlib.sha256(f"{self.ref}/{self.message}".encode(errors="replace")).hexdigest()[:16]
        return f"{self.ref.uid}/reported/{self.reason}/{digest}"


class Refusal(BaseModel):
    """A permanent error about one object.

    Attributes:
        ref: The object.
        reason: The reason of the Event about it.
        error: The class of the error, such as `ForbiddenError`.
        message: The answer of the API server or of the archive; at most 1,000 characters.
        refused_at: When the answer came, by this process's clock.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    ref: ObjectRef
    reason: EventReason
    error: str
    message: str
    refused_at: datetime

    @classmethod
    def of(cls, ref: ObjectRef, reason: EventReason, error: PermanentError, *, at: datetime) -> Self:
        """Describe a permanent error about an object."""
        message = str(error)[:_MESSAGE_CHARACTERS_MAX]
        return cls(ref=ref, reason=reason, error=type(error).__name__, message=message, refused_at=at)

    @property
    def id(self) -> str:
        """The uid, and what was refused when: an object may be refused again."""
        return f"{self.ref.uid}/refused/{self.reason}/{self.refused_at.isoformat()}"


class JournalAction(StrEnum):
    """What was done, as the field `action` of a Kubernetes Event."""

    DELETE = "Delete"
    STOP = "Stop"
    ARCHIVE = "Archive"
    REFUSE = "Refuse"
    """Nothing was done: the API server or an archive refused it for good."""
    REPORT = "Report"
    """Nothing was done: a person has to know of a decision, such as that a malformed TTL keeps the object."""


class JournalResult(StrEnum):
    """What became of an entry of the journal."""

    RECORDED = "recorded"
    """An Event of its own has the entry."""
    COUNTED = "counted"
    """An Event that sums up a minute counts the entry."""
    DROPPED = "dropped"
    """No Event has the entry: the API server was away or refused, or too many entries waited."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One thing that was done to one object, refused, or decided about it.

    Attributes:
        ref: The object.
        action: What was done.
        reason: The reason of the Event.
        at: When it was done.
        note: What was done and why, in plain words.
        by: The function that did it.
        message: The message of the CloudEvent about it, the refusal, or the report.
        source: What set the TTL or the deadline: an annotation, a field, a policy rule, or the archive; the class of
            the error of a refusal; empty for a report.
        policy: The hash of the policy in force; empty without a policy.
        level: The type of the Event.
    """

    ref: ObjectRef
    action: JournalAction
    reason: EventReason
    at: datetime
    note: str
    by: str
    message: Message | Refusal | Report
    source: str = ""
    policy: str = ""
    level: EventLevel = "Normal"


class Journal(Protocol):
    """Records what was done to objects."""

    def note(self, entry: JournalEntry) -> None:
        """Take an entry; it never waits and never fails, since what it is about does not depend on it."""
        ...

    async def flush(self) -> None:
        """Write what waits, in a few seconds; what is not written then is dropped. Call it when the process ends."""
        ...


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


class Telemetry(Protocol):
    """Logs and metrics."""

    def record(  # noqa: PLR0913 - the fields of a log line
        self,
        verdict: Verdict,
        ref: ObjectRef,
        reason: Reason | str = "",
        *,
        detail: str = "",
        by: str = "",
        due_at: datetime | None = None,
    ) -> None:
        """Record what a function did with one object.

        Args:
            verdict: What was done.
            ref: The object.
            reason: Why.
            detail: More about the reason.
            by: The function.
            due_at: When the timer fires, if the function set one.
        """
        ...

    def audited(self, verdict: Verdict, ref: ObjectRef, audited: Audited, *, by: str) -> None:
        """Record what a function would have done with a due object, if its policy rule had no `audit: true`.

        Args:
            verdict: What would have been done.
            ref: The object.
            audited: The rule, and why the object is due.
            by: The function.
        """
        ...

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False) -> None:
        """Record that a DELETE was accepted.

        Args:
            deleted: The object.
            by: The function that deleted it.
            missed: Whether a sweep found the object although the events should have.
        """
        ...

    def object_stopped(self, stopped: ObjectStopped, *, by: str, detail: str = "") -> None:
        """Record that the patch that stops an object was accepted.

        Args:
            stopped: The object.
            by: The function that stopped it.
            detail: The deadline, and the patch.
        """
        ...

    def archived(self, archived: ObjectArchived, *, size: int, by: str) -> None:
        """Record that an archive has acknowledged an object.

        Args:
            archived: The object.
            size: Its size in the archive, in bytes; 0 if it was stored before.
            by: The function that stored it.
        """
        ...

    def not_archived(self, ref: ObjectRef, archive: str, finished_at: datetime | None, *, failed: bool = False) -> None:
        """Record that an archive has not acknowledged an object that has finished.

        Args:
            ref: The object.
            archive: The name of the archive.
            finished_at: When the object finished; None if that is unknown.
            failed: Whether an attempt to store it has failed.
        """
        ...

    def refused(self, refusal: Refusal, *, by: str) -> None:
        """Record what the API server or an archive refused for good; `record` counts the verdict.

        Args:
            refusal: What was refused.
            by: The function that tried it.
        """
        ...

    def reported(self, report: Report, *, by: str, level: EventLevel = "Warning") -> None:
        """Record a decision that a person has to know; `record` counts the verdict.

        Args:
            report: The decision.
            by: The function that decided.
            level: The type of the Event.
        """
        ...

    def problem(self, message: str, **fields: object) -> None:
        """Record a problem that concerns no single object; `message` is one of a few, `fields` hold the details."""
        ...

    def dead_letter(self, event_type: str, status: int | str, **fields: object) -> None:
        """Record an event that could not be delivered; `status` is the status of the last answer."""
        ...

    def swept(self, rule: KindRule) -> None:
        """Record that a sweep has read the last page of a kind."""
        ...

    def sweep_ended(self, sweep_id: str, counts: Mapping[str, int], *, whole: bool) -> None:
        """Record that a sweep has read the last page of its last kind.

        Args:
            sweep_id: The id of the sweep.
            counts: How many objects were `looked_at`, and of these `deleted`, `would_delete`, `would_stop`,
                `timers_set`, `timers_not_set`, `kept` and `failed`.
            whole: Whether the sweep began with all kinds.
        """
        ...

    def forecast(self, forecast: Forecast) -> None:
        """Record how many objects of each kind are due in each hour, as a sweep of all kinds has found."""
        ...

    def delayed(self, ref: ObjectRef, seconds: float) -> None:
        """Record that the budget was exhausted, and that the object got a slot in so many seconds."""
        ...

    def paced(self, rule: KindRule, permits: int, *, before: int, most: int) -> None:
        """Record how many deletions of a kind may be in flight at once; called for a new kind, and at each change.

        Args:
            rule: The kind.
            permits: The number from now on.
            before: The number until now; the same for a new kind.
            most: The number while the API server is well.
        """
        ...

    def breaker(self, *, is_open: bool) -> None:
        """Record whether the breaker is open, as far as this process knows; called at every read of the state."""
        ...

    def stopped(self, *, is_stopped: bool) -> None:
        """Record whether a person stopped the deletions, as far as this process knows; called at every read."""
        ...

    def recreate_loop(self, ref: ObjectRef) -> None:
        """Record that an object was recreated too often: an object of that name is kept from now on."""
        ...

    def usage_pass(self, problem: str, unknown: Mapping[str, str] | None = None) -> None:
        """Record that a pass over all objects that may refer to Secrets and ConfigMaps has ended.

        Args:
            problem: Why it is unknown in all namespaces what is used, so that nothing is marked or deleted; empty if
                it is known.
            unknown: The namespaces in which that is unknown, each with the object that is the cause; None if the pass
                does not show it.
        """
        ...

    def usage_ended(self, counts: Mapping[str, int], *, window_seconds: float) -> None:
        """Record that a tick of `usage` has ended.

        Args:
            counts: How many objects were `looked_at`, and of these `marked`, `unmarked`, `announced`, `deleted`,
                `would_delete`, `kept` and `failed`.
            window_seconds: The longest time from the start of the last pass to an accepted DELETE; 0 without a DELETE.
        """
        ...

    def journaled(self, result: JournalResult, count: int = 1) -> None:
        """Record what became of some entries of the journal."""
        ...
