"""Render an answer: whole objects, their metadata only, or the table that `kubectl get` prints."""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from shared.devserver.apiserver.columns import column_definitions, row_cells
from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.listing import ListPage
from shared.devserver.apiserver.resources import Object, Resource

_META = "meta.k8s.io/v1"


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
