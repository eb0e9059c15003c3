"""Structured logs: one line per verdict, in the words of the code, and counts of them; in `run`, sums of timers."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from shared.core.decision.decide import Reason
from shared.core.decision.facts import Audited
from shared.core.decision.forecast import Forecast
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, format_instant
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports import EventLevel, JournalResult, Refusal, Report, Verdict

_NAMESPACES_LOGGED_MAX = 20

_log = logging.getLogger("ttl")

REMEMBERED_UIDS_MAX = 100_000
"""Maximum number of uids of each verdict that a dry run remembers (about 10 MB); it does not count further objects."""


class UsageLogs:
    """The part of the log about `usage`. A problem that lasts is logged once."""

    def __init__(self) -> None:
        self._pass_problem = ""
        self._unknown: dict[str, str] = {}

    def usage_pass(self, problem: str, unknown: Mapping[str, str] | None = None) -> None:
        """See `shared.ports.Telemetry`."""
        if problem and problem != self._pass_problem:
            message = "pass not complete: Secrets or ConfigMaps are neither marked nor deleted"
            _log.warning(message, extra={"fields": {"error": problem}})
        elif self._pass_problem and not problem:
            _log.info("pass complete again", extra={"fields": {}})
        self._pass_problem = problem
        if unknown is not None:
            self._log_unknown(dict(sorted(unknown.items())[:_NAMESPACES_LOGGED_MAX]))

    def _log_unknown(self, unknown: dict[str, str]) -> None:
        for namespace, cause in unknown.items():
            if self._unknown.get(namespace) != cause:
                message = "an object cannot be read: it is unknown what is used in a namespace, and nothing is deleted"
                _log.warning(message, extra={"fields": {"namespace": namespace, "error": cause}})
        self._unknown = unknown

    def usage_ended(self, counts: Mapping[str, int], *, window_seconds: float) -> None:
        """See `shared.ports.Telemetry`."""
        window = {"window_seconds": round(window_seconds, 3)} if window_seconds else {}
        _log.info("usage ended", extra={"fields": {**counts, **window}})


class LogTelemetry(UsageLogs):
    """Logs and counts verdicts.

    Objects that are kept for a common reason are logged at debug level, since each sweep keeps most objects.

    Attributes:
        counts: The number of each verdict since the start; also `missed-by-events` and `problem`.
        would: In a dry run: the uids of the objects that it would delete or stop, at most REMEMBERED_UIDS_MAX each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.would: dict[Verdict, set[str]] = {Verdict.WOULD_DELETE: set(), Verdict.WOULD_STOP: set()}

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
        """See `shared.ports.Telemetry`."""
        self.counts[verdict] += 1
        if verdict in self.would and len(self.would[verdict]) < REMEMBERED_UIDS_MAX:
            self.would[verdict].add(ref.uid)
        level = logging.WARNING if reason in _UNEXPECTED else _LEVELS.get(verdict, logging.DEBUG)
        if not _log.isEnabledFor(level):  # most objects of a sweep: no text is made for them
            return
        due = "" if due_at is None else format_instant(due_at)
        _log.log(
            level,
            str(verdict),
            extra={"fields": _fields(**_identity(ref), reason=str(reason), due=due, detail=detail, by=by)},
        )

    def audited(self, verdict: Verdict, ref: ObjectRef, audited: Audited, *, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self.counts[verdict] += 1
        about = {"reason": str(Reason.AUDIT_ONLY), "rule": audited.rule, "detail": audited.summary, "by": by}
        _log.info(str(verdict), extra={"fields": _fields(**_identity(ref), **about)})

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False) -> None:
        """See `shared.ports.Telemetry`."""
        self.counts[Verdict.DELETED] += 1
        if missed:
            self.counts["missed-by-events"] += 1
        fields = _fields(
            **_identity(deleted.ref),
            reason=deleted.reason,
            outcome=deleted.outcome or "",
            finished=format_instant(deleted.finished_at) if deleted.finished_at else "",
            due=format_instant(deleted.due_at),
            lateness_seconds=round(deleted.lateness_seconds, 3),
            ttl_from=deleted.ttl_from,
            moved_by=deleted.moved_by,
            policy=deleted.policy,
            by=by,
            missed=missed or None,
            finalizers=", ".join(deleted.finalizers),
        )
        _log.info("deletion accepted" if deleted.finalizers else str(Verdict.DELETED), extra={"fields": fields})

    def object_stopped(self, stopped: ObjectStopped, *, by: str, detail: str = "") -> None:
        """See `shared.ports.Telemetry`."""
        self.counts[Verdict.STOPPED] += 1
        fields = _fields(
            **_identity(stopped.ref),
            reason=str(Reason.DEADLINE_EXCEEDED),
            due=format_instant(stopped.due_at),
            lateness_seconds=round(stopped.lateness_seconds, 3),
            deadline_from=stopped.deadline_from,
            stops=stopped.stops,
            policy=stopped.policy,
            detail=detail,
            by=by,
        )
        _log.info(str(Verdict.STOPPED), extra={"fields": fields})

    def archived(self, archived: ObjectArchived, *, size: int, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self.counts[Verdict.ARCHIVED] += 1
        fields = _fields(
            **_identity(archived.ref),
            archive=archived.archive,
            location=archived.location,
            size=size or None,
            children=archived.children or None,
            logs=archived.logs or None,
            by=by,
        )
        _log.info(str(Verdict.ARCHIVED), extra={"fields": fields})

    def not_archived(self, ref: ObjectRef, archive: str, finished_at: datetime | None, *, failed: bool = False) -> None:
        """See `shared.ports.Telemetry`; `record` logs the verdict."""

    def refused(self, refusal: Refusal, *, by: str) -> None:
        """See `shared.ports.Telemetry`; `record` logs the verdict."""

    def reported(self, report: Report, *, by: str, level: EventLevel = "Warning") -> None:
        """See `shared.ports.Telemetry`; `record` logs the verdict."""

    def problem(self, message: str, **fields: object) -> None:
        """See `shared.ports.Telemetry`."""
        self.counts["problem"] += 1
        _log.warning(message, extra={"fields": fields})

    def dead_letter(self, event_type: str, status: int | str, **fields: object) -> None:
        """See `shared.ports.Telemetry`."""
        self.problem("an event went to the dead letter", type=event_type, status=status, **fields)

    def swept(self, rule: KindRule) -> None:
        """See `shared.ports.Telemetry`."""
        _log.debug("swept", extra={"fields": {"kind": rule.name}})

    def sweep_ended(self, sweep_id: str, counts: Mapping[str, int], *, whole: bool) -> None:
        """See `shared.ports.Telemetry`."""
        is_quiet = not whole and not any(counts.get(name) for name in _REPORTED)
        level = logging.DEBUG if is_quiet else logging.INFO
        _log.log(level, "sweep ended", extra={"fields": {**counts, "sweep_id": sweep_id}})

    def forecast(self, forecast: Forecast) -> None:
        """See `shared.ports.Telemetry`; only metrics show it."""

    def delayed(self, ref: ObjectRef, seconds: float) -> None:
        """See `shared.ports.Telemetry`; `record` logs the verdict."""

    def paced(self, rule: KindRule, permits: int, *, before: int, most: int) -> None:
        """See `shared.ports.Telemetry`; only the first decrease and the end of it are logged."""
        fields = {"kind": rule.name, "in_flight_max": permits}
        if permits < before == most:
            _log.warning("deletions slow down: the API server is slow or busy", extra={"fields": fields})
        elif before < permits == most:
            _log.info("deletions are at full pace again", extra={"fields": fields})

    def breaker(self, *, is_open: bool) -> None:
        """See `shared.ports.Telemetry`; the trip itself is logged elsewhere."""

    def stopped(self, *, is_stopped: bool) -> None:
        """See `shared.ports.Telemetry`; each change is logged elsewhere."""

    def recreate_loop(self, ref: ObjectRef) -> None:
        """See `shared.ports.Telemetry`."""
        _log.warning("recreate loop", extra={"fields": _fields(**_identity(ref))})

    def journaled(self, result: JournalResult, count: int = 1) -> None:
        """See `shared.ports.Telemetry`; the journal logs why it drops entries."""


_LEVELS = {
    Verdict.KEPT: logging.DEBUG,
    Verdict.RECORDED: logging.DEBUG,
    Verdict.TIMER_SET: logging.INFO,
    **dict.fromkeys((Verdict.MARKED, Verdict.UNMARKED, Verdict.ANNOUNCED), logging.INFO),
    Verdict.WARNED: logging.INFO,
    Verdict.WOULD_DELETE: logging.INFO,
    Verdict.WOULD_STOP: logging.INFO,
    Verdict.WOULD_ARCHIVE: logging.INFO,
    Verdict.ALREADY_ARCHIVED: logging.DEBUG,
    Verdict.ALREADY_GONE: logging.INFO,
    Verdict.FAILED: logging.ERROR,
}
_UNEXPECTED = {
    *(Reason.INVALID_TTL, Reason.INVALID_POLICY, Reason.INVALID_DEADLINE, Reason.INVALID_ARCHIVE, Reason.STOP_UNDONE)
}
_REPORTED = ("deleted", "would_delete", "would_stop", "failed")
"""The counts for which the end of a partial sweep is logged."""


def _identity(ref: ObjectRef) -> dict[str, object]:
    """Return the fields of an object; the apiVersion only if the kind is not built in, since such kinds share names."""
    return {"object": str(ref), "api_version": ref.api_version if "." in ref.group else "", "uid": ref.uid}


def _fields(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value not in ("", None)}


SUM_SECONDS = 1.0
"""Timers of a kind that are set within this time share a line."""

_SUMMED = ("schedule", "sweep")
"""The functions that set a timer for each object; a timer of another function is about one attempt, such as a retry."""


class SummedTimers(logging.Filter):
    """Holds back the lines `timer-set` of a handler, and writes one line a kind for those of `SUM_SECONDS`.

    A line that is alone stays as it is.

    Args:
        handler: The handler; add this filter to it.
        after: Calls a function after a time in seconds.
    """

    def __init__(self, handler: logging.Handler, after: Callable[[float, Callable[[], None]], Any]) -> None:
        super().__init__()
        self._handler, self._after = handler, after
        self._held: dict[str, list[logging.LogRecord]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        fields = getattr(record, "fields", {})
        if record.msg != str(Verdict.TIMER_SET) or record.levelno != logging.INFO or fields.get("by") not in _SUMMED:
            return True
        if not self._held:
            self._after(SUM_SECONDS, self.flush)
        kind = str(fields.get("object", "")).partition(" ")[0]
        self._held.setdefault(kind, []).append(record)
        return False

    def flush(self) -> None:
        """Write what is held back."""
        held, self._held = self._held, {}
        for kind, records in held.items():
            self._handler.emit(records[0] if len(records) == 1 else _sum(kind, records))


def _sum(kind: str, records: list[logging.LogRecord]) -> logging.LogRecord:
    """One record for the timers of a kind; `first_due` is the earliest due time."""
    dues = sorted(due for record in records if (due := getattr(record, "fields", {}).get("due")))
    first = {"first_due": dues[0]} if dues else {}
    last = records[-1]
    about = {"msg": last.msg, "levelno": last.levelno, "levelname": last.levelname, "created": last.created}
    return logging.makeLogRecord({**about, "fields": {"kind": kind, "objects": len(records), **first}})
