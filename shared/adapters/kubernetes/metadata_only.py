"""Secrets and ConfigMaps without their data, in the answers to each request about one object.

The answers to a PATCH and to a DELETE have the whole object by default. Here they are Tables without objects. The
answer to a GET has only metadata. So the content of a Secret never gets into the memory of a process.
"""

from typing import Any

from shared.adapters.kubernetes.bodies import typed
from shared.adapters.kubernetes.metadata_tables import TABLE, as_target
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef
from shared.core.policy.unused import USAGE_KINDS
from shared.core.references.reference import TargetKind

JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_WITHOUT_DATA = frozenset((rule.group, rule.kind) for rule in USAGE_KINDS.rules)


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
