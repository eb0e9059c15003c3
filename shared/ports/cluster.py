"""The API server, as the use cases see it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, Protocol

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, ref_of

EventLevel = Literal["Normal", "Warning"]
"""The type of a Kubernetes Event."""

WriteEvent = Callable[[str, str, EventLevel], Awaitable[None]]
"""Writes a Kubernetes Event about the installation: reason, message, level."""

Propagation = Literal["Background", "Foreground", "Orphan"]
"""What a DELETE does to the dependents of an object: `propagationPolicy` of the Kubernetes API."""

PASSED_OVER = "an object cannot be read and is kept"
"""The problem that reports each object of `Page.unreadable`, with `object`, `uid` and `error`."""


@dataclass(frozen=True)
class Snapshot:
    """An object as the API server sent it.

    Attributes:
        obj: The object.
        read_at: The time of the read by the API server's clock, never ahead of that clock.
        ahead: How far the API server's clock is ahead of `read_at`, if it is too far ahead to be believed; see
            `Reason.SERVER_CLOCK_AHEAD`.
    """

    obj: dict[str, Any]
    read_at: datetime
    ahead: timedelta = timedelta(0)

    @cached_property
    def ref(self) -> ObjectRef:
        """The object's identity, read once: each step of a deletion asks for it."""
        return ref_of(self.obj)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that exceeds the limits of `shared.core.values.jsontext`: it is kept.

    Attributes:
        ref: Its identity, as far as it can be read.
        problem: What was expected.
    """

    ref: ObjectRef
    problem: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a LIST.

    Attributes:
        items: The objects; only apiVersion, kind and metadata of each if metadata was requested.
        read_at: As in Snapshot.
        continue_token: Requests the next page; empty after the last.
        resource_version: The state of the cluster that all pages of this LIST show.
        unreadable: The objects of this page that are not among the items.
        is_large: Whether a process should hold only one such page at a time.
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
        """Return the rules whose kinds the API server serves, with the plural, scope and version that it serves.

        If several rules match one kind, the rule that knows the preferred version of the API server is returned. If
        discovery of a kind fails or is forbidden, its rules are returned unchanged. The result of discovery is cached
        for a while; the other methods find a kind that has moved to another version in the meantime.

        Raises:
            TryLaterError: Discovery fails for all of the rules now.
        """
        ...

    async def is_aggregated(self, rule: KindRule) -> bool:
        """Return whether an aggregated API server serves the kind's group; the answer is cached for a while.

        Raises:
            PermanentError: It cannot be found out, for example without the right to list APIServices.
        """
        ...

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        """Read an object from the API server, by name; None if there is none (404)."""
        ...

    async def get_cached(self, ref: ObjectRef, *, due_at: datetime) -> Snapshot | None:
        """Return the object of this uid that a watch or a LIST has read recently; None if it is not cached.

        It may be outdated, so use it only for a DELETE: the preconditions prove that it is current.

        Args:
            ref: The object.
            due_at: When its timer was due; it may be forged. If that is about now, the API server's clock is read
                first. All objects that are due at one instant share that read.
        """
        ...

    async def present(self, obj: dict[str, Any], *, due_at: datetime) -> Snapshot | None:
        """Return an object that is known without a read, at the API server's present; None if that is unknown.

        It may be outdated, so use it only for a DELETE.

        Args:
            obj: The object.
            due_at: When it is due; the API server's clock is read as for `get_cached`.
        """
        ...

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        """DELETE exactly the object that was read: its uid and its resourceVersion are the preconditions.

        The request leaves this process soon or never, because a person may stop the deletions in the meantime.

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

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any], *, manager: str = "") -> Snapshot:
        """Merge a JSON merge patch into an object; its metadata may have uid and resourceVersion as preconditions.

        The request leaves this process soon or never, as a DELETE does.

        Args:
            rule: The object's kind.
            ref: The object.
            patch: The JSON merge patch.
            manager: The field manager in `metadata.managedFields`; empty for the default of the API server.

        Returns:
            The object as it is stored now.

        Raises:
            ConflictError: The uid or the resourceVersion has changed (409), or the object is gone (404).
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
        """List one page of a kind, at most 500 objects.

        Args:
            rule: The kind.
            namespace: Only this namespace; empty for all.
            continue_token: From the page before. If it is too old (410), the LIST continues at the same place in the
                present state of the cluster.
            resource_version: Without a token: exactly the state that another LIST showed.
            metadata_only: Only apiVersion, kind and metadata of each object.
        """
        ...

    def logs(self, pod: ObjectRef, container: str, *, bytes_max: int) -> AsyncGenerator[bytes]:
        """Read the log of a container of a Pod in chunks, from its beginning; of a restart, only the newest log.

        Args:
            pod: The Pod.
            container: The name of the container.
            bytes_max: The log ends after this number of bytes.

        Raises:
            MissingLogError: There is no log: the Pod is gone, or the container has not started.
            UnreachableLogError: The node of the Pod does not answer, or not in time; the log may be read later.
        """
        ...

    async def record_event(self, ref: ObjectRef, reason: str, message: str, *, level: EventLevel = "Warning") -> None:
        """Write a Kubernetes Event about the object; a repetition of the same Event is not written."""
        ...

    async def create_event(self, event: Mapping[str, Any]) -> None:
        """Create a Kubernetes Event of events.k8s.io/v1; if it exists already, nothing is written."""
        ...
