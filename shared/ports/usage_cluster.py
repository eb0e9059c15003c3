"""What the API server returns about references: the kinds that may have them, and the metadata of what they name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from shared.core.references.reference import TargetKind
from shared.ports.cluster import Page, Snapshot, Unreadable


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
