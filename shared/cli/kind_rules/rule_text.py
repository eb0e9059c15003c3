"""Describe a kind rule in words, for `kinds`."""

import json
from collections.abc import Iterator

from shared.core.kinds.predicates import (
    CelTime,
    ConditionTime,
    FieldTime,
    FinishSource,
    LatestTime,
    Predicate,
    TimeSource,
)
from shared.core.kinds.rule import Cleaner, KindRule, Outcome
from shared.core.kinds.ttl_and_deadline import (
    DeadlineRule,
    InheritedTtl,
    NativeDeadline,
    NativeTtl,
    PendingRule,
    StopRule,
    TtlField,
    Waiter,
)
from shared.core.kinds.wording import any_of, describe_finished, describe_replaced, describe_test

_SOURCES = {
    FinishSource.FINISHING_CONDITION: "lastTransitionTime of the condition that finished it",
    FinishSource.FINISHING_CONDITION_UPDATE: "lastUpdateTime of the condition that finished it",
    FinishSource.ALL_CONDITIONS: "the newest lastTransitionTime of its conditions",
    FinishSource.ALL_CONTAINERS: "the end of the last container, if every container has a known end",
    FinishSource.CONTAINERS_AND_CONDITIONS: "the latest time of its containers, conditions and status writes",
    FinishSource.MANAGED_FIELDS: "the newest write of its status (managedFields)",
    FinishSource.ALL_MANAGED_FIELDS: "the newest write of anything (managedFields)",
}
_UNITS = {"seconds": "seconds", "milliseconds": "milliseconds", "duration": "a duration such as 72h0m0s"}
_ZERO = {"delete": "at once", "now": "at once", "never": "never"}
_NEGATIVE = {"invalid": "is invalid, and the object is kept", "never": "means never", "delete": "means at once"}
_NEGATIVE_DEADLINE = {"invalid": "is invalid", "never": "means never", "now": "means at once"}
_DEPENDENTS = {
    "held": "",
    "free": "may be deleted while it exists",
    "kept": "is kept while it exists, since it would create another",
}
_OPT_IN = "it is deleted only if its own annotation or TTL field, or a policy rule that names its kind, sets a TTL"


def describe_rule(rule: KindRule) -> Iterator[tuple[str, list[str]]]:
    """Yield each part of a rule: its label and its sentences."""
    parts = {
        "versions": [", ".join(rule.api_versions)],
        "also called": [", ".join(rule.short_names)],
        "finished": list(_describe_end(rule)),
        "finish time": [_in_turn(number, describe_time(source)) for number, source in enumerate(rule.finished_at)],
        "its own TTL": list(describe_ttl(rule.ttl)) if rule.ttl else [],
        **(describe_deadline(rule.deadline) if rule.deadline else {}),
        "restored": [f"suspended, with {json.dumps(rule.create_suspended)}" if rule.create_suspended else ""],
        "opt-in": [f"{rule.opt_in}; {_OPT_IN}" if rule.opt_in else ""],
        "its owner": ["keeps it until the owner finishes" if rule.while_owner_unfinished == "keep" else ""],
        "dependents": [describe_replaced(rule) if rule.replaces_finished else _DEPENDENTS[rule.dependents]],
        "children": [_describe_children(rule)],
        "deleted": ["" if rule.never_finishes else f"with propagation {rule.propagation}"],
        "others": [_describe_cleaner(one) for one in rule.cleaners],
        "finalizers": [f"{name}: {does}" for name, does in rule.finalizers.items()],
        "note": [rule.notes or ""],
    }
    yield from ((label, sentences) for label, sentences in parts.items() if any(sentences))


def _describe_end(rule: KindRule) -> Iterator[str]:
    if rule.finished is None:
        yield f"never: {rule.never_finishes}"
        return
    yield from (_as_ended(test, outcome) for test, outcome in describe_finished(rule.finished))
    if rule.finished.unless:
        yield f"not while {describe_test(rule.finished.unless)}"
    if rule.observed_generation:
        yield f"not while {rule.observed_generation} is behind metadata.generation"


def _describe_children(rule: KindRule) -> str:
    names = ", ".join(f"{child.kind} of {child.group}" if child.group else child.kind for child in rule.children)
    return f"{names}; stored with it where a policy rule has archive.children" if names else ""


def _as_ended(test: str, outcome: Outcome) -> str:
    return f"{'with an unknown outcome' if outcome is Outcome.UNKNOWN else outcome}, if {test}"


def _in_turn(number: int, source: str) -> str:
    return f"else {source}" if number else source


def _describe_cleaner(one: Cleaner) -> str:
    when = f" (if {describe_test(one.when)})" if one.when else ""
    return f"{one.name}{when}: {one.does}"


def summarize_finished(rule: KindRule) -> str:
    """Say in a few words when an object of the kind is finished, for a table."""
    when = rule.finished
    if when is None:
        return "never"
    if when.conditions:
        return f"condition {any_of(list(when.conditions))}"
    if when.field is not None:
        return f"{when.field}: {', '.join(when.values)}"
    return ", ".join(dict.fromkeys(_subject_of(case.when) for case in when.cases))


