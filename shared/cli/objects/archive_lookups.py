"""Ask the archives about the objects of a page concurrently: one by one, `plan` of a fleet would take minutes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.core.archive.archiving import ArchiveFact
from shared.core.facts import Context
from shared.core.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_text
from shared.core.policy.policy import Policy
from shared.errors import PermanentError
from shared.evaluation.archive_check import ArchiveCheck

LOOKUPS_MAX = 64
"""Objects about which an archive is asked concurrently."""

_Key = tuple[str, str, str]


@dataclass
class ArchiveLookups:
    """Remembers what the archives answered about the objects of the present pages.

    Attributes:
        check: Asks the archives.
    """

    check: ArchiveCheck
    _answers: dict[_Key, ArchiveFact | PermanentError | None] = field(default_factory=dict)

    async def prime(self, found: Sequence[tuple[Any, KindRule, Context]]) -> None:
        """Ask about all finished objects that may be archived; `find` then forgets each answer that it returns.

        Args:
            found: The objects of a page, each with its rule and with each policy and its namespace.
        """
        slots = asyncio.Semaphore(LOOKUPS_MAX)

        async def ask(obj: Any, rule: KindRule, context: Context) -> None:
            if not context.policy.archives or not finish_of(obj, rule).finished:
                return
            async with slots:
                try:
                    self._answers[_key(obj, context.policy)] = await self.check.find(obj, rule, context)
                except PermanentError as error:
                    self._answers[_key(obj, context.policy)] = error

        await asyncio.gather(*(ask(*one) for one in found))

    async def find(self, obj: Any, rule: KindRule, context: Context) -> ArchiveFact | None:
        """See `shared.evaluation.archive_check.ArchiveCheck.find`."""
        key = _key(obj, context.policy)
        if key not in self._answers:
            return await self.check.find(obj, rule, context)
        answer = self._answers.pop(key)
        if isinstance(answer, PermanentError):
            raise answer
        return answer


def _key(obj: Any, policy: Policy) -> _Key:
    return get_text(obj, "metadata.uid"), get_text(obj, "metadata.resourceVersion"), policy.digest
