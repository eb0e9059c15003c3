"""`hold` and `release` of a Secret or a ConfigMap, of which only metadata is read and returned."""

from typing import Any

from shared.cli.objects.edited_object import EditTarget
from shared.cli.objects.related import find_deleting_owners
from shared.cli.output.width import echo
from shared.cli.usage.usage_report import USAGE_WORDS
from shared.core.objects import get_annotations, printable
from shared.core.ttl import edits
from shared.core.unused.hold_unused import hold_unused
from shared.core.unused.unused_reasons import UnusedReason
from shared.errors import TtlError
from shared.usecases.hold import Written


async def hold_usage(found: EditTarget, reason: str) -> None:
    """Hold a Secret or a ConfigMap.

    Raises:
        TtlError: The hold could not be written, or has no effect.
    """
    written = await found.write(lambda obj: hold_unused(obj, found.rule, reason))
    _echo_change(f"{found.ref} is held: {reason}", written)
    await _check_hold(await _read_again(found), found, reason)
    echo(f"kept ({UnusedReason.HELD}): {USAGE_WORDS[UnusedReason.HELD]}", indent=2)


async def release_usage(found: EditTarget) -> None:
    """End the hold of a Secret or a ConfigMap.

    Raises:
        TtlError: The release could not be written.
    """
    written = await found.write(lambda obj: edits.release(obj, found.rule))
    _echo_change(f"{found.ref} is {'released' if written.change else 'not held'}", written)
    name = " ".join((f"{found.rule.kind.lower()}/{found.ref.name}", "-n", found.ref.namespace, *found.force.flags))
    echo(printable(f"to see whether an object refers to it, run: kubectl ttl references {name}"), indent=2)


def _echo_change(change: str, written: Written) -> None:
    echo(printable(change))
    for sentence in written.change.message if written.change else ():
        echo(printable(sentence), indent=2)


async def _read_again(found: EditTarget) -> Any:
    """Read the metadata after the write: its answer has no object."""
    snapshot = await found.cluster.get(found.rule, found.ref)
    if snapshot is None:
        raise TtlError(f"{found.ref} was deleted when its hold was written")
    return snapshot.obj


async def _check_hold(obj: Any, found: EditTarget, reason: str) -> None:
    """Check the stored object: a webhook may have removed the hold, and an owner is deleted with its dependents.

    Raises:
        TtlError: The hold has no effect.
    """
    if "hold" not in get_annotations(obj):
        raise TtlError(f"the hold has no effect: its annotation was removed from {found.ref} at once")
    owners = await find_deleting_owners(obj, found.evaluator, reason=reason, flags=found.force.flags)
    if owners:
        messages = "; ".join("; ".join(filter(None, (one.message, one.fix))) for one in owners)
        raise TtlError(printable(f"the hold has no effect: {messages}"))
