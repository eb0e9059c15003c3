"""Delete unused objects that are due: a second pass of their namespaces, the safeguards, and one DELETE each.

A second pass confirms the objects of several namespaces, since it lists some kinds in the whole cluster. An object that
a policy rule has archived is stored first, before the second pass, since an archive may be slow.

A Pod may start to use an object between the last pass and the DELETE. So the second pass is made right before, and a
DELETE is only sent while this pass is at most `CONFIRMED_SECONDS_MAX` old. After that, another pass is made.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from shared.core.archive.gate import ArchiveProof, find_unarchived
from shared.core.references.reference import names_of
from shared.core.usage.decide_unused import DeleteUnused, RemoveMark, UnusedDecision
from shared.core.usage.unused_reasons import UnusedReason
from shared.core.values.objects import ObjectRef, ref_of
from shared.errors import ConflictError, OutdatedError, PermanentError, TryLaterError, TtlError
from shared.evaluation.usage_reader import NAMESPACES_LISTED_MAX, Target, UsageFound, UsageReader
from shared.messages import ObjectDeleted
from shared.ports import EventReason, HandlingReason, Publisher, Verdict, loop_now
from shared.safeguards.safeguards import Delayed, Denied
from shared.usecases.counted_writes import ask_safeguards, delete_counted
from shared.usecases.reports import list_finalizers
from shared.usecases.usage.handler import UsageHandler, archives_unused, rule_of
from shared.usecases.usage.marks import UsageMarks


@dataclass(frozen=True, slots=True)
class UsageStorage:
    """Stores due objects in the archives of their policy rules."""

    handler: UsageHandler

    async def store(
        self, targets: Sequence[Target], first: UsageFound, *, ends_at: float
    ) -> tuple[Sequence[Target], dict[str, ArchiveProof]]:
        """Store the objects that a policy rule has archived; return those that may be deleted, and the proofs by uid.

        Args:
            targets: The objects, which are due.
            first: The pass by which they are due.
            ends_at: When the tick ends, in seconds of the loop's clock: then no object is stored any more.
        """
        proofs: dict[str, ArchiveProof] = {}
        if not archives_unused(self.handler.policy()):
            return targets, proofs
        return [one for one in targets if await self._try_store(one, first, proofs, ends_at)], proofs

    async def _try_store(
        self, target: Target, first: UsageFound, proofs: dict[str, ArchiveProof], ends_at: float
    ) -> bool:
        """Store one object; an error that concerns it alone leaves the others."""
        ref = ref_of(target.obj)
        try:
            namespace = await self.handler.find_namespace(target)
            rule = self.handler.decide(target, namespace, first).facts.rule
            if rule is None or rule.archive is None:
                return True
            if loop_now() >= ends_at:
                self.handler.keep([target], HandlingReason.LEFT_TO_TICK)
                return False
            proof = proofs[ref.uid] = await self.handler.prove_archived(target, rule)
        except ConflictError as error:
            self.handler.keep([target], HandlingReason.TRY_LATER, str(error))
            return False
        except PermanentError as error:
            self.handler.record(Verdict.KEPT, ref, UnusedReason.NOT_ARCHIVED, detail=str(error))
            self.handler.note_refusal(ref, EventReason.NOT_ARCHIVED, error)
            return False
        except TryLaterError as error:
            self._report_unarchived(ref, str(error))
            return False
        if problem := find_unarchived(target.obj, rule, self.handler.policy(), proof):
            self.handler.keep([target], UnusedReason.NOT_ARCHIVED, problem)
        return not problem

    def _report_unarchived(self, ref: ObjectRef, problem: str) -> None:
        self.handler.record(Verdict.KEPT, ref, UnusedReason.NOT_ARCHIVED, detail=problem)
        message = f"it is due, and is kept until an archive has acknowledged this version of it: {problem}"
        self.handler.write_event(ref, EventReason.NOT_ARCHIVED, message)


CONFIRMED_SECONDS_MAX = 2.0
"""How old the end of a second pass may be when a DELETE is sent; then the pass is made again."""

BUDGET_WAIT_SECONDS_MAX = 30.0
"""How long a tick waits for a slot of the budget before it makes another pass."""


@dataclass(slots=True)
class _Confirmation:
    """Two passes, and what was deleted by them.

    Attributes:
        started: When the second pass started, in seconds of the loop's clock.
        ended: When it ended.
        outdated: Objects that the second pass is too old for.
        delayed: Objects that wait for a slot of the budget, with the time in seconds.
        deleted: What was deleted.
        proofs: What is known about the archives of the objects, by uid.
    """

    first: UsageFound
    second: UsageFound
    started: float
    ended: float
    outdated: list[Target] = field(default_factory=list)
    delayed: list[tuple[Target, float]] = field(default_factory=list)
    deleted: list[ObjectDeleted] = field(default_factory=list)
    proofs: dict[str, ArchiveProof] = field(default_factory=dict)

    @property
    def is_fresh(self) -> bool:
        return loop_now() - self.ended <= CONFIRMED_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class UsageDeletion:
    """Deletes due objects, some namespaces at a time.

    Attributes:
        handler: Decides and reports.
        storage: Stores what a policy rule has archived.
        marks: Removes the mark of an object that the second pass finds used.
        reader: Makes the second pass.
        publisher: Receives `object.deleted`.
    """

    handler: UsageHandler
    storage: UsageStorage
    marks: UsageMarks
    reader: UsageReader
    publisher: Publisher

    async def delete(self, targets: Sequence[Target], first: UsageFound, *, ends_at: float) -> None:
        """Confirm that objects are unused, and delete them.

        Args:
            targets: The objects, which are due: first those that are deleted first.
            first: The pass by which they are due.
            ends_at: When the tick ends, in seconds of the loop's clock: then no pass is made any more. What is left is
                left to the next tick.

        Raises:
            TryLaterError: The API server is away.
        """
        while targets:
            outdated, delayed = list[Target](), list[tuple[Target, float]]()
            for batch in _batches(targets):
                if loop_now() >= ends_at:
                    self.handler.keep(batch, HandlingReason.LEFT_TO_TICK)
                elif confirmation := await self._delete_batch(batch, first, ends_at):
                    outdated += confirmation.outdated
                    delayed += confirmation.delayed
            targets = [*outdated, *(target for target, _ in delayed)]
            longest = max((seconds for _, seconds in delayed), default=0.0)
            wait = 0.0 if outdated else min(longest, BUDGET_WAIT_SECONDS_MAX)
            if targets and loop_now() + wait >= ends_at:
                self.handler.keep(targets, HandlingReason.LEFT_TO_TICK)
                return
            await asyncio.sleep(wait)

    async def _delete_batch(self, batch: Sequence[Target], first: UsageFound, ends_at: float) -> _Confirmation | None:
        """Make a second pass of the namespaces of some objects, and delete them; None if none was stored in time."""
        targets, proofs = await self.storage.store(batch, first, ends_at=ends_at)
        if not targets:
            return None
        started = loop_now()
        names = names_of(one.obj for one in targets)
        second = await self.reader.look(names, namespaces=names.namespaces)
        if problem := second.of.find_problem():  # it may concern some of the namespaces only
            self.handler.telemetry.usage_pass(problem)
        confirmation = _Confirmation(first, second, started, loop_now(), proofs=proofs)
        for target in targets:
            await self._try_delete(target, confirmation)
        await self._report_deleted(confirmation.deleted)
        return confirmation

    async def _try_delete(self, target: Target, confirmation: _Confirmation) -> None:
        """Delete one object; an error that concerns it alone leaves the others."""
        ref = ref_of(target.obj)
        try:
            await self._delete(target, confirmation)
        except OutdatedError:
            confirmation.outdated.append(target)
        except (ConflictError, TryLaterError) as error:
            self.handler.record(Verdict.KEPT, ref, HandlingReason.TRY_LATER, detail=str(error))
        except PermanentError as error:
            self.handler.report(ref, error)

    async def _delete(self, target: Target, confirmation: _Confirmation) -> None:
        handler, rule, ref = self.handler, rule_of(target.obj), ref_of(target.obj)
        namespace = await handler.find_namespace(target)
        if not confirmation.is_fresh:
            raise OutdatedError(f"{ref}: the second pass is too old")
        decision = handler.decide(target, namespace, confirmation.first, confirmation.second)
        if not isinstance(decision, DeleteUnused):
            await self._keep_after_all(target, decision)
            return
        if self._find_unarchived(target, decision, confirmation):
            raise OutdatedError(f"{ref}: the policy has it archived now")
        answer = await ask_safeguards(handler.safeguards, rule, target.obj, by=handler.by)
        if answer is not None:
            await self._wait_or_keep(target, answer, confirmation)
            return
        # From here on nothing is awaited before the request is sent.
        if not self._is_still_due(target, confirmation):
            if handler.safeguards:
                handler.safeguards.not_deleted(rule, ref)
            raise OutdatedError(f"{ref}: the decision about it does not hold any more")
        if await delete_counted(handler.cluster, handler.safeguards, rule, target.obj, propagation=None):
            self._count(target, decision, confirmation)
        else:
            handler.record(Verdict.ALREADY_GONE, ref, decision.reason)

    async def _wait_or_keep(self, target: Target, answer: Denied | Delayed, confirmation: _Confirmation) -> None:
        """Leave a due object for now: a safeguard denied or delayed its deletion."""
        ref = ref_of(target.obj)
        if isinstance(answer, Delayed):
            confirmation.delayed.append((target, answer.seconds))
            return
        self.handler.record(Verdict.KEPT, ref, answer.reason, detail=answer.detail)
        if answer.event:
            self.handler.write_event(ref, EventReason.RECREATE_LOOP, answer.event)

    def _is_still_due(self, target: Target, confirmation: _Confirmation) -> bool:
        """Decide again by what is cached: the pass, and the Namespace, must still be fresh."""
        namespace = self.handler.namespaces.get_cached(ref_of(target.obj).namespace)
        again = self.handler.decide(target, namespace, confirmation.first, confirmation.second)
        is_due = confirmation.is_fresh and isinstance(again, DeleteUnused)
        return is_due and not self._find_unarchived(target, again, confirmation)

    def _find_unarchived(self, target: Target, due: UnusedDecision, confirmation: _Confirmation) -> str:
        proof = confirmation.proofs.get(ref_of(target.obj).uid)
        return find_unarchived(target.obj, due.facts.rule, self.handler.policy(), proof)

    def _count(self, target: Target, due: DeleteUnused, confirmation: _Confirmation) -> None:
        handler, counts, deleted_at = self.handler, self.handler.counts, self.handler.clock.now()
        deleted = ObjectDeleted(
            ref=ref_of(target.obj),
            outcome=None,
            finished_at=None,
            ttl_from=due.facts.rule.source if due.facts.rule else "",
            due_at=due.since,
            deleted_at=deleted_at,
            lateness_seconds=(deleted_at - due.since).total_seconds(),
            reason="unused",
            policy=handler.policy().digest,
            finalizers=list_finalizers(target.obj),
        )
        confirmation.deleted.append(deleted)
        counts.verdicts[Verdict.DELETED] += 1
        counts.window_seconds = max(counts.window_seconds, loop_now() - confirmation.started)
        handler.telemetry.deleted(deleted, by=handler.by)

    async def _keep_after_all(self, target: Target, decision: UnusedDecision) -> None:
        """Keep an object that was due by the first pass: the second pass does not confirm it."""
        if isinstance(decision, RemoveMark):
            await self.marks.remove(target, decision.reason)
            return
        self.handler.keep([target], decision.reason, decision.facts.problem)

    async def _report_deleted(self, deleted: Sequence[ObjectDeleted]) -> None:
        """Publish deletions: after the DELETEs, which must not wait for the Broker."""
        for one in deleted:
            try:
                await self.publisher.publish(one)
            except TtlError as error:  # the object is deleted anyway
                self.handler.telemetry.problem("could not publish a deletion", error=str(error))


def _batches(targets: Iterable[Target]) -> Iterator[Sequence[Target]]:
    """Yield the objects of some namespaces at a time; the order of the objects decides which namespaces are first."""
    found: defaultdict[str, list[Target]] = defaultdict(list)
    for one in targets:
        found[ref_of(one.obj).namespace].append(one)
    namespaces = [*found.values()]
    for start in range(0, len(namespaces), NAMESPACES_LISTED_MAX):
        yield [*chain.from_iterable(namespaces[start : start + NAMESPACES_LISTED_MAX])]
