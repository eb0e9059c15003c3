"""What the policy rules with audit would do, as one report a namespace; written at the end of a sweep of all kinds.

A sweep has several steps. A report counts what all of them found, so this process must have run all of them. If
another process ran a step, or a kind could not be listed, the reports stay as they are until the next sweep. If the
sweep failed on single objects, the report of their namespace counts them as errors: results may be missing.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from shared.core.decision.facts import Audited
from shared.core.values.objects import ObjectRef
from shared.errors import TtlError
from shared.messages import SweepStep
from shared.ports import Clock, Telemetry, Verdict
from shared.ports.telemetry import AuditReport, PolicyReports, WrittenReport
from shared.usecases.sweeps.chains import SweepMemory

RESULTS_MAX = 1_000
"""Results in one report; the count of the summary has all of them. A report of so many results is below 1 MiB."""

RESULTS_OF_ALL_MAX = 50_000
"""Results of one sweep, about 50 MB; the others are only counted."""

SPARE_MAX = 10_000
"""Results that a process holds beyond these, until it selects which ones the reports have."""

WRITE_TIME = timedelta(seconds=10)
"""After this time the rest of the reports is left to the next sweep, since the Broker waits for the answer."""

_MESSAGE_MAX = 300
_SOURCE = "ttl-after-finished"
_Found = tuple[Verdict, ObjectRef, Audited]
_WOULD = {
    Verdict.WOULD_DELETE: "would be deleted",
    Verdict.WOULD_STOP: "would be stopped",
    Verdict.WOULD_ARCHIVE: "would be archived",
}


@dataclass(slots=True)
class AuditFindings:
    """What one sweep has found so far."""

    _found: list[_Found] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)
    _failed: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Return whether no rule with audit found an object."""
        return not self._counts

    def add(self, verdict: Verdict, ref: ObjectRef, audited: Audited) -> None:
        """Add one object."""
        self._counts[ref.namespace] += 1
        self._found.append((verdict, ref, audited))
        if len(self._found) > RESULTS_OF_ALL_MAX + SPARE_MAX:
            self._found = _first_of(self._found)

    def fail(self, namespace: str) -> None:
        """Count an object of a namespace that could not be evaluated."""
        self._failed[namespace] += 1

    def list_reports(self, written: Container[str] = ()) -> list[AuditReport]:
        """One report for each namespace in which something was found.

        A namespace that has a report keeps it if the sweep failed on an object there: its result may still hold.

        Workers find the objects in any order. So the results are sorted, and the first ones are chosen: otherwise
        a report would change, and be written, although the same objects were found.

        Args:
            written: The namespaces that have a report.
        """
        results = defaultdict[str, list[Mapping[str, Any]]](list)
        for verdict, ref, audited in _first_of(self._found):
            results[ref.namespace].append(_result_of(verdict, ref, audited))
        incomplete = {namespace for namespace in self._failed if namespace in written}
        for namespace in (self._counts.keys() | incomplete) & self._failed.keys():
            results[namespace].append(_error_of(self._failed[namespace]))
        return [
            AuditReport(namespace, results[namespace], self._counts[namespace], self._failed[namespace])
            for namespace in sorted(self._counts.keys() | incomplete)
        ]


def _first_of(found: Iterable[_Found]) -> list[_Found]:
    """The results that the reports have room for, in their order."""
    held = Counter[str]()
    first: list[_Found] = []
    for one in sorted(found, key=_place_of):
        namespace = one[1].namespace
        if held[namespace] < RESULTS_MAX:
            held[namespace] += 1
            first.append(one)
    return first[:RESULTS_OF_ALL_MAX]


def _place_of(found: _Found) -> tuple[str, ...]:
    verdict, ref, _ = found
    return ref.namespace, ref.kind, ref.name, ref.uid, verdict


@dataclass(slots=True)
class AuditReports:
    """Writes the reports of a process.

    Attributes:
        reports: The reports on the API server; None if this process writes none.
        clock: This process's clock.
        telemetry: Receives a problem if a report cannot be written.
    """

    reports: PolicyReports | None
    clock: Clock
    telemetry: Telemetry
    _sweeps: SweepMemory[AuditFindings] = field(default_factory=lambda: SweepMemory(AuditFindings))
    _may_exist: bool = True

    def find(self, step: SweepStep) -> AuditFindings | None:
        """What the sweep of a step has found so far; None if no report follows from it."""
        return None if self.reports is None else self._sweeps.find(step)

    async def write(self, step: SweepStep) -> None:
        """Write the reports after the last step of a sweep: only those that changed. Remove those without a result.

        Args:
            step: The last step, with all kinds that the sweep could not list.
        """
        findings = self._sweeps.end(step)
        if self.reports is None or findings is None or step.passed_over:
            return
        if findings.is_empty and not self._may_exist:
            return  # no rule has audit, and the reports of earlier ones are removed
        try:
            written = await self.reports.list_written()
        except TtlError as error:
            self._report_problem(error, has_audit=not findings.is_empty)
            return
        wanted = findings.list_reports(written or {})
        is_done = await self._write_all(self.reports, wanted, written or {})
        self._may_exist = bool(wanted) or not is_done

    async def _write_all(
        self, reports: PolicyReports, wanted: list[AuditReport], written: Mapping[str, WrittenReport]
    ) -> bool:
        """Write and remove; returns whether all was done."""
        ends_at, done = self.clock.now() + WRITE_TIME, 0
        namespaces = {one.namespace for one in wanted}
        stale = [one for namespace, one in written.items() if namespace not in namespaces]
        changes: list[Callable[[], Awaitable[object]]] = [partial(reports.remove, one) for one in stale]
        changes += [partial(reports.write, one, written.get(one.namespace)) for one in wanted]
        for change in changes:
            if self.clock.now() >= ends_at:
                break
            try:
                await change()
                done += 1
            except TtlError as error:
                self._report_problem(error, has_audit=bool(wanted))
        return done == len(changes)

    def _report_problem(self, error: TtlError, *, has_audit: bool) -> None:
        if has_audit:  # without the rights for reports, a process without an audit has nothing to report
            self.telemetry.problem("could not write a PolicyReport", error=str(error))


def _result_of(verdict: Verdict, ref: ObjectRef, audited: Audited) -> Mapping[str, Any]:
    place = {"namespace": ref.namespace} if ref.namespace else {}
    return {
        "source": _SOURCE,
        "policy": _SOURCE,
        "rule": audited.rule,
        "category": str(verdict),
        "result": "warn",
        "scored": False,
        "message": f"{_WOULD[verdict]}: {audited.summary}"[:_MESSAGE_MAX],
        "resources": [{"apiVersion": ref.api_version, "kind": ref.kind, **place, "name": ref.name, "uid": ref.uid}],
    }


def _error_of(failed: int) -> Mapping[str, Any]:
    objects = "1 object" if failed == 1 else f"{failed} objects"
    message = f"the report is not complete: the last sweep failed on {objects} of this namespace; its log names them"
    return {"source": _SOURCE, "policy": _SOURCE, "result": "error", "scored": False, "message": message}
