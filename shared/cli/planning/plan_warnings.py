"""The warnings of `plan`, on standard error: what its numbers do not show."""

from collections import Counter
from collections.abc import Iterator, Sequence

from shared.cli.deleters.in_force import InForce, PolicyInForce
from shared.cli.deleters.obstacles import find_missing_deleter, find_stops, find_unread_state, looped_until
from shared.cli.objects.archive_report import describe_archived_first, if_archived, is_archived_first
from shared.cli.objects.own_deletion import find_unarchived_deletions
from shared.cli.objects.preview import Preview
from shared.cli.objects.unread_facts import describe_unread
from shared.cli.output.messages import warn
from shared.core.decision.decide import Expire, Ignore
from shared.core.values.objects import ObjectRef, printable
from shared.evaluation.batch import BatchResult

_PROBLEMS_SHOWN = 3
_SHOWN = 5
"""The most objects that a message names."""


def warn_about(preview: Preview, force: InForce, in_force: PolicyInForce, *, is_shown: bool, is_compared: bool) -> bool:
    """Warn about what the numbers do not show: unreadable objects, obstacles, saved TTLs.

    Args:
        preview: The decisions about all objects.
        force: What is in force on the cluster.
        in_force: The policy in force.
        is_shown: Whether the output shows that policy anyway.
        is_compared: Whether two policies are compared: then a missing deleter is no problem yet.

    Returns:
        Whether the numbers are complete; if not, the command exits with code 1.
    """
    unread = list(describe_unread(preview.objects))
    for text in unread:
        warn(printable(text))
    if (not in_force.is_known or in_force.differs) and not is_shown:
        warn(f"policy: {printable(in_force.message)}")
    state_unread = tuple(find_unread_state(force))
    for one in find_stops(force, preview.objects[0].now) if preview.objects else state_unread:
        warn(f"{printable(one.message)}; {one.cure}", fg="yellow")
    ahead = [
        (one, decision)
        for one in preview.objects
        for decision in (if_archived(one.decisions[-1], one.now), one.stops[-1])
        if not isinstance(decision, Ignore)
    ]
    missing = Counter(
        f"{obstacle.message}; {obstacle.cure}"
        for one, decision in ahead
        for obstacle in find_missing_deleter(force, one.ref, one.rule, decision=decision)
    )
    for text, count in missing.items() if not is_compared else ():
        warn(f"{count} due, now or later: {printable(text)}", fg="yellow")
    if looped := [one.ref for one, _ in ahead if looped_until(force, one.ref, one.now)]:
        warn(f"{len(looped)} kept for a while: their names are in a recreate loop: {_name_some(looped)}", fg="yellow")
    _warn_about_kept(preview)
    return in_force.is_known and not (preview.refused or preview.unreadable or unread or state_unread)


def _warn_about_kept(preview: Preview) -> None:
    """Warn about objects that wait for their archive, or whose TTL a hold saved."""
    for text in describe_unarchived(preview.objects):
        warn(printable(text), fg="yellow")
    for text, refs in find_unarchived_deletions(preview.objects):
        warn(f"{len(refs):,} have a TTL field of their own: {printable(text)}: {_name_some(refs)}", fg="yellow")
    if preview.saved:
        what = "with a saved TTL and no hold: the TTL has no effect until `kubectl ttl release` puts it back"
        warn(f"{len(preview.saved)} {what}: {_name_some(preview.saved)}")


def describe_unarchived(objects: Sequence[BatchResult]) -> Iterator[str]:
    """Say how many objects wait for their archive, for each archive, and how many of them are overdue.

    Args:
        objects: The decisions about each object; the last one counts.
    """
    waiting: dict[str, list[BatchResult]] = {}
    for one in objects:
        if is_archived_first(one.decisions[-1]) and (archiving := one.decisions[-1].facts.archiving):
            waiting.setdefault(archiving.to, []).append(one)
    for name, of_archive in sorted(waiting.items()):
        overdue = [one for one in of_archive if _is_overdue(one)]
        at_once = sum(isinstance(if_archived(one.decisions[-1], one.now), Expire) for one in overdue)
        them = "it" if len(of_archive) == 1 else "them"
        yield f"{len(of_archive):,} kept until archive {name} has acknowledged {them}"
        if at_once:
            yield describe_archived_first(name, at_once)
        if later := len(overdue) - at_once:
            they = "it is" if later == 1 else "they are"
            yield f"the TTL of {later:,} is over: {they} archived first, and deleted when the grace after that ends"
        problems = sorted({one.decisions[-1].facts.problem for one in of_archive} - {""})
        yield from (f"problem: {problem}" for problem in problems[:_PROBLEMS_SHOWN])


def _is_overdue(one: BatchResult) -> bool:
    due_at = one.decisions[-1].facts.due_at
    return due_at is not None and due_at <= one.now


def _name_some(refs: Sequence[ObjectRef]) -> str:
    """Name the first objects, as a message has room for."""
    return printable(", ".join(map(str, refs[:_SHOWN])) + (", ..." if len(refs) > _SHOWN else ""))
