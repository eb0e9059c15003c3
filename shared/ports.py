"""What the use cases need from the world; the adapters provide it, the tests' fakes too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

from shared.core.decide import Reason
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef
from shared.messages import Message, ObjectDeleted, Timer

EventLevel = Literal["Normal", "Warning"]
"""The type of a Kubernetes Event: `Normal` for information, `Warning` for what a person should look at."""

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

    async def delete(self, rule: KindRule, obj: dict[str, Any]) -> bool:
        """DELETE exactly the object that was read: its uid and its resourceVersion are the preconditions.

        It leaves this process soon, or never: a person may stop the deletions meanwhile.

        Returns:
            True once the API server accepted; False where there is no object of this name any more (404).

        Raises:
            ConflictError: It is another object, or another version of it, than was read (409).
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
    """The API server accepted the DELETE."""
    WOULD_DELETE = "would-delete"
    """The object is due, and the process is a dry run."""
    ALREADY_GONE = "already-gone"
    """The object does not exist, or another client deleted it first."""
    TIMER_SET = "timer-set"
    """The object has a timer."""
    KEPT = "kept"
    """The object is kept."""
    FAILED = "failed"
    """The API server refused for good. The reason is the name of the error class."""


class HandlingReason(StrEnum):
    """Why a function keeps an object or sets a timer, if neither `Reason` nor a safeguard says why.

    The text of each member is its meaning, and what an operator can do: docs/reference/reasons.md is made from it.
    """

    KIND_NOT_ENABLED = "kind-not-enabled"
    """The kind is not in `TTL_KINDS`, or it has no kind rule.

    Add the kind to `TTL_KINDS`.
    """
    NAMESPACE_NOT_ENABLED = "namespace-not-enabled"
    """The process is limited to another namespace.

    Run it without `--namespace`, or start another process for this namespace.
    """
    KIND_NOT_SERVED = "kind-not-served"
    """The API server does not serve the kind.

    If you removed its CRD by mistake, install the CRD again.
    """
    TRY_LATER = "try-later"
    """The API server is busy or cannot be reached, or the object changed in each attempt. A timer is set for a retry.

    Nothing. If it lasts, `kubectl ttl doctor` checks the connection; the log line names the error.
    """
    JITTER = "jitter"
    """A sweep found the object overdue, and the policy rule has a `jitter`. The object is deleted within that time.

    Nothing.
    """
    LEFT_TO_SWEEP = "left-to-sweep"
    """The object is due later than two sweep intervals, or 10 minutes, from now. A later sweep sets its timer.

    Nothing.
    """


class EventReason(StrEnum):
    """The reasons of the Kubernetes Events that this project writes; docs/reference/events.md is made from them.

    The text of each member is what the Event is about, and what it means.
    """

    INVALID_TTL = "InvalidTtl"
    """The object.

    A TTL annotation or the TTL field of the kind has a malformed value. The object is kept.
    """
    INVALID_POLICY = "InvalidPolicy"
    """The object, or its Namespace.

    A policy rule cannot be evaluated for the object, or an annotation of the Namespace has a malformed value. The
    object, or everything in the Namespace, is kept.
    """
    OVERRIDDEN_TTL = "OverriddenTtl"
    """The object.

    The controller of the kind acts on the kind's own TTL field, and deletes the object before its TTL is over.
    """
    SERVER_CLOCK_AHEAD = "ServerClockAhead"
    """The object.

    The API server's clock is more than 60 s ahead of this process. The object is kept until it is due by both clocks.
    """
    DELETION_REFUSED = "DeletionRefused"
    """The object.

    The API server refused to read or delete the object for good, for example with a 403. The message is its answer.
    """
    RECREATE_LOOP = "RecreateLoop"
    """The object.

    A controller re-created the object after each deletion. The message names the controller, and the end of the pause.
    """
    BREAKER_OPEN = "BreakerOpen"
    """The installation.

    The breaker tripped: nothing is deleted until a person runs `kubectl ttl release --breaker`.
    """
    BREAKER_RELEASED = "BreakerReleased"
    """The installation.

    A person released the breaker: due objects are deleted again.
    """
    STOPPED = "Stopped"
    """The installation.

    A person stopped all deletions with `kubectl ttl stop`. The message contains the reason.
    """
    STARTED = "Started"
    """The installation.

    A person started the deletions again with `kubectl ttl start`.
    """
    SWEPT = "Swept"
    """The installation.

    A sweep of all kinds listed the last page of the last kind.
    """
    SWEPT_IN_PART = "SweptInPart"
    """The installation.

    A sweep of all kinds ended, and the API server did not let it list the kinds in the message.
    """
    DEAD_LETTER = "DeadLetter"
    """The installation.

    A function did not accept an event, and the Broker sent it to the dead letter sink. The message is the answer.
    """


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
