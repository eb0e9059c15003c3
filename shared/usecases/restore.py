"""Create archived objects again: never over an existing object, and never so that they run unasked."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shared.core.archive.document import Document
from shared.core.archive.draft import Draft, FieldPath, find_dropped, find_named, is_finished, make_draft
from shared.core.archive.server_fields import find_resuming
from shared.core.deadlines.deadline import is_merged
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ObjectRef, get_text, list_mappings, ref_of
from shared.errors import AbsentKindError, ConflictError, PermanentError, TtlError
from shared.ports import Snapshot

_MISSING_RIGHT = "cannot create resource"
"""In the answer of the API server if the account may not create objects of the kind."""


def _describe_existing(ref: ObjectRef, existing: dict[str, Any]) -> str:
    """Describe the object that exists under the name of an archived one."""
    uid = get_text(existing, "metadata.uid")
    same = "the archived object itself" if uid == ref.uid else f"another object, uid {uid}"
    ends = ", which is being deleted" if get_text(existing, "metadata.deletionTimestamp") else ""
    return (
        f"{ref} exists ({same}{ends}), and a restore never overwrites; `archive diff` shows the differences, and "
        "`archive get` prints the archived object"
    )


def _describe_conflict(obj: dict[str, Any], error: ConflictError) -> str:
    """Describe that another client has created the object meanwhile."""
    return f"{ref_of(obj)} was created by another client, and a restore never overwrites: {error}"


def _describe_refusal(obj: dict[str, Any], error: PermanentError) -> str:
    """Describe why the API server refuses an object, and how to restore it without the fields that it names."""
    text = f"{ref_of(obj)} cannot be restored: {error}"
    named = [] if _MISSING_RIGHT in str(error) else find_named(str(error), obj)
    if not named:
        return text
    flags = " ".join(shlex.join(("--leave-out", one)) for one in named)
    return f"{text}; to restore it without {'that field' if len(named) == 1 else 'those fields'}, set {flags}"


def _describe_start(obj: dict[str, Any], why: str) -> str:
    """Describe that an object would run although it is created suspended."""
    return f"{ref_of(obj)} would run again: {why}; to let it run again, set --yes-run-again instead of --suspended"


def _describe_change(obj: dict[str, Any], patch: Mapping[str, Any]) -> str:
    """Describe that the fields by which an object is created suspended are stored with other values.

    For example, a Pod with the scheduling gate of another controller beside that of the restore: it does not start, but
    the command that removes the gate of the restore would remove both.
    """
    sent = json.dumps(patch, separators=(",", ":"))
    why = f"the API server, or an admission webhook, changes the fields that suspend it, {sent}"
    instead = "to let it run again, set --yes-run-again instead of --suspended"
    return f"{ref_of(obj)} cannot be restored suspended: {why}, so it is unknown what would let it run; {instead}"


def _describe_restored(objects: Sequence[dict[str, Any]]) -> str:
    """Name the objects that were restored before an error, as the end of its text; empty if there are none."""
    names = ", ".join(str(ref_of(obj)) for obj in objects)
    return f"; restored before that: {names}" if names else ""


_STATUS_IS_LOST = "its status is left out: the API server does not store the fields by which it counts as finished"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind as the API server serves it.

    Attributes:
        api_version: `batch/v1`.
        plural: `jobs`.
        is_namespaced: Whether its objects are in namespaces.
        has_status: Whether its status is a subresource, so that the API server drops the status of a new object.
    """

    api_version: str
    plural: str
    is_namespaced: bool
    has_status: bool


