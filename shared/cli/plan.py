"""`plan`: what would be deleted or stopped now, what is due when, and what another policy would change.

Warnings on standard error say what the numbers do not show.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from shared.cli.deleters.in_force import InForce, PolicyInForce, opened_archives, read_in_force
from shared.cli.deleters.obstacles import find_missing_deleter, find_stops, find_unread_state, looped_until
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    all_namespaces_option,
    cluster_options,
    kinds_dir_option,
    kinds_option,
    output_option,
    references_dir_option,
)
from shared.cli.input.target import connected, is_absent
from shared.cli.objects.archive_report import (
    describe_archived_first,
    find_unarchived_deletions,
    if_archived,
    is_archived_first,
)
from shared.cli.objects.object_report import as_json, is_ahead, is_stop_ahead
from shared.cli.objects.preview import Preview, describe_unread
from shared.cli.output.printing import echo, warn
from shared.cli.output.tables import output_console
from shared.cli.planning.comparison import Comparison
from shared.cli.planning.comparison_output import (
    LIMIT,
    as_document,
    check_limit,
    describe_breaker,
    describe_budgets,
    describe_deadlines,
    describe_owners,
    find_unused,
    show,
)
from shared.cli.planning.plan_preview import NamedKinds, read_preview
from shared.cli.planning.plan_view import PlanView, print_plan, rows_as_json, view_of, view_options
from shared.cli.planning.planned_usage import (
    NOTHING_PLANNED,
    PlannedUsage,
    accept_option,
    accept_plan,
    check_scope,
    find_planned,
    print_planned,
    warn_about_planned,
)
from shared.core.decision.decide import Expire, Ignore
from shared.core.values.objects import ObjectRef, printable
from shared.errors import TtlError
from shared.evaluation.batch import BatchResult

TOO_MANY = 3
"""The exit code if a policy would delete more objects at once than the limit, or than its breaker allows."""


@command()
@all_namespaces_option
@kinds_option
@kinds_dir_option
@click.option(
    "--policy",
    metavar="FILE|none",
    type=click.Path(path_type=Path),
    help="Show what this policy, or none, would change. Default: show the policy in force alone.",
)
@click.option(
    "--against",
    metavar="FILE|cluster|none",
    type=click.Path(path_type=Path),
    help="Compare --policy with a file, with the installed policy, or with none. Default: $TTL_POLICY, else the "
    "installed policy.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"With --policy: the most objects due at once. Default: its breaker's count, else {LIMIT:,}.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="With --policy: exit with 0 even if more objects than --limit are due at once, or its breaker would trip.",
)
@view_options
@accept_option
@references_dir_option
@cluster_options
@click.option(
    "--all", "everything", is_flag=True, help="Show all rows and objects; with -o json also those that are kept."
)
@output_option
async def plan(
    options: Options,
    *,
    against: Path | None,
    limit: int | None,
    yes: bool,
    accept: bool,
    everything: bool,
    output: str,
    **chosen: Any,
) -> None:
    """Show what would be deleted now, and what is due when, per namespace and kind. Deletes nothing.

    If objects have an active deadline, a second table shows the same for stops. If the policy has rules with `unused`,
    another table shows the Secrets and ConfigMaps to which nothing refers.

    With --policy: compare that policy with the one in force, per rule, kind and namespace, and list the objects whose
    decision changes. `120 (+8)` is 120 under the new policy, 8 more than under the other. The exit code is 3 if more
    objects than --limit would be deleted or stopped at once, or if the breaker of the new policy would trip.

    If the policy in force is unknown, or another part could not be read, the exit code is 1.
    """
    namespace, policy = options.namespace, options.policy
    named, view = NamedKinds.choose(options.kinds), view_of(**chosen)
    _check_options(policy, view, has_comparison=against is not None or limit is not None or yes)
    check_scope(options, accept=accept)
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        if namespace and await is_absent(namespace, cluster):
            raise TtlError(f"namespace {namespace} does not exist on {cluster.server}")
        new, old = force.choose(policy), force.choose(against) if policy else None
        if old and not old.is_known and new.leads:  # then the policy in force is this very file
            old = new
        policies = [old.policy, new.policy] if old else [new.policy]
        async with opened_archives(force, *([new, old] if old else [new])) as archives:
            preview = await read_preview(
                cluster, force.kinds, policies, named=named, namespace=namespace, archives=archives
            )
        planned = await find_planned(cluster, options, new.policy)
    named.warn()
    if old is not None and new.leads:
        warn(f"policy: {printable(new.message)}")
    is_shown = old is None and output == "text"
    is_complete = warn_about(preview, force, old or new, is_shown=is_shown, is_compared=old is not None)
    warn_about_planned(planned)
    code = 0 if is_complete and not planned.problem else 1
    owners = [printable(one) for one in describe_owners(preview.objects, new.policy, force.kinds)]
    if old is not None:
        is_too_many = _print_comparison(
            preview, new, old, limit, output=output, everything=everything, yes=yes, planned=planned, owners=owners
        )
        code = TOO_MANY if is_too_many and not yes else code
    else:
        _print_policy(preview, new, view, planned, everything=everything, output=output)
        for sentence in owners:
            warn(sentence, fg="yellow")
    if accept:
        await accept_plan(options, new.policy, force.home, code=code)
    if code:
        raise SystemExit(code)


def _print_policy(
    preview: Preview, new: PolicyInForce, view: PlanView, planned: PlannedUsage, *, everything: bool, output: str
) -> None:
    """Print what one policy leads to, on standard output."""
    if output == "text":
        print_plan(preview.objects, view)
        print_planned(planned)
        echo(f"policy: {printable(new.message)}")
    elif view.by:
        click.echo(json.dumps(rows_as_json(preview.objects, view) | {"unused": planned.as_json()}, indent=2))
    else:
        shown = [
            one for one in preview.objects if everything or is_ahead(one.decisions[0]) or is_stop_ahead(one.stops[0])
        ]
        reports = [as_json(one.ref, one.decisions[0], one.stops[0]) for one in shown]
        click.echo(json.dumps([*reports, *planned.as_json()], indent=2))


def _check_options(policy: Path | None, view: PlanView, *, has_comparison: bool) -> None:
    """Check which options go together.

    Raises:
        UsageError: An option needs --policy, or does not apply with it.
    """
    if policy is None and has_comparison:
        raise click.UsageError("--against, --limit and --yes require --policy FILE")
    if policy is not None and not view.is_default:
        raise click.UsageError("--by, --sort, --top, --names and --forecast show one policy: omit --policy")


def _print_comparison(
    preview: Preview,
    new: PolicyInForce,
    in_force: PolicyInForce,
    limit: int | None,
    *,
    output: str,
    everything: bool,
    yes: bool,
    planned: PlannedUsage = NOTHING_PLANNED,
    owners: Sequence[str] = (),
) -> bool:
    """Print the comparison on standard output, and the warnings on standard error.

    Returns:
        Whether more objects are due at once than the limit, or than the policy's breaker allows.
    """
    comparison = Comparison(preview.objects)
    warning = check_limit(comparison, new.policy.limits, limit, planned.at_once)
    trips = list(describe_breaker(comparison, new.policy.limits.breaker))
    safeguards = [*trips, *describe_budgets(comparison, new.policy.limits)]
    deadlines = list(describe_deadlines(comparison, new.policy))
    if output == "json":
        names = {"policy": str(new), "inForce": str(in_force) if in_force.is_known else "unknown"}
        document = as_document(comparison, names, warning, safeguards, deadlines, owners)
        click.echo(json.dumps(document | {"unused": planned.as_json()}))  # indenting takes a second more
    else:
        why = "" if in_force.is_known else " (the policy in force is unknown)"
        echo(f"{new}, compared with {in_force}{why}; (+8): 8 more than under {in_force}")
        show(output_console(), comparison, everything=everything)
        print_planned(planned)
        if unused := ", ".join(find_unused(comparison, new.policy)):
            echo(f"no finished object gets its TTL from: {unused}")
    for sentence in (*safeguards, *map(printable, deadlines), *owners):
        warn(sentence, fg="yellow")
    if warning.is_raised:
        confirm = "" if yes else f". The exit code is {TOO_MANY}; to confirm, set --yes or a higher --limit"
        warn(f"WARNING: {warning}{confirm}", fg="red", bold=True)
    if trips and not yes and not warning.is_raised:
        code = f"The exit code is {TOO_MANY}; to confirm, set --yes"
        warn(f"WARNING: the policy's breaker would trip. {code}", fg="red", bold=True)
    return warning.is_raised or bool(trips)


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
