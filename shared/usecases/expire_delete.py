"""Send one DELETE, and find out what a 409 means.

The API server answers 409 in three cases, and only a new read tells them apart. The object has changed: read and
decide again. Another client has marked the object for deletion: nothing is left to do. Nothing has changed: the API
server refuses a DELETE with Background propagation and a resourceVersion if `orphan` or `foregroundDeletion` is the
only finalizer, every time.
"""

from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.objects import get_in, ref_of
from shared.errors import ConflictError, PermanentError
from shared.ports import Cluster, Propagation

REFUSALS_MAX = 2
"""DELETEs of one unchanged object that the API server may answer with 409; then the refusal is final."""

_COLLECTORS = ("orphan", "foregroundDeletion")
"""Finalizers of the garbage collector."""


class UnchangedError(ConflictError):
    """The API server answered 409, and the object is exactly what was read."""


async def send_delete(
    cluster: Cluster, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None
) -> bool:
    """DELETE exactly the object that was read.

    Args:
        cluster: The API server.
        rule: The object's kind.
        obj: The object, which is not marked for deletion.
        propagation: See `Cluster.delete`.

    Returns:
        True once the API server accepted; False if the object is gone, or another client marked it for deletion.

    Raises:
        UnchangedError: 409, and the object is still at the resourceVersion that was read.
        ConflictError: 409, and the object has changed.
        TryLaterError: The API server is busy or away.
        PermanentError: The API server refuses for good.
    """
    try:
        return await cluster.delete(rule, obj, propagation=propagation)
    except ConflictError as error:
        present = await cluster.get(rule, ref_of(obj))
        if present is None or not ref_of(obj).is_same(ref_of(present.obj)) or _is_marked(present.obj):
            return False
        if get_in(present.obj, "metadata.resourceVersion") == get_in(obj, "metadata.resourceVersion"):
            raise UnchangedError(str(error)) from None
        raise


def _is_marked(obj: dict[str, Any]) -> bool:
    return get_in(obj, "metadata.deletionTimestamp") is not None


def refused_for_good(obj: dict[str, Any], error: UnchangedError, *, propagation: Propagation) -> PermanentError:
    """What to report if the API server keeps refusing to delete an object that does not change."""
    finalizers = get_in(obj, "metadata.finalizers")
    held_by = [name for name in _COLLECTORS if isinstance(finalizers, list) and name in finalizers]
    told = f"the API server answered 409 to {REFUSALS_MAX} DELETEs of {ref_of(obj)}, which is unchanged: {error}"
    if held_by and propagation == "Background":
        told += (
            f"; it does so with Background propagation while the only finalizer is {held_by[0]}: remove the finalizer"
            f" {held_by[0]}, or set `propagation: Foreground` or `Orphan` in a policy rule"
        )
    return PermanentError(told)
