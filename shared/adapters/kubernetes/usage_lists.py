"""LISTs of any kind, and of Secrets and ConfigMaps without their data: implements `shared.ports.UsageCluster`.

All kinds that can be listed are found by aggregated discovery, or group by group from an older API server. Aggregated
discovery marks a group as stale if its aggregated API server did not answer. Then kinds may be missing. A kind that can
be read one by one, and not listed, has objects that nothing finds: only aggregated API servers have such.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from shared.adapters.kubernetes.bodies import (
    INCLUDE_METADATA,
    PAGE_BYTES_MAX,
    PAGE_LIMIT,
    TABLE,
    GoneError,
    ListReader,
    PageLimits,
    PathKind,
    as_target,
    read_rows,
    typed,
)
from shared.adapters.kubernetes.discovery import VersionedApiServer, parse_versions
from shared.adapters.kubernetes.requests import Answer, object_path, resource_path
from shared.core.policy.usage import CONFIG_MAPS, SECRETS
from shared.core.references.reference import TargetKind
from shared.core.values.objects import get_text, list_mappings, ref_of
from shared.errors import AbsentKindError, PermanentError, TtlError
from shared.ports import Page, Snapshot, Unreadable
from shared.ports.cluster import ListableKind, ListableKinds, Target, TargetPage

_RULES = {TargetKind.SECRET: SECRETS, TargetKind.CONFIG_MAP: CONFIG_MAPS}

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
AGGREGATED = f"{_AGGREGATED.format(version='v2')},{_AGGREGATED.format(version='v2beta1')},application/json"
"""The media types of aggregated discovery, and that of older servers."""

ReadDocument = Callable[[str], Awaitable[Any]]
"""GETs a path of discovery with these media types."""

_Found = tuple[str, str, str, bool, bool]
"""apiVersion, plural, kind, whether it is namespaced, and whether it can be listed."""


class ListingApiServer(VersionedApiServer):
    """An API server whose kinds, and the objects of each, can be listed.

    Args:
        client: See `ApiServer`.
        options: See `ApiServer`.
    """

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._page_limits = PageLimits()

    async def list_kinds(self) -> ListableKinds:
        """See `shared.ports.cluster.UsageCluster`."""
        core, named = await self._document("/api"), await self._document("/apis")

        async def read(path: str) -> Any:
            return (await self._document(path)).body

        return await discover_listable(core.body, named.body, read, core.read_at)

    async def list_objects(
        self, kind: ListableKind, *, namespace: str = "", continue_token: str = "", limit: int = PAGE_LIMIT
    ) -> Page:
        """See `shared.ports.cluster.UsageCluster`."""
        if kind.target is not None:
            raise PermanentError(f"{kind.name}: expected another kind, since the data of these is never read")
        ask = partial(self._list_objects, kind, namespace, continue_token)
        return await self._page_limits.fit(kind.name, limit, ask)

    async def list_targets(
        self, kind: TargetKind, *, namespace: str = "", continue_token: str = "", limit: int = PAGE_LIMIT
    ) -> TargetPage:
        """See `shared.ports.cluster.UsageCluster`."""
        ask = partial(self._list_targets, kind, namespace, continue_token)
        return await self._page_limits.fit(kind, limit, ask)

    async def get_target(self, kind: TargetKind, namespace: str, name: str) -> Target | None:
        """See `shared.ports.cluster.UsageCluster`."""
        path = f"{object_path(_RULES[kind], namespace, name)}?includeObject=Metadata"
        answer = await self.request("GET", path, accept=TABLE, missing_ok=True)
        if answer is None:
            return None
        return next(iter(read_rows(answer.body, kind, answer.read_at, answer.ahead)), None)

    async def get_with_data(self, kind: TargetKind, namespace: str, name: str) -> Snapshot | None:
        """See `shared.ports.cluster.UsageCluster`."""
        rule = _RULES[kind]
        answer = await self.request("GET", object_path(rule, namespace, name), missing_ok=True)
        return None if answer is None else Snapshot(typed(answer.body, rule), answer.read_at, answer.ahead)

    async def _document(self, path: str) -> Answer:
        answer = await self.request("GET", path, accept=AGGREGATED, missing_ok=True)
        if answer is None:
            raise AbsentKindError(f"this cluster does not serve {path}")
        return answer

    async def _list_objects(self, kind: ListableKind, namespace: str, token: str, limit: int) -> Page:
        reader = ListReader(PAGE_BYTES_MAX, is_single=limit == 1)
        path_of = partial(resource_path, kind, namespace)
        answer = await self._list(path_of, {"limit": str(limit)}, token, accept="application/json", read=reader.read)
        return page_of(answer, kind, reader)

    async def _list_targets(self, kind: TargetKind, namespace: str, token: str, limit: int) -> TargetPage:
        reader = ListReader(PAGE_BYTES_MAX, is_single=limit == 1, items="rows")
        path_of = partial(resource_path, _RULES[kind], namespace)
        query = {"limit": str(limit), **INCLUDE_METADATA}
        answer = await self._list(path_of, query, token, accept=TABLE, read=reader.read)
        left_out = (as_target(one.obj.get("object"), kind) for one in reader.unread)
        return TargetPage(
            targets=read_rows(answer.body, kind, answer.read_at, answer.ahead),
            read_at=answer.read_at,
            continue_token=get_text(answer.body, "metadata.continue"),
            resource_version=get_text(answer.body, "metadata.resourceVersion"),
            unreadable=[Unreadable(ref_of(obj), one.problem) for obj, one in zip(left_out, reader.unread, strict=True)],
        )

    async def _list(
        self, path_of: Callable[[dict[str, str]], str], query: dict[str, str], token: str, **options: Any
    ) -> Answer:
        """Request one page; if its token is too old, the page at the same place in the present state."""
        try:
            path = path_of(query | ({"continue": token} if token else {}))
            answer = await self.request("GET", path, missing_ok=True, **options)
        except GoneError as gone:
            if not gone.continue_token or gone.continue_token == token:
                raise
            return await self._list(path_of, query, gone.continue_token, **options)
        if answer is None:
            raise AbsentKindError(f"this cluster does not serve {path_of({})}")
        return answer


def page_of(answer: Answer, kind: PathKind, reader: ListReader) -> Page:
    """Return the page that a reader has read."""
    return Page(
        items=[typed(item, kind) for item in list_mappings(answer.body, "items")],
        read_at=answer.read_at,
        continue_token=get_text(answer.body, "metadata.continue"),
        resource_version=get_text(answer.body, "metadata.resourceVersion"),
        unreadable=[Unreadable(ref_of(typed(one.obj, kind)), one.problem) for one in reader.unread],
        is_large=reader.is_large,
        ahead=answer.ahead,
    )


async def discover_listable(core: Any, named: Any, read: ReadDocument, read_at: datetime) -> ListableKinds:
    """Find the kinds that can be listed.

    Args:
        core: The document at `/api`.
        named: The document at `/apis`.
        read: Reads the documents of single versions, for a server without aggregated discovery.
        read_at: The API server's time of the first document.
    """
    problems: list[str] = []
    found: list[_Found] = []
    for document, root in ((core, "api"), (named, "apis")):
        if get_text(document, "kind") == "APIGroupDiscoveryList":
            found += _parse_aggregated(document, problems)
        else:
            for version in _list_versions(document):
                found += await _read_version(f"/{root}/{version}", version, read, problems)
    listable = tuple(_merge(one for one in found if one[-1]))
    names = {one.name for one in listable}
    unlistable = tuple(one for one in _merge(one for one in found if not one[-1]) if one.name not in names)
    return ListableKinds(listable, read_at, "; ".join(problems), unlistable)


def _merge(found: Iterable[_Found]) -> Iterator[ListableKind]:
    """Return each kind once, with all versions in which it is served."""
    versions: dict[tuple[str, str], list[_Found]] = {}
    for one in found:
        versions.setdefault((one[0].rpartition("/")[0], one[1]), []).append(one)
    for (_, plural), several in versions.items():
        _, _, kind, is_namespaced, _ = several[0]
        yield ListableKind(tuple(version for version, *_ in several), plural, kind, is_namespaced)


def _parse_aggregated(document: Any, problems: list[str]) -> Iterator[_Found]:
    for group in list_mappings(document, "items"):
        name = get_text(group, "metadata.name")
        for version in list_mappings(group, "versions"):
            api_version = f"{name}/{get_text(version, 'version')}".removeprefix("/")
            if version.get("freshness") == "Stale":
                problems.append(f"discovery of {api_version} is stale: its API server did not answer")
            for one in list_mappings(version, "resources"):
                if _is_readable(one):
                    kind, scope = get_text(one, "responseKind.kind"), get_text(one, "scope")
                    yield api_version, get_text(one, "resource"), kind, scope == "Namespaced", _is_listable(one)


def _list_versions(document: Any) -> list[str]:
    """The apiVersions of an APIVersions or an APIGroupList; of each group the preferred one first.

    Raises:
        PermanentError: The document is neither.
    """
    kind = get_text(document, "kind")
    if kind == "APIVersions":
        return [one for one in document.get("versions", ()) if isinstance(one, str)]
    if kind != "APIGroupList":
        raise PermanentError(f"discovery: expected an APIGroupDiscoveryList or an APIGroupList, got {kind or 'none'}")
    return [version for group in list_mappings(document, "groups") for version in parse_versions(group)]


async def _read_version(path: str, version: str, read: ReadDocument, problems: list[str]) -> list[_Found]:
    try:
        document = await read(path)
    except TtlError as error:  # also if it is absent: the list of versions has just named it
        problems.append(f"discovery of {version} failed: {error}")
        return []
    found = (one for one in list_mappings(document, "resources") if _is_readable(one))
    names = ((one, get_text(one, "name")) for one in found)
    return [
        (version, name, get_text(one, "kind"), one.get("namespaced") is True, _is_listable(one))
        for one, name in names
        if "/" not in name  # a subresource
    ]


def _is_readable(resource: Mapping[str, Any]) -> bool:
    """Return whether objects of a kind can be read: a kind that can only be created, such as a review, has none."""
    return bool({"get", "list"} & _verbs(resource))


def _is_listable(resource: Mapping[str, Any]) -> bool:
    return "list" in _verbs(resource)


def _verbs(resource: Mapping[str, Any]) -> set[str]:
    verbs = resource.get("verbs")
    return {one for one in verbs if isinstance(one, str)} if isinstance(verbs, list) else set()
