"""Find how the policy rules count one object, whatever its owner is and whatever its rank turns out to be."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

from shared.core.capacity import BEYOND_COUNT, FULL_PRESSURE, NO_PRESSURE, WITHIN_COUNT
from shared.core.evaluate import evaluate
from shared.core.facts import Context, Reason
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_controller, ref_of
from shared.core.ranks import RankedBy, RankedObject, find_counted, find_pressed, find_ranked
from shared.evaluation.owners import with_owner


def rank_all(obj: Any, rule: KindRule, context: Context, kinds: Catalogue) -> Iterator[RankedObject]:
    """Yield how the object is counted for each field of a policy rule that counts it."""
    for by in _fields(context, rule):
        if ranked := rank_by(by, obj, rule, context, kinds):
            yield ranked


def _fields(context: Context, rule: KindRule) -> Iterator[RankedBy]:
    """The fields that the rules of a kind have."""
    rules = [one.rule for one in context.policy.candidates(rule)]
    for by in get_args(RankedBy):
        match by:
            case "keepLast" if any(one.counts for one in rules):
                yield by
            case "maxCount" if any(one.max_count is not None for one in rules):
                yield by
            case "whenQuotaAbove" if any(one.when_quota_above is not None for one in rules):
                yield by


def rank_by(by: RankedBy, obj: Any, rule: KindRule, context: Context, kinds: Catalogue) -> RankedObject | None:
    """How the object is counted for one field of a policy rule; None if it is not."""
    ref, known = ref_of(obj), replace(context, owner_unfinished=False, counted=WITHIN_COUNT, pressure=NO_PRESSURE)
    if by == "keepLast":
        return find_ranked(ref, *evaluate(obj, rule, replace(known, newer=None)))
    known = replace(known, aggregated=False, newer=sys.maxsize)
    if by == "maxCount":
        return find_counted(ref, *evaluate(obj, rule, replace(known, counted=BEYOND_COUNT)))
    known = replace(known, pressure=FULL_PRESSURE)
    owner, of_owner = None, with_owner(known, obj, rule, kinds)
    if of_owner.owner_unfinished:
        reason, facts = evaluate(obj, rule, of_owner)
        owner = get_controller(obj) if Reason.OWNER_UNFINISHED in (reason, *facts.unread) else None
    return find_pressed(ref, *evaluate(obj, rule, known), owner=owner)
