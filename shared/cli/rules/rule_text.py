"""What a kind's rule says, in words."""

from collections.abc import Iterator

from shared.core.kinds.predicates import Predicate
from shared.core.kinds.rule import (
    CelTime,
    Cleaner,
    ConditionTime,
    FieldTime,
    FinishSource,
    KindRule,
    LatestTime,
    NativeTtl,
    Outcome,
    TimeSource,
    TtlField,
)
from shared.core.kinds.wording import any_of, describe_finished, describe_test

_SOURCES = {
    FinishSource.FINISHING_CONDITION: "lastTransitionTime of the condition that finished it",
    FinishSource.FINISHING_CONDITION_UPDATE: "lastUpdateTime of the condition that finished it",
    FinishSource.ALL_CONDITIONS: "the newest lastTransitionTime of its conditions",
    FinishSource.ALL_CONTAINERS: "the last container's end, if each is known to have ended",
    FinishSource.CONTAINERS_AND_CONDITIONS: "the latest of what containers, conditions and status writes tell",
    FinishSource.MANAGED_FIELDS: "the newest write of its status (managedFields)",
    FinishSource.ALL_MANAGED_FIELDS: "the newest write of anything (managedFields)",
}
_UNITS = {"seconds": "seconds", "milliseconds": "milliseconds", "duration": "a duration such as 72h0m0s"}
_ZERO = {"delete": "at once", "never": "never"}
_NEGATIVE = {"invalid": "cannot be read, and keeps it", "never": "never", "delete": "at once"}
_DEPENDENTS = {"held": "", "free": "may go while it goes on", "kept": "stays while it exists: it would make another"}
_OPT_IN = "so nothing deletes it but its own annotation or TTL field, or a policy rule that names its kind"


def describe_rule(rule: KindRule) -> Iterator[tuple[str, list[str]]]:
    """All that a rule says: what about, and in which words."""
    told = {
        "versions": [", ".join(rule.api_versions)],
        "also called": [", ".join(rule.short_names)],
        "finished": list(_describe_end(rule)),
        "finish time": [_in_turn(number, describe_time(source)) for number, source in enumerate(rule.finished_at)],
        "its own TTL": list(describe_ttl(rule.ttl)) if rule.ttl else [],
        "opt-in": [f"{rule.opt_in}; {_OPT_IN}" if rule.opt_in else ""],
        "its owner": ["keeps it while it has not finished itself" if rule.while_owner_unfinished == "keep" else ""],
        "what it makes": [_DEPENDENTS[rule.dependents]],
        "deleted": ["" if rule.never_finishes else f"with propagation {rule.propagation}"],
        "others": [_describe_cleaner(one) for one in rule.cleaners],
        "finalizers": [f"{name}: {does}" for name, does in rule.finalizers.items()],
        "note": [rule.notes or ""],
    }
    yield from ((about, words) for about, words in told.items() if any(words))


def _describe_end(rule: KindRule) -> Iterator[str]:
    if rule.finished is None:
        yield f"never: {rule.never_finishes}"
        return
    yield from (_as_ended(test, outcome) for test, outcome in describe_finished(rule.finished))
    if rule.finished.unless:
        yield f"not yet, while {describe_test(rule.finished.unless)}"
    if rule.observed_generation:
        yield f"not yet, while {rule.observed_generation} is behind metadata.generation"


def _as_ended(test: str, outcome: Outcome) -> str:
    return f"{'with an outcome that is not told' if outcome is Outcome.UNKNOWN else outcome}, if {test}"


def _in_turn(number: int, source: str) -> str:
    return f"else {source}" if number else source


def _describe_cleaner(one: Cleaner) -> str:
    when = f" (where {describe_test(one.when)})" if one.when else ""
    return f"{one.name}{when}: {one.does}"


def summarize_finished(rule: KindRule) -> str:
    """The same in a few words, for a table."""
    when = rule.finished
    if when is None:
        return "never"
    if when.conditions:
        return f"condition {any_of(list(when.conditions))}"
    if when.field is not None:
        return f"{when.field}: {', '.join(when.values)}"
    return ", ".join(dict.fromkeys(_subject_of(case.when) for case in when.cases))


def describe_time(source: TimeSource) -> str:
    """Where a finish time is read."""
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
    """The kind's own TTL: its fields, what odd values mean, and who acts on it."""
    yield from (_describe_field(field) for field in ttl.fields)
    yield f"0 means {_ZERO[ttl.zero]}; less means: {_NEGATIVE[ttl.negative]}"
    if ttl.honoured_by is None:
        yield "nobody but us acts on it"
    elif ttl.native == "act":
        yield f"{ttl.honoured_by} acts on it, and so do we: whoever comes first"
    else:
        yield f"{ttl.honoured_by} acts on it, and does more than delete: it is left to it"


def summarize_ttl(rule: KindRule) -> str:
    """The same in a few words, for a table."""
    if rule.ttl is None:
        return "-"
    return rule.ttl.fields[0].path + (", ..." if len(rule.ttl.fields) > 1 else "")


def _describe_field(field: TtlField) -> str:
    when = f", where {describe_test(field.when)}" if field.when else ""
    return f"{field.path}, {_UNITS[field.unit]}{when}"


def _subject_of(test: Predicate) -> str:
    """What a test looks at: of several, the first."""
    parts = test.all or test.any or test.none
    if parts:
        return _subject_of(parts[0])
    if test.condition is not None:
        return f"condition {test.condition}"
    return test.field or test.label or test.annotation or "a CEL expression"
