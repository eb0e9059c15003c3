"""Discover all kinds that can be listed: by aggregated discovery, or group by group from an older API server.

Aggregated discovery marks a group as stale if its aggregated API server did not answer. Then kinds may be missing. A
kind that can be read one by one, and not listed, has objects that nothing finds: only aggregated API servers have such.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from shared.core.objects import get_text, list_mappings
from shared.errors import PermanentError, TtlError
from shared.ports.usage import ListableKind, ListableKinds

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
AGGREGATED = f"{_AGGREGATED.format(version='v2')},{_AGGREGATED.format(version='v2beta1')},application/json"
"""The media types of aggregated discovery, and that of older servers."""

ReadDocument = Callable[[str], Awaitable[Any]]
"""GETs a path of discovery with these media types."""

_Found = tuple[str, str, str, bool, bool]
"""apiVersion, plural, kind, whether it is namespaced, and whether it can be listed."""


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
    versions: list[str] = []
    for group in list_mappings(document, "groups"):
        preferred = get_text(group, "preferredVersion.groupVersion")
        served = [get_text(one, "groupVersion") for one in list_mappings(group, "versions")]
        versions += sorted(filter(None, served), key=lambda one: one != preferred)
    return versions


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
