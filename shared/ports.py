"""What the use cases need from the world; the adapters provide it, the tests' fakes too."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

from shared.core.decide import Reason
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef
from shared.messages import Message, ObjectDeleted, Timer

EventLevel = Literal["Normal", "Warning"]
"""The type of a Kubernetes Event: all went as it should, or somebody should look."""

WriteEvent = Callable[[str, str, EventLevel], Awaitable[None]]
"""Writes a Kubernetes Event about the installation: reason, message, level."""

Propagation = Literal["Background", "Foreground", "Orphan"]
"""What a DELETE does to the dependents of an object: `propagationPolicy` of the Kubernetes API."""

PASSED_OVER = "an object cannot be read and is kept"
"""The problem that reports each object of `Page.unreadable`, with `object`, `uid` and `error`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An object as the API server gave it.

    Attributes:
        obj: The object.
        read_at: An instant by the API server's own clock that the read is not before: never ahead of that clock.
        ahead: By how much that clock is ahead of `read_at`, where it is not believed; see `Reason.SERVER_CLOCK_AHEAD`.
    """

    obj: dict[str, Any]
    read_at: datetime
    ahead: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that is beyond the limits of `shared.core.jsontext`: it is kept.

    Attributes:
        ref: Its identity, as far as it can be told.
        problem: What was expected.
    """

    ref: ObjectRef
    problem: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a LIST.

    Attributes:
        items: The objects, or only apiVersion, kind and metadata of each where metadata was asked for.
        read_at: As in Snapshot.
        continue_token: Asks for the next page; empty after the last.
        resource_version: The cluster's state that all pages of this LIST show.
        unreadable: The objects of this page that are not among the items.
        is_large: Whether a process should hold one such page only.
        ahead: As in Snapshot.
    """

    items: list[dict[str, Any]]
    read_at: datetime
    continue_token: str
    resource_version: str
    unreadable: Sequence[Unreadable] = ()
    is_large: bool = False
    ahead: timedelta = timedelta(0)


class Cluster(Protocol):
    """The API server.

    Every method raises TryLaterError (429, 5xx, no answer), ForbiddenError (403) or PermanentError (other 4xx).
    """

    async def served(self, rules: Sequence[KindRule]) -> tuple[KindRule, ...]:
        """Those of the rules whose kinds the API server serves, with the plural, scope and version that it serves.

        Of several rules for one kind it is the one that knows the version which the API server prefers. Where the API
        server does not tell of a kind now, or not to us, its rules stay as they are. What it told counts for a while;
        the other methods follow a kind that has gone to another version meanwhile.

        Raises:
            TryLaterError: It tells of none of them now.
        """
        ...

    async def is_aggregated(self, rule: KindRule) -> bool:
        """Whether an aggregated API server serves the kind's group; what was read counts for a while.

        Raises:
            PermanentError: That cannot be told, as without the right to list APIServices.
        """
        ...

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        """Read an object afresh, by name; None where there is none (404)."""
        ...

    def get_cached(self, ref: ObjectRef) -> Snapshot | None:
        """What a watch or a LIST brought lately of this uid, if it is remembered; it may be outdated.

        Good only to delete by, with both preconditions, which prove that it is not.
        """
        ...

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        """DELETE exactly the object that was read: its uid and its resourceVersion are the preconditions.

        The request leaves this process soon or never, because a person may stop the deletions meanwhile.

        Args:
            rule: The object's kind.
            obj: The object.
            propagation: What happens to its dependents; None for the propagation of the kind rule.

        Returns:
            True once the API server accepted; False if no object has this name any more (404).

        Raises:
            ConflictError: The uid or the resourceVersion has changed (409).
        """
        ...

    async def list_page(
        self,
        rule: KindRule,
        *,
        namespace: str = "",
        continue_token: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> Page:
        """One page of a kind, at most 500 objects.

        Args:
            rule: The kind.
            namespace: Only this one; empty for all.
            continue_token: The page after the one that gave it; where it is too old (410), the same place in the
                cluster's present state.
            resource_version: Without a token: exactly the state that another LIST showed.
            metadata_only: Only apiVersion, kind and metadata of each object.
        """
        ...

    async def record_event(self, ref: ObjectRef, reason: str, message: str, *, level: EventLevel = "Warning") -> None:
        """Write a Kubernetes Event about the object; the same one again is not written twice."""
        ...


class Clock(Protocol):
    """This process's wall clock."""

    def now(self) -> datetime:
        """The current instant, aware."""
        ...


