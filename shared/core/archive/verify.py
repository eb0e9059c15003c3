"""Check that a document is the one that its key names, and the only one of its version."""

from collections.abc import Sequence
from typing import Any

from shared.core.archive.document import Document
from shared.core.archive.identity import parse_cluster_part
from shared.core.archive.layout import ArchiveKey
from shared.core.values.jsontext import JsonLimitError
from shared.core.values.objects import get_text, ref_of

_SHOWN_MAX = 5  # documents of one version, in a message
_HARMLESS = (
    "the object was read in another API version, with upgraded defaults, or with another `secrets` of the archive"
)


def describe_rivals(key: ArchiveKey, locations: Sequence[str], *, are_signed: bool = False) -> str:
    """Say that the archive has several undamaged documents of one version: only one of them can be the object.

    Args:
        key: The key of one of them.
        locations: Where all of them are.
        are_signed: Whether all of them have a valid signature.
    """
    cause = "" if are_signed else "another writer may have stored one of them, or "
    more = f" and {len(locations) - _SHOWN_MAX} more" if len(locations) > _SHOWN_MAX else ""
    return (
        f"{len(locations)} documents of {key.kind} {key.namespace}{'/' if key.namespace else ''}{key.name}, uid "
        f"{key.uid}, resource version {key.resource_version} differ: {', '.join(locations[:_SHOWN_MAX])}{more}; "
        f"{cause}{_HARMLESS}; `archive get` with --digest prints each: the digest is the part of its name before "
        ".json.zst"
    )


def find_damage(key: ArchiveKey, document: Document) -> str:
    """Return what is wrong with a stored document; empty if nothing is.

    A document that was copied under the key of another object has a right digest only if the key has it as well, so the
    identity of the object is compared too.
    """
    if document.digest != key.digest:
        return f"its digest is {document.digest}, expected {key.digest}"
    try:
        obj: Any = document.obj
    except JsonLimitError as error:
        return f"its object is not read: {error}"
    except ValueError:
        return "its object is not JSON"
    if not isinstance(obj, dict):
        return "its object is not a JSON object"
    cluster_id = document.record.cluster_id
    if cluster_id and not parse_cluster_part(key.cluster).is_of(cluster_id):
        return f"its record names the cluster with id {cluster_id}, expected that of {key.cluster}"
    ref = ref_of(obj)
    found = {
        "apiVersion": (ref.api_version, key.api_version),
        "kind": (ref.kind, key.kind),
        "namespace": (ref.namespace, key.namespace),
        "name": (ref.name, key.name),
        "uid": (ref.uid, key.uid),
        "resourceVersion": (get_text(obj, "metadata.resourceVersion"), key.resource_version),
    }
    wrong = [f"{field} {have!r}, expected {want!r}" for field, (have, want) in found.items() if have != want]
    return f"its object has {' and '.join(wrong)}" if wrong else ""
