"""Answer discovery requests: groups, resources, the version, and the part of OpenAPI that kubectl needs."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from shared.devserver.apiserver.resources import ACCESS_REVIEWS, Object, Registry, Resource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_STATUS_VERBS = ["get", "patch", "update"]
_VERSION_NAME = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-embedded", "platform": "python"}


def discover(resources: Registry, path: str, accept: str) -> Object | None:
    """Return the discovery document at a path; None if there is none."""
    parts = [part for part in path.split("/") if part]
    document = _FIXED.get("/".join(parts))
    if document is not None:
        return document(resources, "apidiscovery.k8s.io;v=v2;" in accept)
    match parts:
        case ["api", version]:
            return _resource_list(resources, version)
        case ["apis", group]:
            return next((g for g in _groups(resources) if g["name"] == group), None)
        case ["apis", group, version]:
            return _resource_list(resources, f"{group}/{version}")
        case ["openapi", "v3", *rest]:
            return _openapi(resources, "/".join(rest))
    return None


def _core(resources: Registry, aggregated: bool) -> Object:
    if aggregated:
        return _aggregated(r for r in resources if not r.group)
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _named(resources: Registry, aggregated: bool) -> Object:
    if aggregated:
        return _aggregated(r for r in resources if r.group)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(resources)}


def _version(_resources: Registry, _aggregated: bool) -> Object:
    return _VERSION


def _openapi_index(resources: Registry, _aggregated: bool) -> Object:
    roots = {_root(resource) for resource in resources}
    return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in sorted(roots)}}


_FIXED: dict[str, Callable[[Registry, bool], Object]] = {
    "api": _core,
    "apis": _named,
    "version": _version,
    "openapi/v3": _openapi_index,
}


def _by_version(resources: Iterable[Resource]) -> dict[str, dict[str, list[Resource]]]:
    """Group resources by API group and version, the preferred version first."""
    tree: dict[str, dict[str, list[Resource]]] = {}
    for resource in resources:
        tree.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return {
        group: {version: versions[version] for version in sorted(versions, key=_rank)}
        for group, versions in tree.items()
    }


def _groups(resources: Iterable[Resource]) -> list[Object]:
    groups = []
    for group, tree in _by_version(r for r in resources if r.group).items():
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in tree]
        names = {"kind": "APIGroup", "apiVersion": "v1", "name": group}
        groups.append(names | {"versions": versions, "preferredVersion": versions[0]})
    return groups


def _rank(version: str) -> tuple[Any, ...]:
    """Return the sort key of a version: v2, v1, v1beta2, v1beta1, v1alpha1; then all other versions by name."""
    parts = _VERSION_NAME.fullmatch(version)
    if parts is None:
        return (1, version)
    major, stage, minor = parts.groups()
    return (0, {None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0))


def _resource_list(resources: Iterable[Resource], api_version: str) -> Object | None:
    served = [r for r in resources if r.api_version == api_version]
    if not served:
        return None
    entries = [entry for resource in served for entry in _entries(resource)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries}


def _entries(resource: Resource) -> Iterable[Object]:
    about = {"namespaced": resource.namespaced, "kind": resource.kind}
    names = {"name": resource.plural, "singularName": resource.kind.lower(), "shortNames": list(resource.short_names)}
    yield names | about | {"verbs": _verbs(resource)}
    if resource.has_status:
        yield {"name": f"{resource.plural}/status", "singularName": ""} | about | {"verbs": _STATUS_VERBS}


def _verbs(resource: Resource) -> list[str]:
    return ["create"] if resource is ACCESS_REVIEWS else _VERBS


def _aggregated(resources: Iterable[Resource]) -> Object:
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {"version": version, "resources": [_aggregated_entry(r) for r in members], "freshness": "Current"}
                for version, members in tree.items()
            ],
        }
        for group, tree in _by_version(resources).items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_entry(resource: Resource) -> Object:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    status = {"subresource": "status", "responseKind": kind, "verbs": _STATUS_VERBS}
    return {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": _verbs(resource),
        "shortNames": list(resource.short_names),
        "subresources": [status] if resource.has_status else [],
    }


def _root(resource: Resource) -> str:
    return f"{'apis' if resource.group else 'api'}/{resource.api_version}"


def _openapi(resources: Iterable[Resource], root: str) -> Object | None:
    """Return OpenAPI without schemas. PATCH has fieldValidation in it, so that kubectl does not validate."""
    paths = {f"/{root}/{r.plural}/{{name}}": {"patch": _patch(r)} for r in resources if _root(r) == root}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": paths} if paths else None


def _patch(resource: Resource) -> Object:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    return {"x-kubernetes-group-version-kind": kind, "parameters": [parameter], "responses": {}}
