"""Secrets and ConfigMaps without their data, in each answer: one object, a list, or what a write returns.

The answers to a PATCH and to a DELETE have the whole object by default. Here they are Tables without objects. The
answer to a GET has only metadata. So the content of a Secret never gets into the memory of a process.

`usage` lists them as Tables: their metadata, the type of a Secret, and the number of keys. The API server makes a Table
of any kind, for `kubectl get`. With `includeObject=Metadata` it has no data. The metadata may have data in annotations,
in which some clients repeat the whole object: they are removed right after the answer was read, see `is_copy`.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from shared.adapters.kubernetes.bodies import typed
from shared.core.kinds.rule import KindRule
from shared.core.policy.usage import USAGE_KINDS
from shared.core.references.reference import TargetKind
from shared.core.values.objects import ANNOTATION_DOMAIN, ObjectRef, get_in, get_text, list_mappings
from shared.errors import PermanentError
from shared.ports.cluster import Target

JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_WITHOUT_DATA = frozenset((rule.group, rule.kind) for rule in USAGE_KINDS.rules)

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
"""The media type of a Table; without `application/json`, so that no server answers with whole objects."""

INCLUDE_METADATA = {"includeObject": "Metadata"}

COPIES = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "kapp.k14s.io/original",
    "banzaicloud.com/last-applied",
    "objectset.rio.cattle.io/applied",
)
"""The starts of the names of annotations in which a client repeats an object; the last two are compressed."""

_COPIED_DATA = re.compile(r'"(?:data|stringData|binaryData)\\*"\s*:')
"""A key of JSON that has the data of an object, in any depth, also in JSON that is a text in JSON."""


def has_data(rule: KindRule) -> bool:
    """Return whether the objects of a kind have data that is never read."""
    return (rule.group, rule.kind) in _WITHOUT_DATA and rule.never_finishes is not None


def accept_one(rule: KindRule) -> str:
    """Return the media type of the answer to a GET."""
    return METADATA if has_data(rule) else JSON


def accept_list(rule: KindRule, *, metadata_only: bool) -> str:
    """Return the media type of the answer to a LIST; a server without metadata lists sends whole objects."""
    if has_data(rule):
        return METADATA_LIST
    return f"{METADATA_LIST},{JSON}" if metadata_only else JSON


def accept_write(rule: KindRule) -> str:
    """Return the media type of the answer to a PATCH or a DELETE; see `write_query`."""
    return TABLE if has_data(rule) else JSON


def write_query(rule: KindRule) -> dict[str, str]:
    """Return the query parameters with which the Table in the answer has no object."""
    return {"includeObject": "None"} if has_data(rule) else {}


def read_one(body: Any, rule: KindRule) -> dict[str, Any]:
    """Return the object of the answer to a GET, without copies of the data in annotations."""
    return as_target(body, TargetKind(rule.kind)) if has_data(rule) else typed(body, rule)


def read_written(body: Any, rule: KindRule, ref: ObjectRef) -> dict[str, Any]:
    """Return the object of the answer to a PATCH; of an object with data, only its identity."""
    if not has_data(rule):
        return typed(body, rule)
    metadata = {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
    return {"apiVersion": rule.api_version, "kind": rule.kind, "metadata": metadata}


def read_rows(table: Any, kind: TargetKind, read_at: datetime, ahead: timedelta) -> list[Target]:
    """Return the objects of a Table.

    Raises:
        PermanentError: The answer is no Table, or a row has more than metadata.
    """
    if get_text(table, "kind") != "Table":
        raise PermanentError(f"expected a Table of {kind}s, got {get_text(table, 'kind') or 'another answer'}")
    places = {get_text(one, "name"): place for place, one in enumerate(list_mappings(table, "columnDefinitions"))}
    return [_read_row(row, kind, places, read_at, ahead) for row in list_mappings(table, "rows")]


def _read_row(
    row: Mapping[str, Any], kind: TargetKind, places: Mapping[str, int], read_at: datetime, ahead: timedelta
) -> Target:
    if get_text(row, "object.kind") != "PartialObjectMetadata":
        raise PermanentError(f"expected only the metadata of a {kind}, got {get_text(row, 'object.kind') or 'none'}")
    obj = as_target(row.get("object"), kind)
    secret_type, keys = _cell(row, places.get("Type")), _cell(row, places.get("Data"))
    if kind is TargetKind.SECRET and isinstance(secret_type, str):
        obj["type"] = secret_type
    return Target(obj, read_at, keys if isinstance(keys, int) else None, ahead)


def as_target(obj: Any, kind: TargetKind) -> dict[str, Any]:
    """Return apiVersion, kind and metadata of a Secret or ConfigMap, without annotations that may repeat its data."""
    metadata = get_in(obj, "metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {key: value for key, value in annotations.items() if not is_copy(key, value)}
    return {"apiVersion": "v1", "kind": str(kind), "metadata": metadata}


def is_copy(name: str, value: Any) -> bool:
    """Return whether an annotation of a Secret or a ConfigMap may repeat its data.

    That is an annotation of a known client, or any whose value has a JSON key for data. An annotation of our own domain
    is none: a hold must keep its object, whatever its reason says.
    """
    if name.startswith(f"{ANNOTATION_DOMAIN}/"):
        return False
    return name.startswith(COPIES) or (isinstance(value, str) and _COPIED_DATA.search(value) is not None)


def _cell(row: Mapping[str, Any], place: int | None) -> Any:
    cells = row.get("cells")
    return cells[place] if isinstance(cells, list) and place is not None and place < len(cells) else None
