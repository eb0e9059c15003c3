"""Read Secrets and ConfigMaps from a Table: their metadata, the type of a Secret, and the number of keys.

The API server makes a Table of any kind, for `kubectl get`. With `includeObject=Metadata` it has no data. The metadata
may have data in annotations, in which some clients repeat the whole object: they are removed right after the answer was
read, see `is_copy`.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from shared.core.objects import ANNOTATION_DOMAIN, get_in, get_text, list_mappings
from shared.core.references.reference import TargetKind
from shared.errors import PermanentError
from shared.ports.usage import Target

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
