"""Discover all kinds that can be listed: by aggregated discovery, or group by group from an older API server.

Aggregated discovery marks a group as stale if its aggregated API server did not answer. Then kinds may be missing.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from shared.core.objects import get_text, list_mappings
from shared.errors import AbsentKindError, PermanentError, TtlError
from shared.ports.usage import ListableKind

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
AGGREGATED = f"{_AGGREGATED.format(version='v2')},{_AGGREGATED.format(version='v2beta1')},application/json"
"""The media types of aggregated discovery, and that of older servers."""

ReadDocument = Callable[[str], Awaitable[Any]]
"""GETs a path of discovery with these media types."""

_Found = tuple[str, str, str, bool]
"""apiVersion, plural, kind, and whether it is namespaced."""


async def discover_listable(core: Any, named: Any, read: ReadDocument) -> tuple[tuple[ListableKind, ...], str]:
    """Find the kinds that can be listed.

    Args:
        core: The document at `/api`.
        named: The document at `/apis`.
        read: Reads the documents of single versions, for a server without aggregated discovery.

    Returns:
        The kinds, and why there may be others: empty if these are all.
    """
    problems: list[str] = []
    found: list[_Found] = []
    for document, root in ((core, "api"), (named, "apis")):
        if get_text(document, "kind") == "APIGroupDiscoveryList":
            found += _parse_aggregated(document, problems)
        else:
            for version in _list_versions(document):
                found += await _read_version(f"/{root}/{version}", version, read, problems)
    return tuple(_merge(found)), "; ".join(problems)


def _merge(found: Iterable[_Found]) -> Iterator[ListableKind]:
    """Return each kind once, with all versions in which it is served."""
    versions: dict[tuple[str, str], list[_Found]] = {}
    for one in found:
        versions.setdefault((one[0].rpartition("/")[0], one[1]), []).append(one)
    for (_, plural), several in versions.items():
        _, _, kind, is_namespaced = several[0]
        yield ListableKind(tuple(version for version, *_ in several), plural, kind, is_namespaced)


def _parse_aggregated(document: Any, problems: list[str]) -> Iterator[_Found]:
    for group in list_mappings(document, "items"):
        name = get_text(group, "metadata.name")
        for version in list_mappings(group, "versions"):
            api_version = f"{name}/{get_text(version, 'version')}".removeprefix("/")
            if version.get("freshness") == "Stale":
                problems.append(f"discovery of {api_version} is stale: its API server did not answer")
            for one in list_mappings(version, "resources"):
                if _is_listable(one):
                    kind, scope = get_text(one, "responseKind.kind"), get_text(one, "scope")
                    yield api_version, get_text(one, "resource"), kind, scope == "Namespaced"


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
    except AbsentKindError:
        return []
    except TtlError as error:
        problems.append(f"discovery of {version} failed: {error}")
        return []
    found = (one for one in list_mappings(document, "resources") if _is_listable(one))
    names = ((one, get_text(one, "name")) for one in found)
    return [
        (version, name, get_text(one, "kind"), one.get("namespaced") is True)
        for one, name in names
        if "/" not in name  # a subresource
    ]


def _is_listable(resource: Mapping[str, Any]) -> bool:
    verbs = resource.get("verbs")
    return isinstance(verbs, list) and "list" in verbs
