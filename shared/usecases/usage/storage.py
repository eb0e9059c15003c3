"""Store due objects that a policy rule has archived; an object that is not stored is kept, and the reason reported."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from shared.core.usage.archive_proof import ArchiveProof, find_unarchived
from shared.core.usage.unused_reasons import UnusedReason
from shared.core.values.objects import ObjectRef, ref_of
from shared.errors import ConflictError, PermanentError, TryLaterError
from shared.evaluation.usage_reader import Target, UsageFound
from shared.ports import EventReason, HandlingReason, Verdict
from shared.usecases.usage.handler import UsageHandler, archives_unused


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
            if asyncio.get_running_loop().time() >= ends_at:
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
