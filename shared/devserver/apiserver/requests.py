"""Parse the path, the query and the body of a request into the types of the store.

The only protobuf is that of the short forms of `kubectl create` and `kubectl auth can-i`, which send nothing else. Only
the fields that those commands set are known. An unknown field with a value is rejected, not dropped, so that the
created object has all fields of the request.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic_core import from_json
from starlette.datastructures import QueryParams
from starlette.requests import Request

from shared.devserver.apiserver.deletion import DeleteOptions, check_dry_run
from shared.devserver.apiserver.errors import StatusError, bad_request, no_such_resource, unsupported_media_type
from shared.devserver.apiserver.listing import Query
from shared.devserver.apiserver.resources import PODS, Object, Registry, Resource
from shared.devserver.apiserver.writes import WriteOptions

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


_MAGIC = b"k8s\0"
_VARINT, _BYTES = 0, 2  # wire types

# Field number -> name and type: str, int, bool; a dict is a message; a list of one is repeated; "map", "binary map".
_METADATA = {1: ("name", str), 2: ("generateName", str), 3: ("namespace", str), 11: ("labels", "map"),
             12: ("annotations", "map")}  # fmt: skip
_CONTAINER = {1: ("name", str), 2: ("image", str), 3: ("command", [str]), 4: ("args", [str])}
_TEMPLATE = {1: ("metadata", _METADATA), 2: ("spec", {2: ("containers", [_CONTAINER]), 3: ("restartPolicy", str)})}
_JOB_SPEC = {1: ("parallelism", int), 2: ("completions", int), 6: ("template", _TEMPLATE), 7: ("backoffLimit", int),
             8: ("ttlSecondsAfterFinished", int)}  # fmt: skip
_JOB = {1: ("metadata", _METADATA), 2: ("spec", _JOB_SPEC)}
_ATTRIBUTE_NAMES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_ATTRIBUTES = {number: (name, str) for number, name in enumerate(_ATTRIBUTE_NAMES, 1)}
_KINDS: dict[str, Any] = {
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", "map")},
    "CronJob": {1: ("metadata", _METADATA), 2: ("spec", {1: ("schedule", str), 5: ("jobTemplate", _JOB)})},
    "Job": _JOB,
    "Namespace": {1: ("metadata", _METADATA)},
    "Secret": {1: ("metadata", _METADATA), 2: ("data", "binary map"), 3: ("type", str)},
    "SelfSubjectAccessReview": {2: ("spec", {1: ("resourceAttributes", _ATTRIBUTES)})},
    "ServiceAccount": {1: ("metadata", _METADATA)},
}
_ENVELOPE = {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}


def decode_protobuf(body: bytes) -> Object:
    """Decode the object in Kubernetes' protobuf envelope.

    Raises:
        StatusError: 415, the kind or one of its fields is unknown.
    """
    try:
        envelope = _message(body.removeprefix(_MAGIC), _ENVELOPE)
        about: Object = envelope["type"]
        return about | _message(envelope.get("raw", b""), _KINDS[about["kind"]])
    except (KeyError, ValueError, IndexError) as error:
        message = "the embedded API server reads only simple objects in protobuf: create this one from a file"
        raise StatusError(415, "UnsupportedMediaType", message) from error


def _message(data: bytes, schema: dict[int, Any]) -> Object:
    message: Object = {}
    for number, value in _fields(data):
        if number in schema:
            name, kind = schema[number]
            _put(message, name, kind, value)
        elif value and (isinstance(value, int) or _message(value, {})):
            raise ValueError(number)
    return message


def _put(message: Object, name: str, kind: Any, value: int | bytes) -> None:
    if isinstance(kind, list):
        message.setdefault(name, []).append(_value(kind[0], value))
    elif kind in ("map", "binary map"):
        entry = _message(bytes(value), {1: ("key", str), 2: ("value", bytes if kind == "binary map" else str)})
        content = entry.get("value", "")
        text = base64.b64encode(content).decode() if isinstance(content, bytes) else content
        message.setdefault(name, {})[entry.get("key", "")] = text
    elif value not in (b"", {}):
        message[name] = _value(kind, value)


def _value(kind: Any, value: int | bytes) -> Any:
    if isinstance(kind, dict) and isinstance(value, bytes):
        return _message(value, kind)
    return value.decode() if kind is str and isinstance(value, bytes) else value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        value, position = _varint(data, position)
        if tag & 7 == _VARINT:
            yield tag >> 3, value
        elif tag & 7 == _BYTES and position + value <= len(data):
            yield tag >> 3, data[position : position + value]
            position += value
        else:
            raise ValueError(tag)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position