class Creator(Protocol):
    """Creates objects of any kind, with or without a rule; raises the errors of `shared.ports.Cluster`."""

    async def find_kind(self, api_version: str, kind: str) -> ServedKind:
        """Find a kind in exactly this version.

        Raises:
            AbsentKindError: The API server does not serve it.
        """
        ...

    async def read(self, kind: ServedKind, ref: ObjectRef) -> Snapshot | None:
        """Read an object by its name; None if there is none."""
        ...

    async def create(self, kind: ServedKind, obj: dict[str, Any], *, dry_run: bool) -> Snapshot:
        """Create an object, or let the API server check it; return the object as it is or would be stored.

        Raises:
            ConflictError: An object of this name exists.
            PermanentError: The API server refuses the object; the message says why.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """What a restore may do.

    Attributes:
        suspended: Create each object that would run again suspended.
        may_run: Create objects that run again.
        hold: Set a hold on each object, so that an old TTL does not delete it.
        dry_run: Only let the API server check the objects.
        archive: The name of the archive, for messages.
        leave_out: Fields that the objects are created without.
    """

    suspended: bool = False
    may_run: bool = False
    hold: bool = True
    dry_run: bool = False
    archive: str = ""
    leave_out: tuple[FieldPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """An object that was restored, or that would be.

    Attributes:
        draft: The object that was sent.
        snapshot: The object as the API server stored it.
        notes: What differs from the archived object, in sentences.
    """

    draft: Draft
    snapshot: Snapshot
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Checked:
    """An object that the API server accepts in a dry run."""

    kind: ServedKind
    draft: Draft
    restored: Restored


async def restore(
    documents: Sequence[Document], options: RestoreOptions, *, creator: Creator, kinds: Catalogue
) -> list[Restored]:
    """Create archived objects in order; the API server checks all of them before it creates the first.

    Args:
        documents: The object, and the children to restore with it.
        options: What the restore may do.
        creator: Creates the objects.
        kinds: All known kinds.

    Raises:
        TtlError: An object exists, would run again, or is refused. Unless the message says so, none is created.
    """
    _check_fields(documents, options)
    checked = [await _check(one, options, creator=creator, kinds=kinds) for one in documents]
    if options.dry_run:
        return [one.restored for one in checked]
    restored: list[Restored] = []
    for one in checked:
        try:
            snapshot = await creator.create(one.kind, one.draft.obj, dry_run=False)
        except ConflictError as error:
            raise TtlError(f"{_describe_conflict(one.draft.obj, error)}{_so_far(restored)}") from None
        except TtlError as error:
            if not restored:
                raise
            raise TtlError(f"{ref_of(one.draft.obj)}: {error}{_so_far(restored)}") from None
        restored.append(Restored(one.draft, snapshot, one.restored.notes))
        if problem := _find_start(one.draft, snapshot.obj, options):
            raise TtlError(f"{problem}{_so_far(restored)}")
    return restored


def _check_fields(documents: Sequence[Document], options: RestoreOptions) -> None:
    """Check that an object has each field that is left out.

    Raises:
        TtlError: None has one of the fields.
    """
    for path in options.leave_out:
        if not any(path.is_in(one.obj) for one in documents):
            refs = ", ".join(str(ref_of(one.obj)) for one in documents)
            raise TtlError(f"--leave-out {path}: expected a field of {refs}; `archive get` prints all fields")


async def _check(document: Document, options: RestoreOptions, *, creator: Creator, kinds: Catalogue) -> _Checked:
    """Make the object, and let the API server check it."""
    obj = document.obj
    ref = ref_of(obj)
    if document.record.redacted:
        archive = f" {options.archive}" if options.archive else ""
        raise TtlError(
            f"{ref} cannot be restored: its data is not in the archive, because the archive{archive} does not have"
            " `secrets: true`; create it from where its data comes from"
        )
    kind = await _find_kind(creator, ref)
    existing = await creator.read(kind, ref)
    if existing is not None:
        raise TtlError(_describe_existing(ref, existing.obj))
    rule = kinds.get(ref.api_version, ref.kind)
    lost = await _find_lost_owners(obj, creator)
    draft = make_draft(obj, rule, stores_status=not kind.has_status, lost_owners=lost, leave_out=options.leave_out)
    checked = await _dry_run(kind, _choose_state(draft, ref, options), options, creator)
    if not draft.is_finished or is_finished(checked.restored.snapshot.obj, rule):
        return checked
    draft = make_draft(obj, rule, stores_status=False, lost_owners=lost, leave_out=options.leave_out)
    draft = replace(draft, notes=(*draft.notes, _STATUS_IS_LOST))
    return await _dry_run(kind, _choose_state(draft, ref, options), options, creator)


async def _dry_run(kind: ServedKind, draft: Draft, options: RestoreOptions, creator: Creator) -> _Checked:
    """Let the API server check an object."""
    draft = draft.held() if options.hold else draft
    try:
        snapshot = await creator.create(kind, draft.obj, dry_run=True)
    except ConflictError as error:
        raise TtlError(_describe_conflict(draft.obj, error)) from None
    except PermanentError as error:
        raise TtlError(_describe_refusal(draft.obj, error)) from None
    notes = _check_stored(draft, snapshot.obj, options)
    if draft.is_suspended and find_resuming(snapshot.obj):
        draft = replace(draft, is_suspended=False, runs=True)
    return _Checked(kind, draft, Restored(draft, snapshot, (*draft.notes, *notes)))


async def _find_kind(creator: Creator, ref: ObjectRef) -> ServedKind:
    try:
        return await creator.find_kind(ref.api_version, ref.kind)
    except AbsentKindError:
        raise TtlError(
            f"{ref} cannot be restored: this cluster does not serve {ref.kind} of {ref.api_version}, in which it is"
            " archived; print it with `archive get`, convert it to a served version, and create it with kubectl"
        ) from None


async def _find_lost_owners(obj: dict[str, Any], creator: Creator) -> set[str]:
    """The uids of owners that do not exist or are being deleted; with only such owners, the object would be deleted.

    Raises:
        TryLaterError: The API server is busy or unreachable.
        TtlError: It is unknown whether an owner exists.
    """
    lost = set()
    for owner in list_mappings(obj, "metadata.ownerReferences"):
        uid, namespace = get_text(owner, "uid"), get_text(obj, "metadata.namespace")
        ref = ObjectRef(get_text(owner, "apiVersion"), get_text(owner, "kind"), namespace, get_text(owner, "name"), uid)
        try:
            kind = await creator.find_kind(ref.api_version, ref.kind)
            found = await creator.read(kind, ref)
        except AbsentKindError:
            found = None
        except PermanentError as error:
            raise TtlError(f"{ref_of(obj)} cannot be restored: its owner {ref} cannot be read: {error}") from None
        live = found.obj if found else {}
        if get_text(live, "metadata.uid") != uid or get_text(live, "metadata.deletionTimestamp"):
            lost.add(uid)
    return lost


def _choose_state(draft: Draft, ref: ObjectRef, options: RestoreOptions) -> Draft:
    """Suspend the object if that is asked for.

    Raises:
        TtlError: It would run again, and that is not asked for; or it cannot be suspended.
    """
    can_suspend = bool(draft.suspending_patch)
    if not draft.runs:
        return draft
    if options.suspended and can_suspend:
        return draft.suspended()
    if options.suspended:
        raise TtlError(
            f"{ref} would run again: a {ref.kind} cannot be created suspended; to let it run again, set"
            " --yes-run-again instead of --suspended"
        )
    if options.may_run:
        return draft
    instead = "--suspended to create it suspended, or " if can_suspend else ""
    raise TtlError(f"{ref} would run again; set {instead}--yes-run-again to let it run again")


def _check_stored(draft: Draft, stored: dict[str, Any], options: RestoreOptions) -> list[str]:
    """Check what the API server would store.

    Raises:
        TtlError: The object would run although it is created suspended.
    """
    if problem := _find_start(draft, stored, options):
        raise TtlError(problem)
    dropped = find_dropped(draft.obj, stored)
    return [f"the API server does not store {', '.join(dropped)}: its schema has no such field"] if dropped else []


def _find_start(draft: Draft, stored: dict[str, Any], options: RestoreOptions) -> str:
    """Why a stored object would or might run although it is created suspended; empty if it would not, or may.

    An admission webhook can set the queue of an object that has none, such as that of Kueue if the namespace has a
    LocalQueue `default`. It does the same in a dry run: the API server refuses a dry run if a webhook has side effects.
    """
    if not draft.is_suspended or options.may_run:
        return ""
    if find_dropped(draft.suspending_patch, stored):
        return _describe_start(draft.obj, "the API server does not store the fields that suspend it")
    if not is_merged(stored, draft.suspending_patch):
        return _describe_change(draft.obj, draft.suspending_patch)
    marks = find_resuming(stored)
    if not marks:
        return ""
    names = ", ".join(str(mark) for mark in marks)
    return _describe_start(draft.obj, f"the cluster sets {names}, so {marks[0].controller} starts it")


def _so_far(restored: Sequence[Restored]) -> str:
    return _describe_restored([one.snapshot.obj for one in restored])
