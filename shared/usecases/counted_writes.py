"""The writes of `expire`, `enforce` and `usage`: what the safeguards count of them, and what a 409 to a DELETE means.

The safeguards count an object as deleted as soon as they let it pass. If it is kept after all, they are informed.

The API server answers 409 in three cases, and only a new read tells them apart:

- The object has changed: read it and decide again.
- Another client has marked the object for deletion: nothing is left to do.
- Nothing has changed. The API server always refuses a DELETE with Background propagation and a resourceVersion if
  `orphan` or `foregroundDeletion` is the only finalizer.
"""

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_in, get_text, ref_of
from shared.errors import ConflictError, PermanentError
from shared.ports import Cluster, Propagation, Snapshot
from shared.safeguards.safeguards import Delayed, Denied, Safeguards

_T = TypeVar("_T")

REFUSALS_MAX = 2
"""DELETEs of one unchanged object that the API server may answer with 409; then the refusal is final."""

_COLLECTORS = ("orphan", "foregroundDeletion")
"""Finalizers of the garbage collector."""


class UnchangedError(ConflictError):
    """The API server answered 409, and the object is exactly what was read."""


async def ask_safeguards(
    safeguards: Safeguards | None, rule: KindRule, obj: dict[str, Any], *, by: str
) -> Denied | Delayed | None:
    """Ask all safeguards, the brake last; None lets the object pass and counts it as deleted.

    Args:
        safeguards: None for no safeguards.
        rule: The object's kind.
        obj: The object, which is due.
        by: The function that would delete it.

    Raises:
        TryLaterError: The shared state cannot be read now.
    """
    if safeguards is None:
        return None
    answer = await safeguards.ask(rule, obj, by=by)
    if answer is not None:
        return answer
    try:
        stopped = await safeguards.ask_brake()
    except BaseException:  # also when the time limit cuts it off
        safeguards.not_deleted(rule, ref_of(obj))
        raise
    if stopped:
        safeguards.not_deleted(rule, ref_of(obj))
    return stopped


async def delete_counted(
    cluster: Cluster,
    safeguards: Safeguards | None,
    rule: KindRule,
    obj: dict[str, Any],
    *,
    propagation: Propagation | None,
) -> bool:
    """DELETE exactly the object that was read, and inform the safeguards of the result; see `_send_delete`.

    A DELETE without an answer counts as a deletion, since the object may be gone.
    """
    send = _send_delete(cluster, rule, obj, propagation=propagation)
    is_accepted = await (_counted(safeguards, rule, obj, send) if safeguards else send)
    if safeguards and is_accepted:
        safeguards.deleted(obj)
    elif safeguards:
        safeguards.not_deleted(rule, ref_of(obj))
    return is_accepted


async def stop_counted(
    cluster: Cluster, safeguards: Safeguards | None, rule: KindRule, obj: dict[str, Any], patch: Mapping[str, Any]
) -> Snapshot:
    """Patch exactly the object that was read, and inform the safeguards of the result.

    A patch without an answer counts as a stop, since the object may have been stopped.

    Args:
        cluster: The API server.
        safeguards: None for no safeguards.
        rule: The object's kind.
        obj: The object: its uid and its resourceVersion are the preconditions.
        patch: The JSON merge patch.

    Returns:
        The object as it is stored now.

    Raises:
        ConflictError: The object has changed, or is gone.
        TryLaterError: The API server is busy or away.
        PermanentError: The API server refuses for good.
    """
    send = patch_exactly(cluster, rule, obj, patch)
    stored = await (_counted(safeguards, rule, obj, send) if safeguards else send)
    if safeguards:
        safeguards.stopped(rule, ref_of(obj))
    return stored


async def _counted(safeguards: Safeguards, rule: KindRule, obj: dict[str, Any], send: Awaitable[_T]) -> _T:
    """Send a write; inform the safeguards if it was refused, or had no answer."""
    try:
        return await send
    except (ConflictError, PermanentError):
        safeguards.not_deleted(rule, ref_of(obj))
        raise
    except BaseException:  # also when the time limit cuts it off
        safeguards.maybe_deleted(ref_of(obj))
        raise


async def patch_exactly(
    cluster: Cluster, rule: KindRule, obj: dict[str, Any], patch: Mapping[str, Any], **options: str
) -> Snapshot:
    """Patch exactly the object that was read; without both preconditions, nothing is sent.

    Args:
        cluster: The API server.
        rule: The object's kind.
        obj: The object: its uid and its resourceVersion are the preconditions.
        patch: The JSON merge patch.
        options: See `Cluster.patch`.

    Raises:
        ConflictError: The object has changed, or is gone.
        TryLaterError: The API server is busy or away.
        PermanentError: The API server refuses for good.
    """
    exact = {"uid": get_text(obj, "metadata.uid"), "resourceVersion": get_text(obj, "metadata.resourceVersion")}
    if not all(exact.values()):
        raise PermanentError("PATCH: expected metadata.uid and metadata.resourceVersion, got an object without them")
    exact_patch = {**patch, "metadata": {**patch.get("metadata", {}), **exact}}
    return await cluster.patch(rule, ref_of(obj), exact_patch, **options)


async def _send_delete(
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
        if present is None or not ref_of(obj).is_same(ref_of(present.obj)):
            return False
        if get_in(present.obj, "metadata.deletionTimestamp") is not None:
            return False
        if get_in(present.obj, "metadata.resourceVersion") == get_in(obj, "metadata.resourceVersion"):
            raise UnchangedError(str(error)) from None
        raise


def refused_for_good(obj: dict[str, Any], error: UnchangedError, *, propagation: Propagation) -> PermanentError:
    """The error to report if the API server keeps refusing to delete an object that does not change."""
    finalizers = get_in(obj, "metadata.finalizers")
    collectors = [name for name in _COLLECTORS if isinstance(finalizers, list) and name in finalizers]
    message = f"the API server answered 409 to {REFUSALS_MAX} DELETEs of {ref_of(obj)}, which is unchanged: {error}"
    if collectors and propagation == "Background":
        message += (
            f"; it does so with Background propagation while the only finalizer is {collectors[0]}: remove the"
            f" finalizer {collectors[0]}, or set `propagation: Foreground` or `Orphan` in a policy rule"
        )
    return PermanentError(message)