class Timers(Protocol):
    """The delayed CloudEvents."""

    async def set(self, timers: Sequence[Timer]) -> None:
        """Set the timers, each in place of the pending one of its uid and purpose; returns once they are durable.

        Raises:
            TryLaterError: They could not be stored now; none of them may be relied on.
        """
        ...


@runtime_checkable
class CountedTimers(Protocol):
    """An engine that can say what it holds."""

    async def pending(self) -> int:
        """How many timers there are."""
        ...

    async def next_due(self) -> datetime | None:
        """When the next one fires; None where there is none."""
        ...


class State(Protocol):
    """What the processes of an installation share: a few named texts."""

    async def read(self) -> Mapping[str, str]:
        """All of them; none where nothing was ever written.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: They may not be read.
        """
        ...

    async def write(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        """Put what `change` makes of the present texts in their place; it may be asked more than once.

        Returns:
            What is there now.

        Raises:
            TryLaterError: The API server is busy or away.
            ConflictError: Others write all the time.
            PermanentError: They may not be written.
        """
        ...


class Publisher(Protocol):
    """The way into the Broker."""

    async def publish(self, message: Message) -> None:
        """Hand a message to the Broker; returns once it was accepted.

        Raises:
            TryLaterError: It was not.
        """
        ...


class Verdict(StrEnum):
    """What was done about an object; with the Reason it makes one log line and one metric."""

    DELETED = "deleted"
    WOULD_DELETE = "would-delete"
    ALREADY_GONE = "already-gone"
    TIMER_SET = "timer-set"
    KEPT = "kept"
    FAILED = "failed"


class Telemetry(Protocol):
    """Logs and metrics."""

    def record(  # noqa: PLR0913 - what a log line tells
        self,
        verdict: Verdict,
        ref: ObjectRef,
        reason: Reason | str = "",
        *,
        detail: str = "",
        by: str = "",
        due_at: datetime | None = None,
    ) -> None:
        """One object was dealt with by the named function; `due_at` is when a timer that it set fires."""
        ...

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False, finalizers: Sequence[str] = ()) -> None:
        """A DELETE was accepted.

        Args:
            deleted: The object.
            by: The function that deleted it.
            missed: A sweep found the object, and the events should have.
            finalizers: Those that the object still had: it exists until they are removed.
        """
        ...

    def problem(self, message: str, **fields: object) -> None:
        """Something an operator should know that is about no single object; `message` is one of few, `fields` tell."""
        ...

    def dead_letter(self, event_type: str, status: int | str, **fields: object) -> None:
        """An event came to nothing: nobody would take it, and `status` was the last answer's."""
        ...

    def swept(self, rule: KindRule) -> None:
        """A sweep has seen the last page of a kind."""
        ...

    def sweep_ended(self, sweep_id: str, counts: Mapping[str, int], *, whole: bool) -> None:
        """A sweep has seen the last page of its last kind.

        Args:
            sweep_id: Of the sweep.
            counts: How many objects were `looked_at`, and of those `deleted`, `would_delete`, `timers_set`, `kept`
                and `failed`.
            whole: The sweep began with all kinds, and not with one.
        """
        ...

    def put_off(self, ref: ObjectRef, seconds: float) -> None:
        """The budget was used up: the object has a place in the line, so far ahead."""
        ...

    def breaker(self, *, is_open: bool) -> None:
        """Whether the breaker is open, as far as this process knows; told at every look."""
        ...

    def stopped(self, *, is_stopped: bool) -> None:
        """Whether a person stopped the deletions, as far as this process knows; reported at every look."""
        ...

    def recreate_loop(self, ref: ObjectRef) -> None:
        """The object was back once too often: its name is left alone from now on."""
        ...
