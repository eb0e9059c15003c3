"""Find Secrets and ConfigMaps that nothing uses any more: mark them, and delete them after the TTL of a policy rule.

A tick lists the metadata of all Secrets and ConfigMaps. It makes a pass over the objects that may refer to those in the
namespaces in which unused objects are deleted, and writes marks and announcements. What is due is confirmed by a second
pass of its namespace, and deleted. See `docs/explanation/unused.md`.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from shared.core.references.reference import TargetKind
from shared.core.usage.passes import collected_by
from shared.core.values.objects import get_in, parse_instant, ref_of
from shared.errors import ConflictError, PermanentError, TryLaterError, TtlError
from shared.evaluation.usage_reader import HeldTargets, Target, Turns, UsageFound, UsageReader
from shared.ports import HandlingReason, Publisher, Verdict, loop_now
from shared.usecases.impatient import ImpatientPublisher
from shared.usecases.usage.deletion import UsageDeletion, UsageStorage
from shared.usecases.usage.handler import UsageCounts, UsageHandler, UsageRefusals, has_unused_rule, now_of
from shared.usecases.usage.marks import UsageMarks

TICK_SECONDS_MAX = 480.0
"""How long one tick deletes: below the delivery time-out of its Trigger. The rest is left to the next tick.

The first pass has no limit: an incomplete one would show nothing. On Knative the time-out ends it.
"""

DELETION_SECONDS_MIN = 30.0
"""How long a tick deletes at least, however long its first pass takes: so each tick deletes some of what is due."""

_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class Usage:
    """Deletes unused Secrets and ConfigMaps of a cluster.

    Attributes:
        handler: Decides about one object, and reports.
        reader: Makes the passes, and lists Secrets and ConfigMaps.
        publisher: Receives `object.deleted`.
        concurrency: PATCHes that are sent at once.
        namespace: Only this namespace; empty for all.
        turn: Held by a tick; all ticks of a process share it.
    """

    handler: UsageHandler
    reader: UsageReader
    publisher: Publisher
    concurrency: int
    namespace: str = ""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def tick(self) -> None:
        """Make a pass, write marks, and delete what is due; nothing if no policy rule has `unused`.

        If another tick of this process is under way, nothing happens: this one would do the same again.

        Raises:
            TryLaterError: The API server is away.
            PermanentError: The API server refuses discovery.
        """
        if self.turn.locked() or not has_unused_rule(self.handler.policy()):
            return
        async with self.turn:
            counts, refusals = UsageCounts(), UsageRefusals(self.handler.telemetry)
            await _Tick(self, replace(self.handler, counts=counts, refusals=refusals)).run()
            self.handler.telemetry.usage_ended(counts.by_name(), window_seconds=counts.window_seconds)


class _Tick:
    """One tick.

    Args:
        usage: What it works with.
        handler: Decides and reports, with the counts of this tick.
    """

    def __init__(self, usage: Usage, handler: UsageHandler) -> None:
        self._handler, self._reader, self._namespace = handler, usage.reader, usage.namespace
        self._marks = UsageMarks(handler)
        publisher = ImpatientPublisher(usage.publisher)
        self._deletion = UsageDeletion(handler, UsageStorage(handler), self._marks, usage.reader, publisher)
        self._concurrency, self._turns = usage.concurrency, Turns()
        self._due: list[tuple[datetime, Target]] = []
        self._held: HeldTargets | None = None

    async def run(self) -> None:
        started = loop_now()
        found = await self._look()
        for kind in TargetKind:
            await self._mark_kind(kind, found)
        self._held = None  # free the memory before the second pass
        if found is None:
            return
        oldest_first = [target for _, target in sorted(self._due, key=lambda one: one[0])]
        ends_at = max(started + TICK_SECONDS_MAX, loop_now() + DELETION_SECONDS_MIN)
        await self._deletion.delete(oldest_first, found, ends_at=ends_at)

    async def _look(self) -> UsageFound | None:
        """Make the first pass; None if it has nothing to prove, since no object may be marked or deleted.

        A pass that is not complete sets no mark and confirms no deletion.
        """
        try:
            found = await self._look_in(await self._find_namespaces())
        except TtlError as error:
            self._handler.telemetry.usage_pass(str(error))
            raise
        self._handler.telemetry.usage_pass(found.find_problem() if found else "", found.find_unknown() if found else {})
        return found

    async def _look_in(self, namespaces: frozenset[str] | None) -> UsageFound | None:
        """Look for what refers to the objects of some namespaces; None means all."""
        if namespaces == frozenset():
            return None
        self._held = await self._reader.hold_targets(namespace=self._namespace)
        # A Pod of any namespace may mention them.
        return await self._reader.look(self._held.names(namespaces), held=self._held)

    async def _find_namespaces(self) -> frozenset[str] | None:
        """The namespaces in which objects may be marked or deleted; None if that may be any."""
        only = frozenset([self._namespace] if self._namespace else [])
        try:
            found = await self._handler.namespaces.find_names(collected_by(self._handler.policy().rules))
        except PermanentError:
            return only or None
        return found & only if only else found

    async def _mark_kind(self, kind: TargetKind, found: UsageFound | None) -> None:
        """Decide about all objects of a kind; a kind that may not be listed is passed over."""
        try:
            async for page in self._reader.targets(kind, namespace=self._namespace, held=self._held):
                await self._handler.namespaces.prime()
                self._handler.counts.looked_at += len(page)
                targets = iter(page)
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._concurrency):
                        group.create_task(self._mark_each(targets, found))
        except PermanentError as error:
            self._handler.telemetry.problem("usage passed a kind over", kind=str(kind), error=str(error))

    async def _mark_each(self, targets: Iterator[Target], found: UsageFound | None) -> None:
        """Handle one object after the other; several calls share the iterator."""
        for target in targets:
            await self._turns.pause()
            await self._mark(target, found)

    async def _mark(self, target: Target, found: UsageFound | None) -> None:
        """Handle one object; an error that concerns it alone leaves the others."""
        ref = ref_of(target.obj)
        try:
            namespace = await self._handler.find_namespace(target)
            passes = (found,) if found is not None and _is_seen(target, found) else ()
            decision = self._handler.decide(target, namespace, *passes)
            if await self._marks.apply(target, decision, now=now_of(target, *passes)):
                self._due.append((decision.facts.due_at or target.read_at, target))
        except (ConflictError, TryLaterError) as error:
            self._handler.record(Verdict.KEPT, ref, HandlingReason.TRY_LATER, detail=str(error))
        except PermanentError as error:
            self._handler.report(ref, error)
        except Exception as error:  # noqa: BLE001 - a bug that one object brings out must not keep the others
            _log.exception("usage failed on an object")
            self._handler.record(Verdict.FAILED, ref, type(error).__name__, detail=str(error))


def _is_seen(target: Target, found: UsageFound) -> bool:
    """Return whether an object existed before a pass, so that the pass could find references to it."""
    try:
        return parse_instant(get_in(target.obj, "metadata.creationTimestamp")) < found.of.started_at
    except ValueError:
        return False
