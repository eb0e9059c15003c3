"""What `explain` tells people: first what becomes of an object, why, and what to do, then all that is known."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from shared.cli.deleters.obstacles import ExplainContext
from shared.cli.objects.advice import advise
from shared.cli.objects.object_report import WORDS, describe_time
from shared.cli.objects.related import RelatedFacts
from shared.cli.output.width import wrap
from shared.core.decide import Decision, Expire, Facts, Ignore, Reason, Wait
from shared.core.objects import ObjectRef, format_instant, printable
from shared.core.policy.conditions import Grouping
from shared.core.policy.policy import PolicyRule
from shared.core.ttl.durations import format_duration
from shared.installation.delete_guard import guard_name
from shared.installation.guard_status import GuardState

_INDENT = 12
"""Columns before what is told."""

_OF_OTHERS = "none of its own; what a policy or its namespace says is told once it has finished"
_HOW_TO_OPT_IN = "so nothing but its own annotation has it deleted, or a policy rule that names its kind"


def as_text(
    ref: ObjectRef,
    decision: Decision,
    now: datetime,
    around: RelatedFacts | None = None,
    scene: ExplainContext | None = None,
    width: int | None = None,
) -> str:
    """A few lines: first what becomes of it, why, and what to do, then all that is known.

    Without a width lines are not wrapped.
    """
    beside = "policy" if _is_unsure(decision, scene) else _BESIDE.get(decision.reason, "")
    first = ("decision", "but", "problem", beside, "overridden", "saved", "do")
    lines = list(_lines(ref, decision, now, around, scene))
    lines.sort(key=lambda line: first.index(line[0]) if line[0] in first else len(first))
    told = [("", printable(str(ref))), *_columns(lines)]
    if width is None:
        return "\n".join(name + text for name, text in told)
    return "\n".join(line for name, text in told for line in wrap(text, width, first=name, indent=_INDENT))


_BESIDE = {
    Reason.HELD: "hold",
    Reason.TERMINATING: "finalizer",
    Reason.NEVER_FINISHES: "kind",
    Reason.OWNER_UNFINISHED: "owner",
    Reason.DISPATCHED: "others",
    Reason.KEPT_LAST: "keeper",
    Reason.LEFT_TO_CONTROLLER: "others",
    Reason.NO_TTL: "policy",
}
"""What explains the answer, and so stands beside it, as a problem always does."""

_GUARDED = (Reason.UNFINISHED, Reason.HELD, Reason.EXEMPT, Reason.UNKNOWN_SHAPE)
"""What a ValidatingAdmissionPolicy refuses as well."""

_RULED = (Reason.NO_TTL, Reason.NOT_DUE, Reason.SERVER_CLOCK_AHEAD, Reason.EXPIRED)
"""What a policy may well say otherwise."""


def _columns(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each line in two parts; a name stands before the first of its lines only."""
    before = ""
    for name, told in lines:
        yield f"  {'' if name == before else name:9} ", printable(told)
        before = name


def _lines(
    ref: ObjectRef, decision: Decision, now: datetime, around: RelatedFacts | None, scene: ExplainContext | None
) -> Iterator[tuple[str, str]]:
    facts = decision.facts
    yield "decision", _decision(decision, now, scene)
    yield from (("but", one.message) for one in (scene.obstacles if scene else ()))
    yield from (("but", one.message) for one in (around.deleting_owners if around else ()))
    yield from (("do", cure) for cure in _cures(ref, decision, around, scene) if cure)
    yield "finished", _finished(facts, now, around)
    yield "ttl", _OF_OTHERS if decision.reason is Reason.UNFINISHED and facts.ttl is None else _ttl(facts)
    yield "due", _due(facts, now)
    if facts.keeper:
        yield "keeper", _keeper(facts, facts.keeper)
    if scene:
        yield "policy", scene.named.message
    if facts.problem:
        yield "problem", facts.problem
    if around:
        yield from _around_as_lines(decision, around)
    if around and scene and scene.guard is GuardState.CURRENT and decision.reason in _GUARDED:
        yield "guard", f"the API server refuses our accounts its DELETE, too, by {guard_name(around.rule)}"


