"""The result of `decide` in the terms of other projects' test tables: the remaining time, or the reason to keep."""

from datetime import datetime, timedelta
from typing import Any

from shared.core.decision.decide import Context, Expire, Ignore, Reason, Wait, decide
from shared.core.decision.namespaces import Namespace, plain_namespace
from shared.core.kinds.rule import KindRule
from tests.builders import NOW

DEFAULT = plain_namespace("default")


def answer(
    obj: Any, rule: KindRule, *, now: datetime = NOW, space: Namespace = DEFAULT, **surroundings: Any
) -> timedelta | Reason:
    """The remaining time (zero or less: the object is due), or the reason why the object is kept."""
    context = Context(namespace=space, **surroundings)
    match decide(obj, rule, now, context):
        case Ignore(reason):
            return reason
        case Wait(until, _):
            return until - now
        case Expire(since, _):
            return since - now


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)
