"""Parse the path, the query and the body of a request into the types of the store."""

from dataclasses import dataclass
from typing import Any

import yaml
from pydantic_core import from_json
from starlette.datastructures import QueryParams
from starlette.requests import Request

from shared.devserver.apiserver.deletion import DeleteOptions, check_dry_run
from shared.devserver.apiserver.errors import bad_request, no_such_resource, unsupported_media_type
from shared.devserver.apiserver.listing import Query
from shared.devserver.apiserver.protobuf import decode_protobuf
from shared.devserver.apiserver.resources import PODS, Registry, Resource
from shared.devserver.apiserver.versions import WriteOptions

_DELETE_PARAMETERS = ("propagationPolicy", "dryRun", "orphanDependents", "gracePeriodSeconds")
_JSON = "application/json"
_YAML = "application/yaml"
_PROTOBUF = "application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The target of a path.

    Attributes:
        resource: The resource.
        namespace: The namespace; empty for all namespaces and for a cluster-scoped resource.
        name: The name of the object; empty for the collection.
        subresource: `status`, `log` of a Pod, or empty.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_target(resources: Registry, path: str) -> RequestTarget | None:
    """Parse a path; return None if its group and version are not served.

    Raises:
        StatusError: 404, the group and version has no such resource.
    """
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:  # noqa: PLR2004 - api, version, resource
        api_version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:  # noqa: PLR2004 - apis, group, version, resource
        api_version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":  # noqa: PLR2004 - namespaces, its name, resource
        namespace, rest = rest[1], rest[2:]
    resource = resources.find(api_version, rest[0])
    if resource is None and not resources.serves(api_version):
        return None
    return _target(resource, namespace, rest[1:])


def _target(resource: Resource | None, namespace: str, rest: list[str]) -> RequestTarget:
    name, subresource, *more = (*rest, "", "")[: max(2, len(rest))]
    if resource is None or more or (namespace and not resource.namespaced):
        raise no_such_resource()
    is_served = (subresource == "status" and resource.has_status) or (subresource == "log" and resource is PODS)
    if subresource and not is_served:
        raise no_such_resource()
    return RequestTarget(resource, namespace, name, subresource)


def parse_query(parameters: QueryParams, target: RequestTarget) -> Query:
    """Parse the query of a LIST or a WATCH.

    Raises:
        StatusError: 400.
    """
    get = parameters.get
    return Query(
        target.namespace,
        get("labelSelector", ""),
        get("fieldSelector", ""),
        parse_int(get("limit", "0")),
        get("continue", ""),
        get("resourceVersion", ""),
        get("resourceVersionMatch", ""),
    )


def parse_int(text: str) -> int:
    """Parse a number in a query.

    Raises:
        StatusError: 400, the text is no number.
    """
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def is_true(text: str) -> bool:
    """Parse a flag in a query."""
    return text in ("1", "true", "True")


def parse_write_options(request: Request, subresource: str = "") -> WriteOptions:
    """Parse the options of a write; without a fieldManager, the manager is the name of the client.

    Raises:
        StatusError: 422.
    """
    dry_run = request.query_params.getlist("dryRun")
    check_dry_run("WriteOptions.meta.k8s.io", dry_run)
    client = request.headers.get("user-agent", "unknown").split("/")[0]
    return WriteOptions(request.query_params.get("fieldManager") or client, bool(dry_run), subresource)


async def parse_delete_options(request: Request) -> DeleteOptions:
    """Parse the options of a DELETE. If there is a body, the query is ignored, as kube-apiserver does.

    Raises:
        StatusError: 400 or 422.
    """
    if await request.body():
        return DeleteOptions.parse(await parse_body(request))
    options: dict[str, Any] = {k: v for k, v in request.query_params.items() if k in _DELETE_PARAMETERS}
    if "dryRun" in options:
        options["dryRun"] = request.query_params.getlist("dryRun")
    if "orphanDependents" in options:
        options["orphanDependents"] = is_true(options["orphanDependents"])
    if "gracePeriodSeconds" in options:
        options["gracePeriodSeconds"] = parse_int(options["gracePeriodSeconds"])
    return DeleteOptions.parse(options)


async def parse_body(request: Request) -> dict[str, Any]:
    """Parse the object in the body of a request.

    Raises:
        StatusError: 400 or 415.
    """
    content_type = _media_type(request)
    if content_type == _PROTOBUF:
        return decode_protobuf(await request.body())
    if content_type not in (_JSON, _YAML, ""):
        raise unsupported_media_type(f"{_JSON}, {_YAML}")
    body = await _decoded(request, is_yaml=content_type == _YAML)
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized: {type(body).__name__}")
    return body


async def parse_patch_body(request: Request) -> tuple[str, Any]:
    """Parse the content type of a patch and the patch.

    Raises:
        StatusError: 400.
    """
    return _media_type(request), await _decoded(request)


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").split(";")[0].strip()


async def _decoded(request: Request, *, is_yaml: bool = False) -> Any:
    body = await request.body()
    try:
        return yaml.safe_load(body) if is_yaml else from_json(body)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error