def describe_time(source: TimeSource) -> str:
    """Say where a finish time is read."""
    match source:
        case FinishSource():
            return _SOURCES[source]
        case str():
            return source if "[*]" not in source else f"the newest {source}"
        case FieldTime(field=field, unit=unit):
            return f"{field} ({unit.replace('-', ' in ')})"
        case ConditionTime():
            return f"{source.time} of condition {source.condition} with status {source.status}"
        case LatestTime(latest=sources):
            return f"the latest of: {', '.join(describe_time(one) for one in sources)}"
        case CelTime(cel=cel):
            return f"CEL: {' '.join(cel.split())}"


def describe_ttl(ttl: NativeTtl) -> Iterator[str]:
    """Describe the kind's own TTL: its fields, the meaning of 0 and of negative values, and its controller."""
    yield from (_describe_field(field) for field in ttl.fields)
    if ttl.inherited:
        yield from _describe_inherited(ttl.inherited)
    yield f"0 means {_ZERO[ttl.zero]}; a negative value {_NEGATIVE[ttl.negative]}"
    if ttl.honoured_by is None:
        yield "no other controller acts on it"
    elif ttl.native == "act":
        yield f"{ttl.honoured_by} acts on it too; the earlier of the two deletes the object"
    else:
        yield f"left to {ttl.honoured_by}, which acts on it and does more than delete"


def describe_deadline(rule: DeadlineRule) -> dict[str, list[str]]:
    """Describe how a deadline of the kind is measured and enforced: each part's label and its sentences."""
    exception = rule.exception
    suspended = [f"its deadline does not run while {describe_test(rule.suspended)}"] if rule.suspended else []
    return {
        "start": [_in_turn(number, describe_time(source)) for number, source in enumerate(rule.started_at)],
        "suspended": suspended,
        "waits for its start": list(_describe_pending(rule.pending)) if rule.pending else [],
        "its deadline": list(_describe_native(rule.native)) if rule.native else [],
        "stopped": list(_describe_stop(rule.stop)) if rule.stop else [f"never, only deleted: {rule.cannot_stop}"],
        "suspended at its deadline": list(_describe_stop(rule.suspend)) if rule.suspend else [],
        "not stopped": [f"if {describe_test(exception.when)}: {exception.why}"] if exception else [],
        "waits for its end": [describe_waiter(one) for one in rule.waiters],
    }


def _describe_pending(pending: PendingRule) -> Iterator[str]:
    yield f"while {describe_test(pending.when)}"
    yield f"since {', else '.join(describe_time(source) for source in pending.since)}"
    if pending.suspended is not None:
        yield f"its pending deadline does not run while {describe_test(pending.suspended)}"


def describe_waiter(one: Waiter) -> str:
    """`its CronJob: goes on (it sees the condition Failed)`."""
    return f"{one.name}: {'goes on' if one.goes_on else 'does not go on'} ({one.why})"


def _describe_native(native: NativeDeadline) -> Iterator[str]:
    yield from (_describe_field(field) for field in native.fields)
    yield f"0 means {_ZERO[native.zero]}; a negative value {_NEGATIVE_DEADLINE[native.negative]}"
    if native.defaulted:
        yield f"set by default and enforced by {native.honoured_by}; the earlier deadline stops the object"
    else:
        yield f"enforced by {native.honoured_by}; while it is set, ttl-after-finished stops nothing"


def _describe_stop(stop: StopRule) -> Iterator[str]:
    yield f"by the merge patch {json.dumps(stop.patch)}"
    if stop.ends is None:
        yield "its controller then finishes it" if stop.finishes else "it stays unfinished"
    else:
        yield f"then counts as failed, if {describe_test(stop.ends)}"
        yield f"end time: {', else '.join(describe_time(source) for source in stop.end_times)}"


def summarize_ttl(rule: KindRule) -> str:
    """Name the kind's own TTL field, for a table."""
    if rule.ttl is None:
        return "-"
    return rule.ttl.fields[0].path + (", ..." if len(rule.ttl.fields) > 1 else "")


def _describe_inherited(inherited: InheritedTtl) -> Iterator[str]:
    kinds = " or ".join(one.kind for one in inherited.kinds)
    yield from (f"else {_describe_field(field)}, of the {kinds} in {inherited.ref}" for field in inherited.fields)


def _describe_field(field: TtlField) -> str:
    when = f", if {describe_test(field.when)}" if field.when else ""
    return f"{field.path}, {_UNITS[field.unit]}{when}"


def _subject_of(test: Predicate) -> str:
    """Return the subject of a test; of several, the first."""
    parts = test.all or test.any or test.none
    if parts:
        return _subject_of(parts[0])
    if test.condition is not None:
        return f"condition {test.condition}"
    return test.field or test.label or test.annotation or "a CEL expression"
