"""Write on one object what people ask for, guarded by the version that was read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef
from shared.core.ttl.edits import Edit, hold
from shared.errors import ConflictError, ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.ports import Snapshot

ATTEMPTS_MAX = 5
"""Reads and writes while others keep writing the object."""

Ask = Callable[[dict[str, Any]], Edit | None]
"""What to write on an object that was read; None for nothing. ValueError says why not."""


class Editor(Protocol):
    """Who reads and writes one object. Raises what `shared.ports.Cluster` raises."""

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        """Read an object afresh; None where there is none."""
        ...

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any]) -> Snapshot:
        """Merge the patch into an object; answers with what is stored now, the defaults of its kind included.

        Raises:
            ConflictError: It is not any more what was read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """What became of it.

    Attributes:
        snapshot: The object as it is stored now.
        change: What was written; None where nothing had to be.
        refused: The API server's words, where it would not let go of the kind's own TTL field.
    """

    snapshot: Snapshot
    change: Edit | None
    refused: str = ""


async def write(rule: KindRule, ref: ObjectRef, ask: Ask, *, editor: Editor) -> Written:
    """Read, and write what is asked for; again where somebody else wrote in between.

    Raises:
        TtlError: There is no such object, it cannot be done, or the API server refuses.
    """
    for _ in range(ATTEMPTS_MAX):
        snapshot = await editor.get(rule, ref)
        if snapshot is None:
            place = f" in namespace {ref.namespace}" if ref.namespace else ""
            raise TtlError(f"there is no {rule.kind} {ref.name}{place}")
        try:
            change = ask(snapshot.obj)
        except ValueError as error:
            raise TtlError(f"{ref}: {error}") from None
        if change is None:
            return Written(snapshot, None)
        try:
            return Written(await editor.patch(rule, ref, change.patch(snapshot.obj)), change)
        except ConflictError:
            continue
    raise TryLaterError(f"{ref} changed {ATTEMPTS_MAX} times while it was about to be written; try again")


async def hold_object(rule: KindRule, ref: ObjectRef, reason: str, *, editor: Editor) -> Written:
    """Hold an object; where its kind's own TTL field cannot be taken away, by the annotation alone.

    Raises:
        TtlError: As above.
    """
    try:
        return await write(rule, ref, lambda obj: hold(obj, rule, reason), editor=editor)
    except ForbiddenError:
        raise
    except PermanentError as error:
        refused = str(error)
    written = await write(rule, ref, lambda obj: hold(obj, rule, reason, with_fields=False), editor=editor)
    return Written(written.snapshot, written.change, refused)
