"""Render an answer: whole objects, their metadata only, or the table with the columns that `kubectl get` prints."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.listing import ListPage
from shared.devserver.apiserver.resources import JOBS, NAMESPACES, PODS, Object, Resource
from shared.devserver.apiserver.writes import parse_time

_META = "meta.k8s.io/v1"

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_OLD = 120  # seconds; above this age only one unit is shown, as in the tables of kubectl

Cell = Callable[[Object, datetime], str | int]


class View(Enum):
    """The form of an answer that the client accepts."""

    FULL = ""
    METADATA = "PartialObjectMetadata"
    TABLE = "Table"


_JSON_TYPES = ("application/json", "application/*", "*/*", "")
_VIEWS = {view.value: view for view in View}


def parse_accept(accept: str) -> View:
    """Return the view for the first media type of an Accept header that can be served.

    Raises:
        StatusError: 406, no media type can be served.
    """
    for media_type in accept.split(","):
        name, *parameters = (part.strip() for part in media_type.split(";"))
        wanted = next((p.removeprefix("as=").removesuffix("List") for p in parameters if p.startswith("as=")), "")
        if name in _JSON_TYPES and wanted in _VIEWS:
            return _VIEWS[wanted]
    raise StatusError(406, "NotAcceptable", "only the following media types are accepted: application/json")


def render_object(view: View, resource: Resource, obj: Object, now: datetime) -> Object:
    """Render one object."""
    if obj["kind"] == "Status":
        return obj
    if view is View.TABLE:
        return _table(resource, [obj], {"resourceVersion": obj["metadata"]["resourceVersion"]}, now)
    return _metadata_only(obj) if view is View.METADATA else _in_version(resource, obj)


def render_page(view: View, resource: Resource, page: ListPage, now: datetime) -> Object:
    """Render one page of a LIST."""
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata["continue"] = page.continue_token
        metadata |= {"remainingItemCount": page.remaining} if page.remaining else {}
    if view is View.TABLE:
        return _table(resource, page.items, metadata, now)
    if view is View.METADATA:
        items = [_metadata_only(obj) for obj in page.items]
        return {"kind": "PartialObjectMetadataList", "apiVersion": _META, "metadata": metadata, "items": items}
    items = [_as_item(resource, obj) for obj in page.items]
    kind = f"{resource.kind}List"
    return {"kind": kind, "apiVersion": resource.api_version, "metadata": metadata, "items": items}


def _as_item(resource: Resource, obj: Object) -> Object:
    """Render an item of a list: as in kube-apiserver, a built-in one has no kind and apiVersion."""
    if resource.custom:
        return _in_version(resource, obj)
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}


def _in_version(resource: Resource, obj: Object) -> Object:
    return obj if obj["apiVersion"] == resource.api_version else obj | {"apiVersion": resource.api_version}


def _metadata_only(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}


def _table(resource: Resource, objs: Sequence[Object], metadata: Object, now: datetime) -> Object:
    rows = [{"cells": row_cells(resource, obj, now), "object": _metadata_only(obj)} for obj in objs]
    columns = column_definitions(resource)
    return {"kind": "Table", "apiVersion": _META, "metadata": metadata, "columnDefinitions": columns, "rows": rows}


def column_definitions(resource: Resource) -> list[Object]:
    """Return the columnDefinitions of a Table."""
    names = ["Name", *(name for name, _ in _EXTRA.get(resource.name, ())), "Age"]
    return [
        {"name": n, "type": "string", "format": "name" if n == "Name" else "", "description": n, "priority": 0}
        for n in names
    ]


def row_cells(resource: Resource, obj: Object, now: datetime) -> list[str | int]:
    """Return the cells of a row."""
    extra = [cell(obj, now) for _, cell in _EXTRA.get(resource.name, ())]
    return [obj["metadata"]["name"], *extra, _age(obj["metadata"]["creationTimestamp"], now)]


def _age(since: str, now: datetime) -> str:
    seconds = max(0, int((now - parse_time(since)).total_seconds()))
    if seconds < _OLD:
        return f"{seconds}s"
    unit, size = next((unit, size) for unit, size in _UNITS if seconds >= 2 * size)
    return f"{seconds // size}{unit}"


def _phase(obj: Object, _now: datetime) -> str:
    return str(obj.get("status", {}).get("phase", ""))


def _job_status(obj: Object, _now: datetime) -> str:
    conditions = obj.get("status", {}).get("conditions") or ()
    types = {c.get("type") for c in conditions if c.get("status") == "True"}
    known = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((name for name in known if name in types), "Running")


def _job_completions(obj: Object, _now: datetime) -> str:
    return f"{obj.get('status', {}).get('succeeded', 0)}/{obj.get('spec', {}).get('completions', 1)}"


def _job_duration(obj: Object, now: datetime) -> str:
    status = obj.get("status", {})
    if not status.get("startTime"):
        return ""
    return _age(status["startTime"], parse_time(status["completionTime"]) if status.get("completionTime") else now)


def _pod_ready(obj: Object, _now: datetime) -> str:
    statuses = obj.get("status", {}).get("containerStatuses") or ()
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(obj.get('spec', {}).get('containers', ()))}"


def _secret_type(obj: Object, _now: datetime) -> str:
    return str(obj.get("type") or "Opaque")


def _keys(obj: Object, _now: datetime) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


_EXTRA: dict[str, tuple[tuple[str, Cell], ...]] = {
    JOBS.name: (("Status", _job_status), ("Completions", _job_completions), ("Duration", _job_duration)),
    PODS.name: (("Ready", _pod_ready), ("Status", _phase)),
    NAMESPACES.name: (("Status", _phase),),
    "configmaps": (("Data", _keys),),
    "secrets": (("Type", _secret_type), ("Data", _keys)),
}
