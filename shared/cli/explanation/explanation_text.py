"""The text of `explain`: the decision first, then the reasons and what to do, then all facts."""

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from shared.cli.deleters.in_force import NAME_POLICY, UNKNOWN_POLICY, PolicyInForce
from shared.cli.objects.advice import ARCHIVE_REASONS, advise, advise_archive, advise_stop
from shared.cli.objects.archive_report import archive_lines
from shared.cli.objects.object_report import (
    PAST,
    STOP_WORDS,
    ExplainContext,
    as_json,
    describe_deadline,
    describe_reason,
)
from shared.cli.objects.preview import ObjectPreview, UnreadFact
from shared.cli.objects.related import RelatedFacts
from shared.cli.output.printing import describe_instant, describe_time, terminal_width, wrap
from shared.core.archive.gate import AWAITS_ARCHIVE
from shared.core.deadlines.decide_stop import Stop
from shared.core.decision.capacity import Counted, QuotaUsage
from shared.core.decision.decide import Decision, Expire, Facts, Ignore, Reason, Wait, find_deletion, find_fate
from shared.core.decision.facts import OWNER_REASONS
from shared.core.decision.finish import EARLY_FINISH
from shared.core.kinds.rule import Outcome
from shared.core.policy.matching import Grouping
from shared.core.policy.policy_rule import NOT_BEFORE, PolicyRule
from shared.core.values.objects import format_instant, printable
from shared.core.values.timing import format_duration
from shared.installation.guard_status import GuardState
from shared.installation.guards import guard_name
from shared.usecases.timers import find_warned_at

_COUNTED_AS = {
    Outcome.SUCCEEDED: " that succeeded",
    Outcome.FAILED: " that failed",
    Outcome.UNKNOWN: " with unknown outcome",
    None: "",
}
"""The objects among which keepLast counts an object, by the outcome; None for all outcomes."""

_INDENT = 12
"""Columns before the text of a line."""

_TTL_WHILE_UNFINISHED = "none set on the object; a policy and its namespace apply after it finishes"
_NO_MANAGED_FIELDS = "the file has no metadata.managedFields, which `kubectl get --show-managed-fields` prints"
_HOW_TO_OPT_IN = "it is deleted only if its own annotation or a policy rule that names its kind sets a TTL"


def as_text(one: ObjectPreview, context: ExplainContext | None = None, width: int | None = None) -> str:
    """Return the lines of one object: the decision first, then the reasons and what to do, then all facts.

    Args:
        one: The object and the decision about it.
        context: What was found on its cluster; None if the object is from a file.
        width: The most columns of a line; None to wrap no line.
    """
    reason = "policy" if _is_unsure(one.decision, context) else _REASON_LINES.get(one.decision.reason, "")
    first = ("decision", "but", "problem", reason, "overridden", "saved", "do")
    lines = list(_lines(one, context))
    lines.sort(key=lambda line: first.index(line[0]) if line[0] in first else len(first))
    columns = [("", printable(str(one.ref))), *_columns(lines)]
    if width is None:
        return "\n".join(name + text for name, text in columns)
    return "\n".join(line for name, text in columns for line in wrap(text, width, first=name, indent=_INDENT))


_REASON_LINES = {
    Reason.HELD: "hold",
    Reason.UNFINISHED: "deadline",
    Reason.TERMINATING: "finalizer",
    Reason.NEVER_FINISHES: "kind",
    **dict.fromkeys(OWNER_REASONS, "owner"),
    Reason.DISPATCHED: "others",
    Reason.RECREATED: "others",
    Reason.KEPT_LAST: "keepLast",
    Reason.RANK_UNREAD: "keepLast",
    Reason.OVER_COUNT: "maxCount",
    Reason.OVER_QUOTA: "quota",
    Reason.LEFT_TO_CONTROLLER: "others",
    Reason.NO_TTL: "policy",
    **dict.fromkeys(AWAITS_ARCHIVE, "archive"),
}
"""The line that explains a reason, and so follows the decision. A line `problem` always does."""

_GUARDED = (Reason.UNFINISHED, Reason.HELD, Reason.EXEMPT, Reason.UNKNOWN_SHAPE)
"""The reasons for which a ValidatingAdmissionPolicy denies the DELETE too."""

_WITHOUT_POLICY = frozenset(
    {
        Reason.HELD,
        Reason.TERMINATING,
        Reason.NEVER_FINISHES,
        Reason.EXEMPT,
        Reason.UNKNOWN_SHAPE,
        Reason.LEFT_TO_CONTROLLER,
    }
)
"""The reasons to keep an object that no policy changes. Beside all others, another policy may delete a finished object,
or stop an unfinished one."""


