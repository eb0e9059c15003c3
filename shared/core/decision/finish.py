"""Read from an object whether, when and how it finished, and its present run, by the rule of its kind.

An instant may be too late, but never too early. The first source of the kind rule that has an instant counts, and of
several instants the latest. An instant before the creation or the start of the object counts as absent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from shared.core.deadlines.deadline import InvalidMarkError, is_merged, read_mark
from shared.core.kinds.predicates import (
    Cel,
    CelTime,
    ConditionTime,
    FieldTime,
    FinishSource,
    LatestTime,
    TimeSource,
    UnknownShapeError,
    conditions_of,
    holds,
    matching_conditions,
    values_at,
)
from shared.core.kinds.rule import FinishedWhen, KindRule, Outcome
from shared.core.kinds.ttl_and_deadline import Action, DeadlineRule
from shared.core.values.expressions import ExpressionError
from shared.core.values.objects import get_in, get_text, list_mappings, parse_instant


@dataclass(frozen=True, slots=True)
class Finish:
    """The finish of an object: whether, when and how it finished.

    Attributes:
        finished: None if the status has a shape that the rule does not expect.
        at: The finish time; None if it is unknown.
        outcome: None for an unfinished object, and if the kind does not report an outcome.
    """

    finished: bool | None
    at: datetime | None = None
    outcome: Outcome | None = None


_LATEST = datetime(9999, 12, 31, tzinfo=UTC)
_WRITES = [{"subresource": "status", "time": _LATEST}]
_UNKNOWN = Finish(finished=None)
_UNFINISHED = Finish(finished=False)


def finish_of(obj: Any, rule: KindRule) -> Finish:
    """Whether, when and how the object finished. Total: for an unknown shape it returns `finished=None`."""
    status = get_in(obj, "status")
    if status is not None and not isinstance(status, dict):
        return _UNKNOWN
    if rule.finished is None or _is_outdated(obj, rule):
        return _UNFINISHED
    try:
        ended = _end_of(obj, rule.finished)
        if ended is None or (rule.finished.unless is not None and holds(rule.finished.unless, obj)):
            return _stopped(obj, rule)
        outcome, condition = ended
        at = find_instant(rule.finished_at, obj, condition)
        return Finish(True, at, None if outcome is Outcome.UNKNOWN else outcome)
    except UnknownShapeError:
        return _UNKNOWN


def lacks_managed_fields(obj: Mapping[str, Any], rule: KindRule, finish: Finish) -> bool:
    """Return whether `metadata.managedFields`, which the object does not have, could set another finish time.

    kubectl prints objects without that field, unless it has `--show-managed-fields`.

    Args:
        obj: The object.
        rule: The rule of its kind.
        finish: Its finish without the field.
    """
    metadata = get_in(obj, "metadata")
    if not finish.finished or not isinstance(metadata, dict) or metadata.get("managedFields"):
        return False
    return finish_of({**obj, "metadata": {**metadata, "managedFields": _WRITES}}, rule).at != finish.at


def _is_outdated(obj: Any, rule: KindRule) -> bool:
    """Return whether the status describes an older spec: with the new spec, the object may start again."""
    if rule.observed_generation is None:
        return False
    observed, generation = get_in(obj, rule.observed_generation), get_in(obj, "metadata.generation")
    return isinstance(observed, int) and isinstance(generation, int) and observed < generation


EARLY_FINISH = "its status has {}, which is before its creation, and is ignored"
"""The sentence about a finish time that `find_early_finish` returns."""


def find_early_finish(obj: Mapping[str, Any], rule: KindRule, finish: Finish) -> datetime | None:
    """Return the finish time that is ignored because it is before the creation of the object.

    Args:
        obj: The object.
        rule: The rule of its kind.
        finish: Its finish.

    Returns:
        None if no finish time is ignored.
    """
    metadata, status = get_in(obj, "metadata"), get_in(obj, "status")
    if not finish.finished or not isinstance(metadata, dict) or not isinstance(status, dict):
        return None
    try:
        created_at = parse_instant(metadata.get("creationTimestamp"))
    except ValueError:
        return None
    without_limits = {"metadata": {**metadata, "creationTimestamp": None}, "status": {**status, "startTime": None}}
    early = finish_of({**obj, **without_limits}, rule).at
    return early if early is not None and early < created_at else None


def _end_of(obj: Any, when: FinishedWhen) -> tuple[Outcome, Mapping[str, Any]] | None:
    """The outcome, and the condition that marks the object as finished, if one does; None for an unfinished object."""
    if when.conditions:
        for condition in conditions_of(obj):
            outcome = when.conditions.get(get_text(condition, "type"))
            if outcome is not None and condition.get("status") == "True":
                return outcome, condition
        return None
    if when.field is not None:
        value = get_in(obj, when.field)
        if value is not None and not isinstance(value, str):
            raise UnknownShapeError(f"{when.field}: expected a text")
        outcome = when.values.get(value or "")
        return None if outcome is None else (outcome, {})
    for case in when.cases:
        if holds(case.when, obj):
            matching = matching_conditions(case.when, obj) if case.when.condition else iter(())
            return case.outcome, next(matching, {})
    return None


def _stopped(obj: Any, rule: KindRule) -> Finish:
    """The finish of an object that `enforce` suspended, after which its kind reports no end; else unfinished.

    The stop must still be in place, and nothing else in the spec may have changed: an object that a person resumed, or
    suspended later, counts as unfinished. The finish time is the latest of the stop and of the instant at which it was
    complete; if that is unknown, so is the finish time.
    """
    stop = rule.deadline.suspending if rule.deadline else None
    if stop is None or stop.ends is None:
        return _UNFINISHED
    try:
        mark = read_mark(obj)
    except InvalidMarkError:
        return _UNFINISHED
    if mark is None or not mark.is_untouched(obj) or not is_merged(obj, stop.patch) or not holds(stop.ends, obj):
        return _UNFINISHED
    ended_at = find_instant(stop.end_times, obj, {})
    return Finish(True, max(mark.at, ended_at) if ended_at else None, Outcome.FAILED)


# Go writes "no time" as the year 1, others as the epoch: nothing that runs on Kubernetes finished then.
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_UNITS = {"epoch-seconds": timedelta(seconds=1), "epoch-milliseconds": timedelta(milliseconds=1)}
_CONTAINER_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")

ReadInstant = Callable[[Any], datetime | None]


def find_instant(sources: Iterable[TimeSource], obj: Any, condition: Mapping[str, Any]) -> datetime | None:
    """The latest plausible instant of the first source that has one; None if no source has one.

    Args:
        sources: The sources, in order.
        obj: The object.
        condition: The condition that marks the object as finished; empty if no condition does.

    Raises:
        UnknownShapeError: A field has a shape that a source does not expect.
    """
    read = _reader_of(obj)
    for source in sources:
        known = [at for at in _instants(source, obj, condition, read=read) if at is not None]
        if known:
            return max(known)
    return None


def _reader_of(obj: Any) -> ReadInstant:
    """A reader of the object's instants: an instant before the object's creation or start counts as absent."""
    earliest = _EARLIEST
    for path in ("metadata.creationTimestamp", "status.startTime"):
        at = _get_instant(get_in(obj, path))
        if at is not None and at > earliest:
            earliest = at

    def read(value: Any) -> datetime | None:
        at = value if isinstance(value, datetime) else _get_instant(value)
        return None if at is None or at < earliest else at

    return read


def _instants(
    source: TimeSource, obj: Any, condition: Mapping[str, Any], *, read: ReadInstant
) -> Iterator[datetime | None]:
    """The instants of one source; None stands for an absent one."""
    match source:
        case FinishSource():
            yield from _SOURCES[source](obj, condition, read)
        case str():
            yield from map(read, values_at(obj, source))
        case FieldTime(field=field, unit=unit):
            yield from (read(_since_epoch(value, unit)) for value in values_at(obj, field))
        case ConditionTime():
            yield from map(read, _condition_times(source, obj))
        case LatestTime(latest=sources):
            yield from chain.from_iterable(_instants(one, obj, condition, read=read) for one in sources)
        case CelTime(cel=Cel() as cel):
            yield read(_cel_time(cel, obj))


def _condition_times(source: ConditionTime, obj: Any) -> Iterator[Any]:
    for condition in conditions_of(obj):
        if get_text(condition, "type") == source.condition and condition.get("status") == source.status:
            yield condition.get(source.time)


def _cel_time(cel: Cel, obj: Any) -> datetime | None:
    try:
        at: datetime = cel.expression.evaluate(object=obj)
        return at.astimezone(UTC)
    except (ExpressionError, OverflowError):
        return None


def _since_epoch(value: Any, unit: str) -> Any:
    """The instant that a number of seconds or milliseconds means; a text of digits counts as a number."""
    if unit not in _EPOCH_UNITS:
        return value
    digits = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16):  # noqa: PLR2004 - far beyond the year 9999
        return None
    try:
        return _EPOCH + int(digits) * _EPOCH_UNITS[unit]
    except OverflowError:
        return None


def _finishing_condition(obj: Any, condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    """The condition's lastTransitionTime; if that is before the creation, the newest write of the status.

    If a controller's clock is behind the API server's, a short-lived object seems to finish before its creation. The
    API server sets the time of the write itself, so that time is never before the finish. A condition without a time
    has no instant.
    """
    at = read(condition.get("lastTransitionTime"))
    yield at
    if at is None:
        transition = _get_instant(condition.get("lastTransitionTime"))
        if transition is not None and transition >= _EARLIEST:
            yield from _managed_fields(obj, condition, read)


def _finishing_update(_obj: Any, condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    yield read(condition.get("lastUpdateTime"))


def _all_conditions(obj: Any, _condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    for condition in list_mappings(obj, "status.conditions"):
        yield read(condition.get("lastTransitionTime"))


def _all_containers(obj: Any, _condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    """The known ends of all containers, if each container in spec and status is known to have ended; else no instant.

    Init, sidecar and ephemeral containers count if they have a finish time: they can only make the result later.
    """
    ends = [
        (get_text(status, "name"), read(get_in(status, "state.terminated.finishedAt")))
        for status in list_mappings(obj, "status.containerStatuses")
    ]
    wanted = {get_text(container, "name") for container in list_mappings(obj, "spec.containers")}
    if ends and wanted <= {name for name, _ in ends} and all(at is not None for _, at in ends):
        yield from _container_ends(obj, read)


def _container_ends(obj: Any, read: ReadInstant) -> Iterator[datetime | None]:
    for statuses in _CONTAINER_STATUSES:
        for status in list_mappings(obj, f"status.{statuses}"):
            yield read(get_in(status, "state.terminated.finishedAt"))


def _containers_and_conditions(obj: Any, condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    """The ends of all containers, the times of all conditions and the times of all status writes.

    A Pod that was evicted, lost its node or never started records its end in different places, so all of them count.
    The conditions of a Pod that was never Ready show only its start; the newest write of its status is after its end.
    """
    yield from _container_ends(obj, read)
    yield from _all_conditions(obj, condition, read)
    yield from _managed_fields(obj, condition, read)


def _managed_fields(obj: Any, _condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    for entry in list_mappings(obj, "metadata.managedFields"):
        if entry.get("subresource") == "status":
            yield read(entry.get("time"))


def _all_managed_fields(obj: Any, _condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    for entry in list_mappings(obj, "metadata.managedFields"):
        yield read(entry.get("time"))


_SOURCES: dict[FinishSource, Callable[[Any, Mapping[str, Any], ReadInstant], Iterator[datetime | None]]] = {
    FinishSource.FINISHING_CONDITION: _finishing_condition,
    FinishSource.FINISHING_CONDITION_UPDATE: _finishing_update,
    FinishSource.ALL_CONDITIONS: _all_conditions,
    FinishSource.ALL_CONTAINERS: _all_containers,
    FinishSource.CONTAINERS_AND_CONDITIONS: _containers_and_conditions,
    FinishSource.MANAGED_FIELDS: _managed_fields,
    FinishSource.ALL_MANAGED_FIELDS: _all_managed_fields,
}


def _get_instant(value: Any) -> datetime | None:
    if not value:
        return None
    try:
        return parse_instant(value)
    except ValueError:
        return None


_NO_CONDITION: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Run:
    """The present run of an unfinished object, from its start or its last resume.

    Attributes:
        started_at: When the run started; None if that is unknown. It may be too late, but never too early.
        is_suspended: Whether its clock does not run.
    """

    started_at: datetime | None
    is_suspended: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wait of an unfinished object for its first start.

    Attributes:
        since: Since when it waits; None if that is unknown. It may be too late, but never too early.
        is_on_purpose: Whether a client has it wait, such as a queue; its clock does not run.
    """

    since: datetime | None
    is_on_purpose: bool


