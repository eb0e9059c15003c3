"""Read instants from an object by the sources that a kind rule names: its finish, its start, its last resume.

An instant may be too late, but never too early. The first source that has an instant counts, and of several instants
the latest. An instant before the object's creation or start counts as absent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from shared.core.kinds.predicates import Cel, conditions_of, values_at
from shared.core.kinds.times import CelTime, ConditionTime, FieldTime, FinishSource, LatestTime, TimeSource
from shared.core.values.expressions import ExpressionError
from shared.core.values.objects import get_in, get_text, list_mappings, parse_instant

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
