"""The loop of a decision: decide, find the fact that is missing, and decide again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from shared.core.archive.decide_archive import ArchiveDecision
from shared.core.archive.gate import AWAITS_CHILDREN
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Context, Decision
from shared.core.decision.facts import MISSING, Fact
from shared.core.decision.finish import Finish
from shared.core.kinds.rule import KindRule
from shared.errors import PermanentError
from shared.ports import Snapshot

FindFact = Callable[[Fact, Context], Awaitable[Context]]
"""Returns the context with a missing fact; raises PermanentError if it cannot be found."""

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
    """Decide; while the decision lacks a fact, find that fact and decide again.

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
    asked: set[Fact] = set()
    while True:
        decision = decide(snapshot.obj, rule, snapshot.read_at, context, finish=finish, ahead=snapshot.ahead)
        decisions.append(decision)
        finish = decision.facts.finish
        fact = next((one for one in find_lacking(decision) if one not in asked), None)
        if fact is None:
            return decisions, context
        asked.add(fact)
        try:
            context = await find_fact(fact, context)
        except PermanentError as error:
            decisions[-1] = replace(decision, facts=replace(decision.facts, problem=str(error)))
            return decisions, context


def find_lacking(decision: Decision | StopDecision | ArchiveDecision) -> Sequence[Fact]:
    """The facts that a decision lacks: the one that its reason names, else those that may make the object due sooner.

    If one of the latter cannot be found, the decision stays. An object that waits for its children needs none of them:
    it is due, and is evaluated again soon.
    """
    if (fact := MISSING.get(decision.reason)) is not None:
        return (fact,)
    return () if decision.reason in AWAITS_CHILDREN else decision.facts.unread
