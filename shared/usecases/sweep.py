"""List all objects of the enabled kinds: delete what is due, and set timers for what is due soon.

A sweep finds what the events missed. It goes through the kinds page by page. One step works for a bounded time, and
then answers with a message that starts the next step. Listing and deleting overlap: workers empty the queue of listed
objects.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from shared.core.archive.decide_archive import ToArchive
from shared.core.decision.facts import audited_of
from shared.core.decision.finish import finish_of
from shared.core.decision.forecast import Forecast
from shared.core.decision.reasons import Reason
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.core.values.timing import sweep_ahead
from shared.errors import AbsentKindError, ConflictError, PermanentError, TryLaterError, TtlError
from shared.evaluation.namespaces_and_owners import find_served, list_served
from shared.messages import Message, ObjectDeleted, Purpose, SweepStep, Timer, TimersSet
from shared.ports import (
    PASSED_OVER,
    EventReason,
    Page,
    Publisher,
    Snapshot,
    Telemetry,
    Verdict,
    WriteEvent,
)
from shared.usecases.enforce import ENFORCEMENT, find_stop_timers
from shared.usecases.expire import report_ttl
from shared.usecases.handler import Handler
from shared.usecases.impatient import ImpatientPublisher
from shared.usecases.policy_reports import AuditReports
from shared.usecases.sweeps.chains import SweepChains
from shared.usecases.sweeps.pages import Found, LargePages, OnePause, PageReader
from shared.usecases.sweeps.results import SweepCounts, WantedTimers, retries_of
from shared.usecases.timers import timers_for


@dataclass(slots=True)
class _StepWork:
    """What one step works with, and what it has found so far.

    Attributes:
        started_at: When the step started; the hours of the forecast begin then.
        ends_at: When the step stops to list.
        due_before: An object that is due at this instant or later gets no timer.
        missed_before: An object that was due before this instant was missed by the events.
        handler: Deletes due objects.
        enforcer: The same for running objects, which it only finds timers for.
        counts: Counts the verdicts.
        publisher: Publishes deletions and timers; an outage of their receivers delays few of them.
        timers: The timers that the objects need.
        tail_of: The kind that is listed from a continue token of an unknown step, and so not from its first page.
        failures: The errors of kinds that could not be listed.
        passed_over: These kinds.
        pause: The pause after a 429.
        forecast: Receives when the deletion of each object is due; None if the sweep does not concern all kinds.
    """

    started_at: datetime
    ends_at: datetime
    due_before: datetime
    missed_before: datetime
    handler: Handler
    counts: SweepCounts
    publisher: ImpatientPublisher
    timers: WantedTimers = field(default_factory=WantedTimers)
    tail_of: str = ""
    failures: list[TtlError] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    pause: OnePause = field(default_factory=OnePause)
    forecast: Forecast | None = None
    enforcer: Handler = field(init=False)

    def __post_init__(self) -> None:
        self.enforcer = replace(self.handler, procedure=ENFORCEMENT)

    def check_failures(self, step: SweepStep) -> None:
        """Check that the step need not be repeated as a whole.

        If every kind of a step failed, and no object was listed, the step is repeated: the first step of a sweep after
        any error that may pass, a later step only after a 429. Otherwise each failed kind is passed over until the next
        sweep. So the sweep reaches the kinds after one that fails slowly, and ends even if its last kinds answer 5xx.

        Args:
            step: The step, with all kinds that it began with.

        Raises:
            TryLaterError: The step is to be repeated; with the longest time that an error asks for.
        """
        later = [error for error in self.failures if isinstance(error, TryLaterError)]
        nothing_listed = len(self.failures) == len(step.kinds) and not self.counts.looked_at
        if later and nothing_listed and (step.step == 0 or any(error.is_overload for error in later)):
            raise TryLaterError(
                f"no kind could be listed: {later[0]}",
                retry_after_seconds=max(error.retry_after_seconds for error in later),
            )

    def add_timers(self, ref: ObjectRef, timers: Sequence[Timer]) -> None:
        """Take the timers of an object that fire before the next sweeps; of its own deletion, take the due time."""
        self.timers.add(ref, [timer for timer in timers if timer.due_at < self.due_before])
        if self.forecast is None:
            return
        for timer in timers:
            if timer.purpose is Purpose.EXPIRE and timer.ref.is_same(ref):  # the others are of objects of its group
                self.forecast.add(ref.group, ref.kind, timer.due_at, self.started_at)


async def _report_end(
    step: SweepStep,
    find_served: Callable[[], Awaitable[Sequence[KindRule]]],
    *,
    write_event: WriteEvent | None,
    telemetry: Telemetry,
) -> None:
    """Write an Event about the end of a sweep of all kinds, so that a sweep with nothing to do is visible.

    Args:
        step: The last step, with the counts of all steps, and all kinds that the sweep could not list.
        find_served: Finds the kinds that were swept.
        write_event: Writes the Event; None for no Event.
        telemetry: Receives a problem if the Event cannot be written: the sweep has ended anyway.
    """
    if write_event is None or not step.whole:
        return
    try:
        swept = [rule for rule in await find_served() if f"{rule.api_version}/{rule.kind}" not in step.passed_over]
        kinds = ", ".join(rule.name for rule in swept) or "no kinds"
        message = f"listed all objects of {kinds}: sweep {step.sweep_id}, steps: {step.step + 1}"
        if unset := step.counts.get("timers_not_set", 0):
            message += f"; the timers of {unset} objects could not be set: the next sweep tries again"
        if step.passed_over:
            left_out = f"could not list {', '.join(step.passed_over)}; {message}"
            await write_event(EventReason.SWEPT_IN_PART, left_out, "Warning")
        else:
            await write_event(EventReason.SWEPT, message, "Warning" if unset else "Normal")
    except TtlError as error:
        telemetry.problem("could not write an Event", error=str(error))


MISSED_AFTER = timedelta(seconds=10)
"""An object that a sweep finds due for longer than this was missed by the events."""

STEP_TIME = timedelta(seconds=20)
"""How long one step lists before the next step continues: well below the delivery time-out."""

QUEUE_MAX = 500
"""Objects in the queue: one page, so that the lister is at most a page ahead of the workers."""

_log = logging.getLogger("ttl")
_Queue = asyncio.Queue[tuple[KindRule, Found]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sweeps the cluster.

    Attributes:
        handler: Deletes due objects; its cluster, kinds, namespace, clock and telemetry are those of the sweep.
        publisher: Receives timers and deletions.
        interval: Time between two sweeps; an object that is due within twice this time gets a timer.
        concurrency: Objects that are handled at once.
        write_event: Writes the Event at the end of a sweep; None for no Event.
        large_pages: The turns of all sweeps of this process.
        chains: The steps that this process has returned.
        audit_reports: Writes what rules with audit would do; None for no reports.
    """

    handler: Handler
    publisher: Publisher
    interval: timedelta
    concurrency: int
    write_event: WriteEvent | None = None
    large_pages: LargePages = field(default_factory=LargePages)
    chains: SweepChains = field(default_factory=SweepChains)
    audit_reports: AuditReports | None = None

    async def sweep(self, step: SweepStep) -> SweepStep | None:
        """Run one step.

        Returns:
            The next step; None after the last page of the last kind.

        Raises:
            TryLaterError: This step is to be repeated: none of its kinds could be listed.
            PermanentError: The API server does not list the kinds that it serves.
        """
        now, telemetry = self.handler.clock.now(), self.handler.telemetry
        named = step.kinds or tuple(f"{rule.api_version}/{rule.kind}" for rule in await self._served())
        step = self.chains.start(step, named, now)
        due_before = now + sweep_ahead(self.interval)
        findings = self.audit_reports.find(step) if self.audit_reports else None
        counts = SweepCounts(telemetry, step.counts, due_before, findings)
        handler = replace(self.handler, telemetry=cast("Telemetry", counts))
        publisher, missed_before = ImpatientPublisher(self.publisher, self.chains.outages(step)), now - MISSED_AFTER
        work = _StepWork(now, now + STEP_TIME, due_before, missed_before, handler, counts, publisher)
        work.tail_of = step.kinds[0] if step.continue_token and not step.whole and step.kinds else ""
        work.forecast = self.chains.forecasts.find(step)
        queue: _Queue = asyncio.Queue(QUEUE_MAX)
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self._work(queue, work)) for _ in range(self.concurrency)]
            try:
                rest = await self._list(step, queue, work)
                await queue.join()
            finally:
                for worker in workers:
                    worker.cancel()
        counts.confirm(work.timers.uids, await work.timers.publish(publisher, telemetry))
        # Outside the TaskGroup, which would wrap the error into an ExceptionGroup.
        work.check_failures(step)
        passed_over = tuple(dict.fromkeys((*step.passed_over, *work.passed_over)))
        if rest is None:
            step = step.model_copy(update={"passed_over": passed_over, "counts": counts.so_far()})
            telemetry.sweep_ended(step.sweep_id, step.counts, whole=step.whole)
            if (forecast := self.chains.end(step)) is not None:
                telemetry.forecast(forecast)
            await _report_end(step, self._served, write_event=self.write_event, telemetry=telemetry)
            if self.audit_reports:
                await self.audit_reports.write(step)
            return None
        return self.chains.note(rest.model_copy(update={"passed_over": passed_over, "counts": counts.so_far()}))

    async def _served(self) -> Sequence[KindRule]:
        handler = self.handler
        return await list_served(handler.catalogue, cluster=handler.cluster, namespace=handler.namespace)

    async def _list(self, step: SweepStep, queue: _Queue, work: _StepWork) -> SweepStep | None:
        """Fill the queue until the time is over or the last kind is listed; returns the next step."""
        while step.kinds and self.handler.clock.now() < work.ends_at:
            step = await self._list_page(step, queue, work)
        return step.model_copy(update={"step": step.step + 1}) if step.kinds else None

    async def _list_page(self, step: SweepStep, queue: _Queue, work: _StepWork) -> SweepStep:
        """List one page of the present kind; returns where to continue. A kind that fails is passed over."""
        handler, next_kind = self.handler, step.model_copy(update={"kinds": step.kinds[1:], "continue_token": ""})
        api_version, _, kind = step.kinds[0].rpartition("/")
        known = handler.catalogue.get(api_version, kind)
        if known is None:
            return next_kind
        try:
            find = partial(find_served, known.group, kind, cluster=handler.cluster, kinds=handler.catalogue)
            rule = await work.pause.repeat_once(find)
            token = await self._queue_page(rule, step.continue_token, queue, work)
        except AbsentKindError:
            return next_kind
        except TtlError as error:
            work.failures.append(error)
            work.passed_over.append(step.kinds[0])
            handler.telemetry.problem("sweep passed a kind over", kind=known.name, error=str(error))
            return next_kind
        if token:
            return step.model_copy(update={"continue_token": token})
        if step.kinds[0] != work.tail_of:
            handler.telemetry.swept(rule)
        return next_kind

    async def _queue_page(self, rule: KindRule, token: str, queue: _Queue, work: _StepWork) -> str:
        """Put a page into the queue, a large page in its turn; returns the continue token of the next page."""
        async with self.large_pages.turn(rule.name) as is_turn:
            handler = self.handler
            reader = PageReader(handler.cluster, handler.evaluator, work.pause, handler.namespace)
            page, found = await reader.read(rule, token)
            self.large_pages.note(rule.name, is_large=page.is_large)
            if is_turn or not page.is_large:
                work.counts.looked_at += len(page.items) + len(page.unreadable)
                await self._queue_found(rule, page, found, queue, work)
                return page.continue_token
            del page, found  # free the memory while other kinds have their turn
        return await self._queue_page(rule, token, queue, work)

    async def _queue_found(
        self, rule: KindRule, page: Page, found: Sequence[Found], queue: _Queue, work: _StepWork
    ) -> None:
        for left_out in page.unreadable:
            work.counts.fail(left_out.ref)
            self.handler.telemetry.problem(
                PASSED_OVER, object=str(left_out.ref), uid=left_out.ref.uid, error=left_out.problem
            )
        for one in found:
            await queue.put((rule, one))
        is_short = page.continue_token and len(page.items) + len(page.unreadable) < QUEUE_MAX
        if page.is_large or is_short:  # its objects are large: one page of them at a time
            await queue.join()

    async def _work(self, queue: _Queue, work: _StepWork) -> None:
        while True:
            rule, found = await queue.get()
            try:
                await self._handle(rule, found, work)
            finally:
                del found  # a waiting worker keeps no object in memory
                queue.task_done()

    async def _handle(self, rule: KindRule, found: Found, work: _StepWork) -> None:
        """Handle one object; after an error that may pass, timers retry this object alone."""
        ref = found if isinstance(found, ObjectRef) else found.ref
        snapshot = None if isinstance(found, ObjectRef) else found
        try:
            snapshot = snapshot or await self.handler.cluster.get(rule, ref)
            if snapshot is None:
                return
            message = await self._act(rule, snapshot, work)
        except (ConflictError, TryLaterError) as error:
            work.counts.fail(ref)
            work.timers.add(ref, retries_of(ref, rule, snapshot, error, now=self.handler.clock.now()))
        except PermanentError as error:
            work.handler.report(ref, error)
        except Exception as error:  # noqa: BLE001 - a bug that one object brings out must not keep the others
            _log.exception("sweep failed on an object")
            work.counts.record(Verdict.FAILED, ref, type(error).__name__, detail=str(error), by=work.handler.by)
        else:
            await self._pass_on(ref, message, work)

    async def _act(self, rule: KindRule, snapshot: Snapshot, work: _StepWork) -> Message | None:
        """Delete a finished object that is due, or return the timer that an object needs."""
        evaluator = self.handler.evaluator
        if evaluator.may_stop(snapshot.obj, rule) and finish_of(snapshot.obj, rule).finished is False:
            if evaluator.may_expire(snapshot.obj, rule):
                await report_ttl(work.handler, rule, snapshot)
            return await find_stop_timers(work.enforcer, rule, snapshot)
        message = await work.handler.handle_listed(rule, snapshot, missed_before=work.missed_before)
        return message or await self._archive_later(rule, snapshot, work)

    async def _archive_later(self, rule: KindRule, snapshot: Snapshot, work: _StepWork) -> TimersSet | None:
        """The timer for an object that is not due, and that the events did not have archived when it finished."""
        handler = self.handler
        if handler.dry_run or not handler.evaluator.may_archive(snapshot.obj, rule):
            return None
        decision = (await handler.evaluator.evaluate_archive(snapshot, rule)).decision
        if decision.reason is Reason.AUDIT_ONLY:
            audited = audited_of(decision.facts)
            work.counts.audited(Verdict.WOULD_ARCHIVE, snapshot.ref, audited, by=work.handler.by)
        due = [(snapshot.ref, handler.clock.now())] if isinstance(decision, ToArchive) else []
        return timers_for(due, purpose=Purpose.ARCHIVE)

    async def _pass_on(self, ref: ObjectRef, message: Message | None, work: _StepWork) -> None:
        if isinstance(message, TimersSet):
            work.add_timers(ref, message.timers)
        elif isinstance(message, ObjectDeleted):
            try:
                await work.publisher.publish(message)
            except TtlError as error:  # the object is deleted anyway
                self.handler.telemetry.problem("could not publish a deletion", error=str(error))
