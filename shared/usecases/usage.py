"""Find Secrets and ConfigMaps that nothing uses any more: mark them, and delete them after the TTL of a policy rule.

A tick makes a pass over all objects that may refer to a Secret or a ConfigMap. Then it reads the metadata of all
Secrets and ConfigMaps, and writes marks and announcements. What is due is confirmed by a second pass of its namespace,
and deleted. See `docs/explanation/references.md`.
"""

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass, field, replace

from shared.core.objects import get_in, parse_instant, ref_of
from shared.core.references.reference import TargetKind
from shared.errors import ConflictError, PermanentError, TryLaterError, TtlError
from shared.evaluation.usage import Target, UsageFound, UsageReader
from shared.ports import HandlingReason, Publisher, Verdict
from shared.usecases.usage_deletion import UsageDeletion
from shared.usecases.usage_handler import UsageCounts, UsageHandler, has_unused_rule
from shared.usecases.usage_marks import UsageMarks

TICK_SECONDS_MAX = 240.0
"""How long one tick deletes: below the delivery time-out of its Trigger. The rest is left to the next tick."""

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
            counts = UsageCounts()
            await _Tick(self, replace(self.handler, counts=counts)).run()
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
        self._deletion = UsageDeletion(handler, self._marks, usage.reader, usage.publisher)
        self._gate = asyncio.Semaphore(usage.concurrency)
        self._due: defaultdict[str, list[Target]] = defaultdict(list)

    async def run(self) -> None:
        ends_at = asyncio.get_running_loop().time() + TICK_SECONDS_MAX
        found = await self._look()
        for kind in TargetKind:
            await self._mark_kind(kind, found)
        for namespace, targets in sorted(self._due.items()):
            await self._deletion.delete(namespace, targets, found, ends_at=ends_at)

    async def _look(self) -> UsageFound:
        """Make the first pass. A pass that is not complete sets no mark and confirms no deletion."""
        try:
            found = await self._reader.look(namespace=self._namespace)
        except TtlError as error:
            self._handler.telemetry.usage_pass(str(error))
            raise
        self._handler.telemetry.usage_pass(found.of.find_problem())
        return found

    async def _mark_kind(self, kind: TargetKind, found: UsageFound) -> None:
        """Decide about all objects of a kind; a kind that may not be listed is passed over."""
        try:
            async for page in self._reader.targets(kind, namespace=self._namespace):
                await self._handler.namespaces.prime()
                self._handler.counts.looked_at += len(page)
                async with asyncio.TaskGroup() as group:
                    for target in page:
                        group.create_task(self._mark(target, found))
        except PermanentError as error:
            self._handler.telemetry.problem("usage passed a kind over", kind=str(kind), error=str(error))

    async def _mark(self, target: Target, found: UsageFound) -> None:
        """Handle one object; an error that concerns it alone leaves the others."""
        ref = ref_of(target.obj)
        async with self._gate:
            try:
                namespace = await self._handler.find_namespace(target)
                passes = (found,) if _is_seen(target, found) else ()
                if await self._marks.apply(target, self._handler.decide(target, namespace, *passes)):
                    self._due[ref.namespace].append(target)
            except (ConflictError, TryLaterError) as error:
                self._handler.record(Verdict.KEPT, ref, HandlingReason.TRY_LATER, detail=str(error))
            except PermanentError as error:
                await self._handler.report(ref, error)
            except Exception as error:  # noqa: BLE001 - a bug that one object brings out must not keep the others
                _log.exception("usage failed on an object")
                self._handler.record(Verdict.FAILED, ref, type(error).__name__, detail=str(error))


def _is_seen(target: Target, found: UsageFound) -> bool:
    """Return whether an object existed before a pass, so that the pass could find references to it."""
    try:
        return parse_instant(get_in(target.obj, "metadata.creationTimestamp")) < found.of.started_at
    except ValueError:
        return False
