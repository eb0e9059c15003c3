"""Logs and metrics, as the use cases write them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from shared.core.decision.decide import Reason
from shared.core.decision.facts import Audited
from shared.core.decision.forecast import Forecast
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports.cluster import EventLevel
from shared.ports.journal import JournalResult, Refusal, Report
from shared.ports.verdicts import Verdict


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
