"""When and how an object finished, read from its status by its kind's rule.

A wrong finish time may only ever be too late, never too early: the latest of the plausible instants where a kind
offers several, and an instant before the object's creation or its start counts as absent.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shared.core.kinds import FinishSource, KindRule, Outcome
from shared.core.objects import get_in, get_text, list_mappings, parse_instant

# Go writes "no time" as the year 1, others as the epoch: nothing that runs on Kubernetes finished then.
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
_CONTAINER_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")

ReadInstant = Callable[[Any], datetime | None]


@dataclass(frozen=True, slots=True)
class Finish:
    """What an object tells of its end.

    Attributes:
        finished: None where the status has a shape that the rule does not know.
        at: The finish time; None where nothing tells it.
        outcome: None while unfinished, and where the kind does not tell.
    """

    finished: bool | None
    at: datetime | None = None
    outcome: Outcome | None = None


def finish_of(obj: Any, rule: KindRule) -> Finish:
    """Whether, when and how the object finished. Total: an unknown shape is an answer, not an error."""
    status = get_in(obj, "status")
    if status is not None and not isinstance(status, dict):
        return Finish(finished=None)
    if rule.finished.field is None:
        return _finish_by_condition(obj, rule)
    return _finish_by_field(obj, rule, rule.finished.field)


def _finish_by_condition(obj: Any, rule: KindRule) -> Finish:
    if not isinstance(get_in(obj, "status.conditions"), list | None):
        return Finish(finished=None)
    for condition in list_mappings(obj, "status.conditions"):
        outcome = rule.finished.conditions.get(get_text(condition, "type"))
        if outcome is not None and condition.get("status") == "True":
            return Finish(True, _finished_at(obj, rule, condition), _told(outcome))
    return Finish(finished=False)


def _finish_by_field(obj: Any, rule: KindRule, field: str) -> Finish:
    value = get_in(obj, field)
    if value is not None and not isinstance(value, str):
        return Finish(finished=None)
    outcome = rule.finished.values.get(value or "")
    if outcome is None:
        return Finish(finished=False)
    return Finish(True, _finished_at(obj, rule, {}), _told(outcome))


def _told(outcome: Outcome) -> Outcome | None:
    return None if outcome is Outcome.UNKNOWN else outcome


def _finished_at(obj: Any, rule: KindRule, condition: Mapping[str, Any]) -> datetime | None:
    """The latest plausible instant of the first source that has one."""
    read = _reader_of(obj)
    for source in rule.finished_at:
        if isinstance(source, FinishSource):
            instants = _SOURCES[source](obj, condition, read)
        else:
            instants = iter([read(get_in(obj, source))])
        known = [at for at in instants if at is not None]
        if known:
            return max(known)
    return None


def _reader_of(obj: Any) -> ReadInstant:
    """How the object's instants are read: one before its creation or its start is absent."""
    begins = (_get_instant(get_in(obj, path)) for path in ("metadata.creationTimestamp", "status.startTime"))
    earliest = max([_EARLIEST, *(at for at in begins if at is not None)])

    def read(value: Any) -> datetime | None:
        at = _get_instant(value)
        return None if at is None or at < earliest else at

    return read


def _finishing_condition(obj: Any, condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    """The condition's own time; where that lies before the creation, the write that brought it.

    A controller whose clock is a little behind the API server's ends a short object before it was created. The API
    server stamps the write itself, later than the finish and never earlier. A condition without a time stays without.
    """
    told = _get_instant(condition.get("lastTransitionTime"))
    at = read(condition.get("lastTransitionTime"))
    yield at
    if at is None and told is not None and told >= _EARLIEST:
        yield from _managed_fields(obj, condition, read)


def _all_containers(obj: Any, _condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    """Every end that is known, if each container is known to have ended, in spec and in status; nothing otherwise.

    Init, sidecar and ephemeral containers count where they tell a time: they can only make it later.
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
    """A Pod that was evicted, lost its node, or never started tells its end in different places: all of them.

    The conditions of a Pod that was never Ready tell only its start; the newest write of its status is after its end.
    """
    yield from _container_ends(obj, read)
    for told in list_mappings(obj, "status.conditions"):
        yield read(told.get("lastTransitionTime"))
    yield from _managed_fields(obj, condition, read)


def _managed_fields(obj: Any, _condition: Mapping[str, Any], read: ReadInstant) -> Iterator[datetime | None]:
    for entry in list_mappings(obj, "metadata.managedFields"):
        if entry.get("subresource") == "status":
            yield read(entry.get("time"))


_SOURCES: dict[FinishSource, Callable[[Any, Mapping[str, Any], ReadInstant], Iterator[datetime | None]]] = {
    FinishSource.FINISHING_CONDITION: _finishing_condition,
    FinishSource.ALL_CONTAINERS: _all_containers,
    FinishSource.CONTAINERS_AND_CONDITIONS: _containers_and_conditions,
    FinishSource.MANAGED_FIELDS: _managed_fields,
}


def _get_instant(value: Any) -> datetime | None:
    try:
        return parse_instant(value)
    except ValueError:
        return None