def waiting_of(obj: Any, rule: DeadlineRule) -> Waiting | None:
    """The wait of an unfinished object; None if it has started, or if its kind does not show that.

    Raises:
        UnknownShapeError: The object has a shape that the rule does not expect.
    """
    pending = rule.pending
    if pending is None or not holds(pending.when, obj):
        return None
    is_on_purpose = pending.suspended is not None and holds(pending.suspended, obj)
    return Waiting(find_instant(pending.since, obj, _NO_CONDITION), is_on_purpose)


def run_of(obj: Any, rule: DeadlineRule) -> Run | None:
    """The present run of an unfinished object; None if the object has a shape that the rule does not expect."""
    try:
        is_suspended = rule.suspended is not None and holds(rule.suspended, obj)
        return Run(find_instant(rule.started_at, obj, _NO_CONDITION), is_suspended)
    except UnknownShapeError:
        return None


def find_clock_start(obj: Any, rule: DeadlineRule) -> datetime | None:
    """When the clock of a deadline of an unfinished object started: its start, or else its wait; None if unknown."""
    run = run_of(obj, rule)
    if run is not None and run.started_at is not None:
        return run.started_at
    try:
        waiting = waiting_of(obj, rule) if run is not None else None
    except UnknownShapeError:
        return None
    return waiting.since if waiting is not None else None


def find_stop_problem(obj: Any, rule: DeadlineRule, action: Action) -> str:
    """Say why an object cannot be stopped or suspended; an empty text if it can.

    Args:
        obj: The object.
        rule: The rule about the deadlines of its kind.
        action: What is done at the deadline; not `delete`.
    """
    stop = rule.find_stop(action)
    if stop is None:
        return rule.cannot_stop or "the kind has no patch that suspends an object; expected on-deadline: stop or delete"
    try:
        return rule.exception.why if rule.exception is not None and holds(rule.exception.when, obj) else ""
    except UnknownShapeError as error:
        return f"it is unknown whether the stop would have an effect: {error}"
