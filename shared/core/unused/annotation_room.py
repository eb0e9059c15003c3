"""Whether the annotations of an object have room for a record of use or a mark; pure."""

from collections.abc import Mapping
from typing import Any

from shared.core.objects import get_in

ANNOTATIONS_BYTES_MAX = 256 * 1024
"""Maximum size of the keys and values of all annotations of an object, in bytes. The API server refuses more.

Source: TotalAnnotationSizeLimitB in k8s.io/apimachinery/pkg/api/validation/objectmeta.go.
"""


def find_excess_bytes(obj: Any, patch: Mapping[str, Any]) -> int:
    """Return by how many bytes the annotations with a merge patch would exceed the limit; 0 if they would not. Total.

    Args:
        obj: The object.
        patch: A JSON merge patch; null removes an annotation.
    """
    found, changes = get_in(obj, "metadata.annotations"), patch["metadata"]["annotations"]
    values = {**(found if isinstance(found, dict) else {}), **changes}
    size = sum(len(str(part).encode()) for entry in values.items() if entry[1] is not None for part in entry)
    return max(0, size - ANNOTATIONS_BYTES_MAX)
