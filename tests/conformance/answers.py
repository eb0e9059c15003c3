"""What `decide` answers, in the words of the tables of others: how much remains, or why nothing will happen."""

from datetime import datetime, timedelta
from typing import Any

from shared.core.decide import Context, Expire, Ignore, Reason, Wait, decide
from shared.core.kinds.rule import KindRule
from shared.core.namespaces import Namespace, plain_namespace
from tests.builders import NOW

DEFAULT = plain_namespace("default")


def answer(
    obj: Any, rule: KindRule, *, now: datetime = NOW, space: Namespace = DEFAULT, **surroundings: Any
) -> timedelta | Reason:
    """The time that remains (zero or less: it goes now), or the reason why the object stays."""
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
