"""Write annotations and TTL fields on one object, guarded by the resourceVersion that was read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from shared.core.kinds.rule import KindRule
from shared.core.ttl.edits import Edit, hold
from shared.core.values.objects import ObjectRef
from shared.errors import ConflictError, ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.ports import Snapshot

WRITE_ATTEMPTS_MAX = 5
"""Reads and writes of one object while other clients keep writing it."""

FindEdit = Callable[[dict[str, Any]], Edit | None]
"""Finds the edit for an object that was read; None for no edit. A ValueError says why it is not possible."""


class Editor(Protocol):
    """Reads and writes one object; raises the errors of `shared.ports.Cluster`."""

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        """Read an object from the API server; None if there is none."""
        ...

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any]) -> Snapshot:
        """Merge the patch into an object; return the object as it is stored now, with the defaults of its kind.

        Raises:
            ConflictError: The object has changed since it was read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write.

    Attributes:
        snapshot: The object as it is stored now.
        change: The edit that was written; None if none was needed.
        refused: The API server's message if it refused to remove the kind's own TTL field.
    """

    snapshot: Snapshot
    change: Edit | None
    refused: str = ""


async def write(rule: KindRule, ref: ObjectRef, find_edit: FindEdit, *, editor: Editor) -> Written:
    """Read the object and write the edit; repeat this if another client wrote the object in between.

    Raises:
        TtlError: The object does not exist, the edit is not possible, or the API server refuses it.
    """
    for _ in range(WRITE_ATTEMPTS_MAX):
        snapshot = await editor.get(rule, ref)
        if snapshot is None:
            place = f" in namespace {ref.namespace}" if ref.namespace else ""
            raise TtlError(f"there is no {rule.kind} {ref.name}{place}")
        try:
            change = find_edit(snapshot.obj)
        except ValueError as error:
            raise TtlError(f"{ref}: {error}") from None
        if change is None:
            return Written(snapshot, None)
        try:
            return Written(await editor.patch(rule, ref, change.patch(snapshot.obj)), change)
        except ConflictError:
            continue
    raise TryLaterError(f"{ref} changed {WRITE_ATTEMPTS_MAX} times before it could be written; try again")


async def hold_object(rule: KindRule, ref: ObjectRef, reason: str, *, editor: Editor) -> Written:
    """Hold an object; if the API server refuses to remove the kind's own TTL field, write the annotation alone.

    Raises:
        TtlError: As for `write`.
    """
    try:
        return await write(rule, ref, lambda obj: hold(obj, rule, reason), editor=editor)
    except ForbiddenError:
        raise
    except PermanentError as error:
        refused = str(error)
    written = await write(rule, ref, lambda obj: hold(obj, rule, reason, with_fields=False), editor=editor)
    return Written(written.snapshot, written.change, refused)
