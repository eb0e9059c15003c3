"""Look at everything there is: what events missed is found here, and the rest needs no event.

A sweep goes through the kinds page by page. One step works for a bounded time and then asks, by a message, for the
next one. Listing and deleting overlap: workers take objects from a queue that the lister fills.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import cast

from shared.core.backoff import backoff_seconds, jitter_of
from shared.core.horizon import sweep_ahead
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, ref_of
from shared.errors import AbsentKindError, ConflictError, PermanentError, TryLaterError, TtlError
from shared.evaluation.served import find_served, list_served
from shared.messages import TIMERS_MAX, Message, ObjectDeleted, Purpose, SweepStep, Timer, TimersSet
from shared.ports import PASSED_OVER, EventLevel, Page, Publisher, Snapshot, Telemetry
from shared.usecases.expire import Expiry
from shared.usecases.large_pages import LargePages
from shared.usecases.sweep_counts import SweepCounts

MISSED_AFTER = timedelta(seconds=10)
"""What a sweep finds due for longer than this was missed by the events."""

STEP_TIME = timedelta(seconds=20)
"""How long one step lists before it hands over to the next: well inside the delivery time-out."""

FULL_READS_MAX = 10
"""Objects of a metadata page that are read one by one; with more of them the page is listed again in full."""

QUEUE_MAX = 500
"""Objects listed and not yet looked at: one page, so that the lister is at most a page ahead."""


SWEPT = "Swept"
"""Of the Kubernetes Event that says of a sweep of all kinds that it saw the last page of the last one."""

SWEPT_IN_PART = "SweptInPart"
"""The same, where some kinds could not be listed."""

Tell = Callable[[str, str, EventLevel], Awaitable[None]]
"""Writes a Kubernetes Event about the installation: reason, message, level."""


_Found = Snapshot | ObjectRef
"""An object that was listed in full, or the name of one that is still to be read."""

_Queue = asyncio.Queue[tuple[KindRule, _Found]]


@dataclass(slots=True)
class _Step:
    """What one step has found so far."""

    ends_at: datetime
    due_before: datetime
    missed_before: datetime
    expiry: Expiry
    counts: SweepCounts
    timers: list[Timer] = field(default_factory=list)
    failures: list[TtlError] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sweeps the cluster.

    Attributes:
        expiry: Decides and deletes.
        publisher: Takes the timers that are found to be needed, and word of each deletion.
        interval: Time between two sweeps; what is due within twice of it gets a timer.
        concurrency: Objects that are dealt with at once.
        namespace: Only this namespace; empty for all.
        write_event: Told of the end of a sweep; None tells nobody.
        large_pages: The turns of all sweeps of this process.
    """

    expiry: Expiry
    publisher: Publisher
    interval: timedelta
    concurrency: int
    namespace: str = ""
    write_event: Tell | None = None
    large_pages: LargePages = field(default_factory=LargePages)

    async def sweep(self, step: SweepStep) -> SweepStep | None:
        """Work through one step.

        Returns:
            The next step; None after the last page of the last kind.

        Raises:
            TryLaterError: The API server is away, for every kind of this step.
            PermanentError: The API server does not tell us what it serves.
        """
        now = self.expiry.clock.now()
        step = await self._started(step, now)
        due_before = now + sweep_ahead(self.interval)
        counts = SweepCounts(self.expiry.telemetry, step.counts, due_before)
        expiry = replace(self.expiry, telemetry=cast("Telemetry", counts))
        work = _Step(now + STEP_TIME, due_before, now - MISSED_AFTER, expiry, counts)
        queue: _Queue = asyncio.Queue(QUEUE_MAX)
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self._work(queue, work)) for _ in range(self.concurrency)]
            try:
                rest = await self._list(step, queue, work)
                await queue.join()
            finally:
                for worker in workers:
                    worker.cancel()
        await self._publish_timers(work.timers)
        # Not inside the group, which would wrap it into an ExceptionGroup that nobody knows how to answer.
        later = [error for error in work.failures if isinstance(error, TryLaterError)]
        if later and len(work.failures) == len(step.kinds):
            raise TryLaterError(f"no kind could be listed: {later[0]}")
        passed_over = tuple(dict.fromkeys((*step.passed_over, *work.passed_over)))
        if rest is None:
            self.expiry.telemetry.sweep_ended(step.sweep_id, counts.so_far(), whole=step.whole)
            await self._tell_end(step, passed_over)
            return None
        return rest.model_copy(update={"passed_over": passed_over, "counts": counts.so_far()})

    async def _started(self, step: SweepStep, now: datetime) -> SweepStep:
        """The first step names its kinds and gets an id, so that the steps of one sweep can be told together."""
        kinds = step.kinds or tuple(f"{rule.api_version}/{rule.kind}" for rule in await self._served())
        kinds = tuple(dict.fromkeys(kinds))  # each once, whatever an event says
        whole = step.whole or not step.kinds
        return step.model_copy(update={"kinds": kinds, "sweep_id": step.sweep_id or now.isoformat(), "whole": whole})

    async def _served(self) -> Sequence[KindRule]:
        return await list_served(self.expiry.catalogue, cluster=self.expiry.cluster, namespace=self.namespace)

    async def _list(self, step: SweepStep, queue: _Queue, work: _Step) -> SweepStep | None:
        """Put what needs a look into the queue, until the time or the kinds are over."""
        while step.kinds and self.expiry.clock.now() < work.ends_at:
            step = await self._list_page(step, queue, work)
        return step.model_copy(update={"step": step.step + 1}) if step.kinds else None

    async def _list_page(self, step: SweepStep, queue: _Queue, work: _Step) -> SweepStep:
        """List one page of the present kind; the answer says where to go on. A kind that fails is passed over."""
        next_kind = step.model_copy(update={"kinds": step.kinds[1:], "continue_token": ""})
        api_version, _, kind = step.kinds[0].rpartition("/")
        known = self.expiry.catalogue.get(api_version, kind)
        if known is None:
            return next_kind
        try:
            rule = await find_served(
                api_version.rpartition("/")[0], kind, cluster=self.expiry.cluster, kinds=self.expiry.catalogue
            )
            token = await self._queue_page(rule, step.continue_token, queue, work)
        except AbsentKindError:
            return next_kind
        except TtlError as error:
            work.failures.append(error)
            work.passed_over.append(step.kinds[0])
            self.expiry.telemetry.problem("sweep passed a kind over", kind=known.name, error=str(error))
            return next_kind
        if token:
            return step.model_copy(update={"continue_token": token})
        self.expiry.telemetry.swept(rule)
        return next_kind

    async def _queue_page(self, rule: KindRule, token: str, queue: _Queue, work: _Step) -> str:
        """Put a page into the queue, a large one in its turn; the answer is where the next page begins."""
        async with self.large_pages.turn(rule.name) as is_turn:
            page, found = await self._read_page(rule, token)
            self.large_pages.note(rule.name, is_large=page.is_large)
            if is_turn or not page.is_large:
                work.counts.looked_at += len(page.items) + len(page.unreadable)
                await self._queue_found(rule, page, found, queue)
                return page.continue_token
            del page, found  # while others have their turn
        return await self._queue_page(rule, token, queue, work)

    async def _queue_found(self, rule: KindRule, page: Page, found: Sequence[_Found], queue: _Queue) -> None:
        for left_out in page.unreadable:
            about = {"object": str(left_out.ref), "uid": left_out.ref.uid, "error": left_out.problem}
            self.expiry.telemetry.problem(PASSED_OVER, **about)
        for one in found:
            await queue.put((rule, one))
        is_short = page.continue_token and len(page.items) + len(page.unreadable) < QUEUE_MAX
        if page.is_large or is_short:  # its objects are large: one page of them at a time
            await queue.join()

    async def _read_page(self, rule: KindRule, token: str) -> tuple[Page, Sequence[_Found]]:
        """A page, and those of its objects that may be due now or later.

        Where a kind's TTL can only stand in metadata, its own or its namespace's, metadata is all that is listed at
        first.
        """
        cluster, evaluator = self.expiry.cluster, self.expiry.evaluator
        if rule.scope == "Namespaced":
            await evaluator.namespaces.prime()
        in_full = rule.ttl is not None or evaluator.policy().speaks_of(rule)
        page = await cluster.list_page(rule, namespace=self.namespace, continue_token=token, metadata_only=not in_full)
        wanted = [obj for obj in page.items if evaluator.may_expire(obj, rule)]
        if not in_full and len(wanted) <= FULL_READS_MAX:
            return page, [ref_of(obj) for obj in wanted]
        if in_full:
            return page, [Snapshot(obj, page.read_at, page.ahead) for obj in wanted]
        listed = await cluster.list_page(
            rule, namespace=self.namespace, continue_token=token, resource_version=page.resource_version
        )
        full = {ref_of(obj).uid: Snapshot(obj, page.read_at, page.ahead) for obj in listed.items}
        page = replace(page, is_large=page.is_large or listed.is_large)
        # Where objects are large that page ends sooner; the rest is read one by one.
        return page, [full.get(ref.uid, ref) for ref in map(ref_of, wanted)]

    async def _work(self, queue: _Queue, work: _Step) -> None:
        while True:
            rule, found = await queue.get()
            try:
                await self._look(rule, found, work)
            finally:
                del found  # a worker that waits for the next one holds none
                queue.task_done()

    async def _look(self, rule: KindRule, found: _Found, work: _Step) -> None:
        """Deal with one object; what fails for now is left to a timer, which retries it alone."""
        ref = found if isinstance(found, ObjectRef) else ref_of(found.obj)
        try:
            snapshot = await self.expiry.cluster.get(rule, found) if isinstance(found, ObjectRef) else found
            if snapshot is None:
                return
            answer = await work.expiry.act(rule, snapshot, missed_before=work.missed_before)
        except (ConflictError, TryLaterError):
            work.counts.timers_set += 1
            work.timers.append(self._retried(ref))
        except PermanentError as error:
            await work.expiry.report(ref, error)
        else:
            await self._pass_on(answer, work)

    def _retried(self, ref: ObjectRef) -> Timer:
        """The timer for an object that could not be dealt with now: one attempt on it has failed."""
        pause = timedelta(seconds=backoff_seconds(0, jitter=jitter_of(ref.uid, 0)))
        return Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=self.expiry.clock.now() + pause, attempts=1)

    async def _pass_on(self, answer: Message | None, work: _Step) -> None:
        if isinstance(answer, TimersSet):
            timers = [timer for timer in answer.timers if timer.due_at < work.due_before]
            work.counts.timers_set += bool(timers)
            work.timers.extend(timers)
        elif isinstance(answer, ObjectDeleted):
            try:
                await self.publisher.publish(answer)
            except TtlError as error:  # it is deleted, told or not
                self.expiry.telemetry.problem("could not publish a deletion", error=str(error))

    async def _tell_end(self, step: SweepStep, passed_over: Sequence[str]) -> None:
        """Say that everything was seen: a sweep with nothing to do looks like one that never came."""
        if self.write_event is None or not step.whole:
            return
        try:
            seen = ", ".join(rule.name for rule in await self._served()) or "no kinds"
            told = f"saw the last of {seen}: sweep {step.sweep_id}, steps: {step.step + 1}"
            if passed_over:
                await self.write_event(SWEPT_IN_PART, f"could not list {', '.join(passed_over)}; {told}", "Warning")
            else:
                await self.write_event(SWEPT, told, "Normal")
        except TtlError as error:  # it was swept, told or not
            self.expiry.telemetry.problem("could not write an Event", error=str(error))

    async def _publish_timers(self, timers: list[Timer]) -> None:
        """Timers that cannot be set are reported, and the sweep goes on: a later one finds their objects, once due.

        After a failure the rest of the step is not tried: each attempt may last as long as the Broker's retries.
        """
        for start in range(0, len(timers), TIMERS_MAX):
            try:
                await self.publisher.publish(TimersSet(timers=tuple(timers[start : start + TIMERS_MAX])))
            except TtlError as error:
                unset = len(timers) - start
                self.expiry.telemetry.problem("sweep could not set timers", timers=unset, error=str(error))
                return
