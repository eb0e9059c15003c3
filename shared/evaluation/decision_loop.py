"""The loop of a decision: decide, find the fact that is missing, and decide again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from shared.core.archive.decide_archive import ArchiveDecision
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Context, Decision, Expire, Reason
from shared.core.decision.finish import Finish
from shared.core.kinds.rule import KindRule
from shared.errors import PermanentError
from shared.ports import Snapshot

FindFact = Callable[[Reason, Context], Awaitable[Context]]
"""Returns the context with the fact that a reason names as missing; raises PermanentError if it cannot be found."""

_MISSING = frozenset(
    {
        Reason.NAMESPACE_UNREAD,
        Reason.INHERITED_UNREAD,
        Reason.OWNER_UNFINISHED,
        Reason.AGGREGATED_API,
        Reason.KEPT_LAST,
        Reason.NOT_ARCHIVED,
        Reason.CHILD_NOT_ARCHIVED,
    }
)
"""Reasons that also apply while a fact is missing."""


DecisionT = TypeVar("DecisionT", bound=Decision | StopDecision | ArchiveDecision)
"""A decision about the TTL, the active deadline, or the archive."""

Decide = Callable[..., DecisionT]
"""`decide`, `decide_stop` or `decide_archive`, which have the same arguments."""


async def decide_with(  # noqa: PLR0913 - all inputs of a decision
    decide: Decide[DecisionT],
    find_fact: FindFact,
    snapshot: Snapshot,
    rule: KindRule,
    *,
    context: Context,
    finish: Finish | None = None,
) -> tuple[Sequence[DecisionT], Context]:
    """Decide; while the reason names a missing fact, find that fact and decide again.

    Args:
        decide: The pure function that decides.
        find_fact: Finds a missing fact.
        snapshot: The object, and the API server's time.
        rule: The object's kind.
        context: The facts that are known.
        finish: The finish from an earlier decision about the object.

    Returns:
        Each decision on the way, and the context of the last one, which counts. If a fact cannot be found, the last
        decision keeps the object, and has the problem.
    """
    decisions: list[DecisionT] = []
    found: set[Reason] = set()
    missing: Sequence[Reason]
    while True:
        decision = decide(snapshot.obj, rule, snapshot.read_at, context, finish=finish, ahead=snapshot.ahead)
        decisions.append(decision)
        finish, missing = decision.facts.finish, (decision.reason,)
        if decision.reason not in _MISSING:
            # Facts that may make the object due sooner; if one cannot be found, the decision stays.
            missing = decision.facts.unread if not isinstance(decision, Expire) else ()
        reason = next((one for one in missing if one not in found), None)
        if reason is None:
            return decisions, context
        found.add(reason)
        try:
            context = await find_fact(reason, context)
        except PermanentError as error:
            decisions[-1] = replace(decision, facts=replace(decision.facts, problem=str(error)))
            return decisions, context
