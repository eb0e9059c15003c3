"""The API server, as the use cases see it.

`UsageCluster` reads what refers to Secrets and ConfigMaps: the kinds that may have references, and metadata only.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, Protocol

from shared.core.kinds.rule import KindRule
from shared.core.references.reference import TargetKind
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


@dataclass(frozen=True, slots=True)
class ListableKind:
    """A kind that the API server serves, and whose objects can be listed.

    Attributes:
        api_versions: The apiVersions in which it is served, the preferred one first.
        plural: Its name in paths.
        kind: Its kind.
        is_namespaced: Whether its objects are in namespaces.
    """

    api_versions: tuple[str, ...]
    plural: str
    kind: str
    is_namespaced: bool

    @property
    def api_version(self) -> str:
        """The apiVersion in which it is listed."""
        return self.api_versions[0]

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The unique name of the kind: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def target(self) -> TargetKind | None:
        """Secret or ConfigMap of the core group, of which only metadata is read; None for any other kind."""
        return _TARGETS.get(self.plural) if not self.group else None

    def listed_in(self, version: str) -> "ListableKind":
        """The kind, listed in one of its versions."""
        return replace(self, api_versions=(version, *(one for one in self.api_versions if one != version)))


_TARGETS = {"secrets": TargetKind.SECRET, "configmaps": TargetKind.CONFIG_MAP}


@dataclass(frozen=True, slots=True)
class ListableKinds:
    """All kinds that the API server serves and that can be listed.

    Attributes:
        kinds: Each kind once.
        read_at: The API server's time of the answer, never ahead of its clock.
        problem: Why there may be other kinds; empty if these are all.
        unlistable: The kinds whose objects can be read one by one, and not listed.
    """

    kinds: tuple[ListableKind, ...]
    read_at: datetime
    problem: str = ""
    unlistable: tuple[ListableKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """A Secret or a ConfigMap, without its data.

    Attributes:
        obj: Its apiVersion, kind and metadata, and the `type` of a Secret. Annotations in which a client such as
            `kubectl apply` repeats the data are left out.
        read_at: The API server's time of the read, never ahead of its clock.
        keys: The number of keys in its data; None if it is unknown.
        ahead: See `shared.ports.Snapshot`.
    """

    obj: dict[str, Any]
    read_at: datetime
    keys: int | None = None
    ahead: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class TargetPage:
    """One page of a LIST of Secrets or ConfigMaps.

    Attributes:
        targets: The objects.
        read_at: The API server's time of the answer.
        continue_token: Requests the next page; empty after the last.
        resource_version: The state of the cluster that all pages of this LIST show.
        unreadable: The objects of this page that are not among the targets.
    """

    targets: Sequence[Target]
    read_at: datetime
    continue_token: str
    resource_version: str
    unreadable: Sequence[Unreadable] = ()


class UsageCluster(Protocol):
    """The API server, as far as references need it.

    Every method raises TryLaterError (429, 5xx, no answer), ForbiddenError (403) or PermanentError (other 4xx).
    """

    async def list_kinds(self) -> ListableKinds:
        """Discover all kinds that can be listed; nothing is cached."""
        ...

    async def list_objects(self, kind: ListableKind, *, namespace: str = "", continue_token: str = "") -> Page:
        """List one page of any kind but Secrets and ConfigMaps, at most 500 whole objects.

        Args:
            kind: The kind; it is listed at its path, also if discovery has changed since.
            namespace: Only this namespace; empty for all.
            continue_token: From the page before. If it is too old (410), the LIST continues in the present state: its
                pages then have different resource versions.

        Raises:
            PermanentError: The kind is Secret or ConfigMap: their data is never read here.
        """
        ...

    async def list_targets(self, kind: TargetKind, *, namespace: str = "", continue_token: str = "") -> TargetPage:
        """List one page of Secrets or ConfigMaps, without their data; the arguments are those of `list_objects`."""
        ...

    async def get_with_data(self, kind: TargetKind, namespace: str, name: str) -> Snapshot | None:
        """Read one whole Secret or ConfigMap; None if there is none (404).

        Only for an object that is due, and that a policy rule has archived before it is deleted.
        """
        ...

    async def get_target(self, kind: TargetKind, namespace: str, name: str) -> Target | None:
        """Read one Secret or ConfigMap, without its data; None if there is none (404)."""
        ...