def _columns(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each line in two columns; of lines with one name, only the first shows it."""
    before = ""
    for name, text in lines:
        yield f"  {'' if name == before else name:9} ", printable(text)
        before = name


def _lines(one: ObjectPreview, context: ExplainContext | None) -> Iterator[tuple[str, str]]:
    decision, now, related, facts = one.decision, one.now, one.related, one.decision.facts
    yield "decision", _stopped_now(one, context) or _decision(decision, now, context, one.unread if context else ())
    yield from (("but", obstacle.message) for obstacle in (context.obstacles if context else ()))
    yield from (("but", owner.message) for owner in (related.deleting_owners if related else ()))
    yield from (("do", fix) for fix in _fixes(one, context) if fix)
    yield "finished", _finished(facts, now, related)
    if related and related.early_finish:
        yield "finished", EARLY_FINISH.format(format_instant(related.early_finish))
    yield "ttl", _TTL_WHILE_UNFINISHED if decision.reason is Reason.UNFINISHED and facts.ttl is None else _ttl(facts)
    yield "due", _due(facts, now)
    yield from _reported(decision, now)
    if one.stop and related:
        yield from (("deadline", line) for line in describe_deadline(one.stop, related.rule, now))
    if facts.keep_last_rule:
        yield "keepLast", _keep_last(facts, facts.keep_last_rule)
    yield from limit_lines(facts)
    yield from (("archive", line) for line in archive_lines(facts, now))
    if context:
        yield "policy", context.chosen.message
    if facts.problem:
        yield "problem", facts.problem
    if related:
        yield from _related_lines(decision, related)
    if related and context and context.guard is GuardState.CURRENT and decision.reason in _GUARDED:
        yield "guard", f"the API server also denies our accounts the DELETE, by {guard_name(related.rule)}"


def _reported(decision: Decision, now: datetime) -> Iterator[tuple[str, str]]:
    """Say what is sent or reported before or instead of the deletion."""
    facts = decision.facts
    if isinstance(decision, Wait) and (warned_at := find_warned_at(find_deletion(decision).facts)):
        yield "warn", f"object.warned is sent at {describe_instant(warned_at, now)}"
    if facts.audited_by:
        yield "audit", f"policy rule {facts.audited_by} has audit: true: the object is only reported once it is due"


def _stopped_now(one: ObjectPreview, context: ExplainContext | None) -> str:
    """Say that an unfinished object is beyond its deadline; an empty text if it is not."""
    if not isinstance(one.stop, Stop) or one.decision.reason is not Reason.UNFINISHED:
        return ""
    done = PAST[one.stop.facts.active.action]
    when = f"due to be {done}" if context and context.obstacles else f"{done} now"
    unsure = UNKNOWN_POLICY if _is_unsure(one.decision, context) else ""
    return f"{when} ({one.stop.reason}): {STOP_WORDS[one.stop.reason]}{unsure}"


def _decision(
    decision: Decision, now: datetime, context: ExplainContext | None, unread: Sequence[UnreadFact] = ()
) -> str:
    """Say the decision: `kept (held): …`, `due in 5m (not-due): …`, `deleted now (expired): …`."""
    reason = f"({decision.reason}): {describe_reason(decision, now)}"
    if _is_unsure(decision, context):
        reason += UNKNOWN_POLICY
    if unread:
        reason += f"; unknown: {' and '.join(fact.what for fact in unread)}, which may change this"
    is_overridden = bool(decision.facts.overridden)  # then its own controller may delete it earlier
    match decision:
        case Ignore():
            return f"{'not deleted by ttl-after-finished' if is_overridden else 'kept'} {reason}"
        case Wait(until) if isinstance(find_fate(decision), Ignore):
            return f"only reported {describe_time(until, now)} {reason}"
        case Wait(until):
            due = f"due {describe_time(until, now)}"
            return (
                f"{due}, but its own controller may delete it earlier {reason}" if is_overridden else f"{due} {reason}"
            )
        case Expire() if context is None:
            return f"deleted now {reason}, unless a budget, an open breaker or a recreate loop delays it"
        case Expire():
            return f"{'due' if context.obstacles else 'deleted now'} {reason}"


def is_unsure(decision: Decision, chosen: PolicyInForce) -> bool:
    """Return whether an unknown policy may change the decision, or stop the object at a deadline."""
    return not chosen.is_known and decision.reason not in _WITHOUT_POLICY and not _is_kept_by_itself(decision)


def _is_kept_by_itself(decision: Decision) -> bool:
    """Return whether the object itself keeps it from deletion, and has finished, so that no deadline applies."""
    ttl = decision.facts.ttl
    is_own_never = decision.reason is Reason.NEVER and ttl is not None and ttl.origin == "object"
    is_over = decision.facts.finish.finished is True
    return is_over and (is_own_never or decision.reason is Reason.INVALID_TTL)


def _is_unsure(decision: Decision, context: ExplainContext | None) -> bool:
    return context is not None and is_unsure(decision, context.chosen)


def _fixes(one: ObjectPreview, context: ExplainContext | None) -> Iterator[str]:
    obstacles, flags, related = context.obstacles if context else (), context.flags if context else (), one.related
    yield from (obstacle.cure for obstacle in obstacles)
    if _is_unsure(one.decision, context):
        yield NAME_POLICY
        return
    if context and one.unread:
        yield from (f"run as a user with {fact.right}" for fact in one.unread)
        return
    yield from (owner.fix for owner in (related.deleting_owners if related else ()))
    if related and (related.saved or not obstacles):
        is_saved, is_readable = bool(related.saved), not related.held_problem
        yield advise(
            one.decision,
            one.ref,
            related.rule,
            flags=flags,
            is_saved=is_saved,
            is_readable=is_readable,
            lacks_managed_fields=related.lacks_managed_fields,
        )
    if related and one.decision.reason in ARCHIVE_REASONS:
        chosen, has_obstacle = context.chosen if context else None, bool(obstacles or one.decision.facts.overridden)
        yield from advise_archive(
            one.decision, one.ref, related.rule, chosen=chosen, flags=flags, has_obstacle=has_obstacle
        )
    if related and one.stop and one.decision.reason is Reason.UNFINISHED:
        yield advise_stop(one.stop, one.ref, related.rule, flags=flags)


def _related_lines(decision: Decision, related: RelatedFacts) -> Iterator[tuple[str, str]]:
    rule = related.rule
    yield from (("problem", one) for one in related.unknown_annotations)
    if related.hold:
        yield "hold", related.hold
        yield from (("problem", one) for one in (related.held_problem,) if one)
    if related.saved:
        yield "saved", related.saved
    if related.overridden:
        yield "overridden", related.overridden
    if rule.never_finishes:
        yield "kind", rule.never_finishes
    if rule.opt_in and not rule.never_finishes:
        yield "opt-in", f"{rule.opt_in}; {_HOW_TO_OPT_IN}" if decision.reason is Reason.NO_TTL else rule.opt_in
    if related.owner:
        yield "owner", f"{related.owner.ref}: {related.owner.state}"
    yield from (("others", f"{name}: {does}") for name, does in related.cleaners)
    yield from (("finalizer", f"{name}: {does}") for name, does in related.finalizers)
    if rule.notes:
        yield "note", rule.notes


def _finished(facts: Facts, now: datetime, related: RelatedFacts | None) -> str:
    if not facts.finish.finished:
        why = f": {related.unfinished.why}" if related and related.unfinished else ""
        return f"{'no' if facts.finish.finished is False else 'unknown'}{why}"
    outcome = facts.finish.outcome or "yes"
    is_cut = related is not None and related.lacks_managed_fields
    if facts.finish.at is None:
        return f"{outcome}, finish time unknown{f': {_NO_MANAGED_FIELDS}' if is_cut else ''}"
    later = f", or later: {_NO_MANAGED_FIELDS}" if is_cut else ""
    return f"{outcome} at {describe_instant(facts.finish.at, now)}{later}"


def _ttl(facts: Facts) -> str:
    if facts.ttl is None:
        return "invalid" if facts.problem and facts.finish.finished is not None else "none"
    if facts.ttl.is_never:
        return f"never, by {facts.ttl.source}"
    after, at = facts.ttl.after, facts.ttl.at
    what = f"until {format_instant(at)}" if at else format_duration(after or timedelta())
    return f"{what}, by {facts.ttl.source}"


def _due(facts: Facts, now: datetime) -> str:
    if facts.due_at is None:
        return "-"
    moved = f", moved by {facts.moved_by}" if facts.moved_by else ""
    return f"{describe_instant(facts.due_at, now)}{moved}"


def _keep_last(facts: Facts, rule: PolicyRule) -> str:
    """Say what a rule keeps: `policy rule ci keeps the newest 3 that failed of its kind …; none of them …`."""
    outcome = facts.finish.outcome
    which, by = _COUNTED_AS[rule.counted_as(outcome)], _describe_grouping(rule.keep_last_by)
    newer = "not counted" if facts.newer is None else f"{facts.newer or 'none'} of them finished later"
    return f"{rule.source} keeps the newest {rule.kept_of(outcome)}{which} of its kind in this namespace{by}; {newer}"


def limit_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield a line for each limit of a policy rule that applies to the object."""
    if facts.count_rule is not None:
        yield "maxCount", _count_line(facts.count_rule, facts.counted)
    if facts.quota_rule is not None and facts.ttl is not None:
        yield from (("quota", text) for text in _quota_lines(facts, facts.quota_rule))


def _count_line(rule: PolicyRule, counted: Counted | None) -> str:
    """`7th oldest of 57 finished objects of its kind in this namespace; limit 50, by policy rule ci`."""
    limit = f"limit {rule.max_count}, by {rule.source}"
    if counted is None:
        return f"not counted; {limit}"
    place = _ordinal(counted.total - counted.newer)
    of_group = f"finished objects of its kind in this namespace{_describe_grouping(rule.count_by)}"
    return f"{place} oldest of {counted.total} {of_group}; {limit}"


def _quota_lines(facts: Facts, rule: PolicyRule) -> Iterator[str]:
    """`count/jobs.batch of ResourceQuota objects: 47 of 50, 94 %; limit 90 %, by policy rule ci`."""
    percent, pressure = rule.when_quota_above or 0, facts.pressure
    if pressure is None:
        yield f"not read; limit {percent} %, by {rule.source}"
        return
    if not pressure.quotas:
        what = "no ResourceQuota of this namespace limits the number of objects of its kind"
        yield f"{what}; limit {percent} %, by {rule.source}"
        return
    usages = "; ".join(map(_quota_usage, pressure.quotas))
    yield f"{usages}; limit {percent} %, by {rule.source}"
    if excess := pressure.excess(percent):
        after = format_duration(NOT_BEFORE if rule.not_before is None else rule.not_before)
        what = (
            "this object may not be deleted before its TTL is over"
            if pressure.older is None
            else f"{pressure.older} that have to be deleted finished earlier"
        )
        yield f"{excess} must be deleted, the oldest first, and each not sooner than {after} after its finish; {what}"


def _quota_usage(usage: QuotaUsage) -> str:
    share = usage.used * 100 // usage.hard
    return f"{usage.resource} of ResourceQuota {usage.name}: {usage.used} of {usage.hard}, {share} %"


def _ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _describe_grouping(by: Grouping) -> str:
    """`, by label app`; empty for the groups of a namespace."""
    if by.by == "namespace":
        return ""
    return f", by label {by.label}" if by.label else ", by a CEL expression" if by.by == "cel" else f", by {by.by}"


Explanation = tuple[ObjectPreview, ExplainContext | None]
"""The decision about an object, and what was found on its cluster."""


class ExplanationPrinter:
    """Prints decisions while they are found: the JSON of one object is an object, that of several a list.

    Args:
        output: `json` or `text`.
    """

    def __init__(self, output: str) -> None:
        self._is_json, self._width = output == "json", terminal_width()
        self._count, self._first = 0, ""

    def print(self, findings: Sequence[Explanation]) -> None:
        """Print some decisions, each with what was found on the cluster."""
        for one, context in findings:
            if self._is_json:
                self._print_json(as_json(one.ref, one.decision, one.stop, one.related, context=context))
            else:
                sys.stdout.write(as_text(one, context, self._width) + "\n")  # click flushes each
        sys.stdout.flush()

    def _print_json(self, report: dict[str, Any]) -> None:
        self._count += 1
        if self._count == 1:  # whether it is in a list shows the second one
            self._first = json.dumps(report, indent=2)
            return
        if self._count == 2:  # noqa: PLR2004 - as above
            sys.stdout.write("[\n" + textwrap.indent(self._first, "  "))
        sys.stdout.write(",\n" + textwrap.indent(json.dumps(report, indent=2), "  "))

    def end(self) -> None:
        """Print the end of the JSON."""
        if self._is_json:
            sys.stdout.write({0: "[]\n", 1: f"{self._first}\n"}.get(self._count, "\n]\n"))
            sys.stdout.flush()