def _decision(decision: Decision, now: datetime, scene: ExplainContext | None) -> str:
    """What becomes of it: `stays (held): ...`, `goes in 5m (not-due): ...`, `goes now (expired): ...`."""
    words = f"({decision.reason}): {WORDS[decision.reason]}"
    if _is_unsure(decision, scene):
        words += ", as far as can be told without its policy"
    bound = not decision.facts.overridden  # whether its own controller does as is said here
    match decision:
        case Ignore():
            return f"{'stays' if bound else 'stays, as far as we go'} {words}"
        case Wait(until):
            return f"{'goes' if bound else 'we would delete it'} {describe_time(until, now)} {words}"
        case Expire() if scene is None:
            return f"goes now {words}, unless a budget, an open breaker or a recreate loop holds it back"
        case Expire():
            return f"{'is due' if scene.obstacles else 'goes now'} {words}"


def _is_unsure(decision: Decision, scene: ExplainContext | None) -> bool:
    """Whether a policy may have another say that is not known."""
    return scene is not None and not scene.named.is_known and decision.reason in _RULED


def _cures(
    ref: ObjectRef, decision: Decision, around: RelatedFacts | None, scene: ExplainContext | None
) -> Iterator[str]:
    obstacles, flags = (scene.obstacles, scene.flags) if scene else ((), ())
    yield from (one.cure for one in obstacles)
    yield from (one.fix for one in (around.deleting_owners if around else ()))
    if around and (around.saved or not obstacles):
        is_readable = not around.held_problem
        yield advise(decision, ref, around.rule, flags=flags, is_parked=bool(around.saved), is_readable=is_readable)


def _around_as_lines(decision: Decision, around: RelatedFacts) -> Iterator[tuple[str, str]]:
    rule = around.rule
    yield from (("problem", slip) for slip in around.slips)
    if around.hold:
        yield "hold", around.hold
        yield from (("problem", one) for one in (around.held_problem,) if one)
    if around.saved:
        yield "saved", around.saved
    if around.overridden:
        yield "overridden", around.overridden
    if rule.never_finishes:
        yield "kind", rule.never_finishes
    if rule.opt_in and not rule.never_finishes:
        yield "opt-in", f"{rule.opt_in}; {_HOW_TO_OPT_IN}" if decision.reason is Reason.NO_TTL else rule.opt_in
    if around.owner:
        yield "owner", f"{around.owner.ref}: {around.owner.state}"
    yield from (("others", f"{who}: {does}") for who, does in around.cleaners)
    yield from (("finalizer", f"{who}: {does}") for who, does in around.finalizers)
    if rule.notes:
        yield "note", rule.notes


def _finished(facts: Facts, now: datetime, around: RelatedFacts | None) -> str:
    if not facts.finish.finished:
        why = f": {around.unfinished.why}" if around and around.unfinished else ""
        return f"{'no' if facts.finish.finished is False else 'unknown'}{why}"
    outcome = facts.finish.outcome or "yes"
    if facts.finish.at is None:
        return f"{outcome}, nothing tells when"
    return f"{outcome} at {format_instant(facts.finish.at)} ({describe_time(facts.finish.at, now)})"


def _ttl(facts: Facts) -> str:
    if facts.ttl is None:
        return "unreadable" if facts.problem and facts.finish.finished is not None else "none"
    if facts.ttl.is_never:
        return f"never, by {facts.ttl.source}"
    after, at = facts.ttl.after, facts.ttl.at
    what = f"until {format_instant(at)}" if at else format_duration(after or timedelta())
    return f"{what}, by {facts.ttl.source}"


def _due(facts: Facts, now: datetime) -> str:
    if facts.due_at is None:
        return "-"
    moved = f", moved by {facts.moved_by}" if facts.moved_by else ""
    return f"{format_instant(facts.due_at)} ({describe_time(facts.due_at, now)}){moved}"


def _keeper(facts: Facts, rule: PolicyRule) -> str:
    """`policy rule ci keeps the newest 3 by owner, and 1 is newer`."""
    what = "failed ones" if rule.counts_apart(facts.finish.outcome) else "of its kind in this namespace"
    by = "" if rule.keep_last_by.by == "namespace" else f", by {_grouping(rule.keep_last_by)}"
    newer = "nobody counted how many are newer" if facts.newer is None else f"{facts.newer or 'none'} finished later"
    return f"{rule.source} keeps the newest {rule.kept_of(facts.finish.outcome)} {what}{by}; {newer}"


def _grouping(by: Grouping) -> str:
    return f"label {by.label}" if by.label else "a CEL expression" if by.by == "cel" else by.by
