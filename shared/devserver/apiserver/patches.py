"""Merge patches and JSON patches, as functions from an object to the changed object."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jsonpatch
import jsonpointer

from shared.devserver.apiserver.errors import StatusError, bad_request, unsupported_media_type
from shared.devserver.apiserver.resources import Object, Resource

Patch = Callable[[Object], Object]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
# Directives for the strategic merge of lists, which are replaced as a whole here.
_DIRECTIVE = "$"


def parse_patch(content_type: str, body: Any, resource: Resource) -> Patch:
    """Parse the patch of a request.

    Raises:
        StatusError: 415 for an unknown kind of patch, 400 for a malformed one.
    """
    accepted = (JSON_PATCH, MERGE_PATCH) if resource.custom else (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
    if content_type not in accepted:
        raise unsupported_media_type(", ".join(accepted))
    if content_type == JSON_PATCH and isinstance(body, list):
        return json_patch(body)
    if content_type != JSON_PATCH and isinstance(body, dict):
        return merge_patch(body)
    raise bad_request(f"error decoding patch: json: cannot unmarshal {type(body).__name__}")


def merge_patch(patch: Object) -> Patch:
    """Make a merge patch, RFC 7386."""
    return partial(_merged, patch=patch)


def json_patch(operations: Sequence[Object]) -> Patch:
    """Make a JSON patch, RFC 6902."""
    return partial(_operated, operations=operations)


def _merged(target: Any, patch: Any) -> Any:
    """Merge the patch into the target; unchanged parts are shared with the target."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif not key.startswith(_DIRECTIVE):
            result[key] = _merged(result.get(key), value)
    return result


def _operated(target: Object, operations: Sequence[Object]) -> Object:
    try:
        result: Object = jsonpatch.JsonPatch(operations).apply(target)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        message = "the server rejected our request due to an error in our request"
        raise StatusError(422, "Invalid", message, details={}) from error
    return result
