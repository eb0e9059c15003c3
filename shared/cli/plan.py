"""`plan`: what would be deleted or stopped now, what is due when, and what another policy would change."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.cli.archive.reachable import opened_archives
from shared.cli.deleters.in_force import InForce, PolicyInForce, read_in_force
from shared.cli.deleters.obstacles import find_missing_deleter, find_stops, looped_until
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    all_namespaces_option,
    cluster_options,
    kinds_dir_option,
    kinds_option,
    output_option,
    references_dir_option,
    split_kinds,
)
from shared.cli.input.target import connected, find_kinds, is_absent
from shared.cli.objects.deadline_report import is_stop_ahead
from shared.cli.objects.if_archived import if_archived
from shared.cli.objects.kept_warnings import is_unread, name_some, warn_about_kept
from shared.cli.objects.object_report import as_json, is_ahead
from shared.cli.objects.plan_table import print_table
from shared.cli.objects.preview import Preview, find_all
from shared.cli.output.messages import warn
from shared.cli.output.tables import output_console
from shared.cli.output.width import echo
from shared.cli.policies.archive_warnings import describe_archives
from shared.cli.policies.comparison import Comparison
from shared.cli.policies.comparison_output import as_document, show
from shared.cli.policies.deadline_warnings import describe_deadlines
from shared.cli.policies.policy_warnings import LIMIT, PolicyWarning, check_limit, describe_safeguards, find_unused
from shared.cli.usage.acceptance import accept_option, accept_plan, check_scope
from shared.cli.usage.planned import NOTHING_PLANNED, PlannedUsage, find_planned, print_planned, warn_about_planned
from shared.core.decide import Ignore
from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import printable
from shared.core.policy.policy import Policy
from shared.errors import TtlError
from shared.evaluation.served import list_served, list_unserved
from shared.ports import Archives

TOO_MANY = 3
"""The exit code if a policy would delete more objects at once than the limit."""


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
    "--yes", is_flag=True, help="With --policy: exit with code 0 even if more objects than --limit are due at once."
)
@accept_option
@references_dir_option
@cluster_options
@click.option(
    "--all", "everything", is_flag=True, help="Show all rows and objects; with -o json also those that are kept."
)
@output_option
async def plan(
    options: Options, *, against: Path | None, limit: int | None, yes: bool, accept: bool, everything: bool, output: str
) -> None:
    """Show what would be deleted now, and what is due when, per namespace and kind. Deletes nothing.

    If objects have an active deadline, a second table shows the same for stops. If the policy has rules with `unused`,
    another table shows the Secrets and ConfigMaps to which nothing refers.

    With --policy: compare that policy with the one in force, per rule, kind and namespace, and list the objects whose
    decision changes. `120 (+8)` is 120 under the new policy, 8 more than under the other. The exit code is 3 if more
    objects than --limit would be deleted or stopped at once.
    """
    namespace, kinds, policy = options.namespace, options.kinds, options.policy
    enabled = () if kinds else read_settings().kinds
    if policy is None and (against is not None or limit is not None or yes):
        raise click.UsageError("--against, --limit and --yes require --policy FILE")
    check_scope(options, accept=accept)
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        if namespace and await is_absent(namespace, cluster):
            raise TtlError(f"namespace {namespace} does not exist on {cluster.server}")
        new, old = force.choose(policy), force.choose(against) if policy else None
        policies = [old.policy, new.policy] if old else [new.policy]
        names, named_by = (",".join(enabled), "TTL_KINDS") if enabled else (kinds, "--kinds")
        async with opened_archives(force, *([new, old] if old else [new])) as archives:
            preview = await _preview(
                cluster, force.kinds, policies, kinds=names, named_by=named_by, namespace=namespace, archives=archives
            )
        planned = await find_planned(cluster, options, new.policy)
    if enabled:
        warn(f"only {', '.join(enabled)}, set by TTL_KINDS; for every kind, set --kinds all")
    is_shown = old is None and output == "text"
    is_complete = _warn_about(preview, force, old or new, is_shown=is_shown, is_compared=old is not None)
    warn_about_planned(planned)
    code = 0 if is_complete and not planned.problem else 1
    if old is not None:
        warning = _print_comparison(
            preview, new, old, limit, output=output, everything=everything, yes=yes, planned=planned
        )
        code = TOO_MANY if warning.is_raised and not yes else code
    elif output == "json":
        shown = [
            one for one in preview.objects if everything or is_ahead(one.decisions[0]) or is_stop_ahead(one.stops[0])
        ]
        reports = [as_json(one.ref, one.decisions[0], one.stops[0]) for one in shown]
        click.echo(json.dumps([*reports, *planned.as_json()], indent=2))
    else:
        print_table(preview.objects)
        print_planned(planned)
        echo(f"policy: {printable(new.message)}")
    if accept:
        await accept_plan(options, new.policy, force.home, code=code)
    if code:
        raise SystemExit(code)


def _warn_about(
    preview: Preview, force: InForce, in_force: PolicyInForce, *, is_shown: bool, is_compared: bool
) -> bool:
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
    unread = sum(is_unread(one) for one in preview.objects)
    if unread:
        warn(f"{unread} objects are kept, since their namespaces could not be read: grant get and list on namespaces")
    if (not in_force.is_known or in_force.differs) and not is_shown:
        warn(f"policy: {printable(in_force.message)}")
    if preview.objects:
        for one in find_stops(force, preview.objects[0].now):
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
        warn(f"{len(looped)} kept for a while: their names are in a recreate loop: {name_some(looped)}", fg="yellow")
    warn_about_kept(preview)
    unreadable = bool(force.policy_problem) and not in_force.is_known
    return not (preview.refused or preview.unreadable or unread or unreadable)


async def _preview(
    cluster: KubernetesCluster,
    rules: Catalogue,
    policies: Sequence[Policy],
    *,
    kinds: str,
    named_by: str,
    namespace: str,
    archives: Archives | None,
) -> Preview:
    """Decide about every object of the named kinds, and warn about kinds and objects that could not be read.

    Raises:
        TtlError: No kind could be read.
    """
    wanted = await find_kinds(cluster, rules, kinds, named_by=named_by)
    served = await list_served(wanted, cluster=cluster, namespace=namespace)
    for word in list_unserved(split_kinds(kinds), served):  # the operator named the kind
        warn(f"{word}: not served by {cluster.server}{', or cluster-scoped' if namespace else ''}")
    preview = await find_all(cluster, served, policies=policies, kinds=rules, namespace=namespace, archives=archives)
    for rule, error in preview.refused:
        warn(printable(f"{rule.plural}: {error}"))
    for left_out in preview.unreadable:
        warn(printable(f"{left_out.ref}: cannot be read and is kept: {left_out.problem}"))
    if preview.refused and len(preview.refused) == len(served):
        raise preview.refused[0][1]
    return preview


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
) -> PolicyWarning:
    """Print the comparison on standard output, and the warnings on standard error."""
    comparison = Comparison(preview.objects)
    warning = check_limit(comparison, new.policy.limits, limit, planned.at_once)
    safeguards = list(describe_safeguards(comparison, new.policy.limits))
    deadlines = list(describe_deadlines(comparison, new.policy))
    archives = list(describe_archives(comparison, new.policy))
    if output == "json":
        names = {"policy": str(new), "inForce": str(in_force)}
        document = as_document(comparison, names, warning, safeguards, deadlines, archives)
        click.echo(json.dumps(document | {"unused": planned.as_json()}))  # indenting takes a second more
    else:
        echo(f"{new}, compared with {in_force}; (+8): 8 more than under {in_force}")
        show(output_console(), comparison, everything=everything)
        print_planned(planned)
        if unused := ", ".join(find_unused(comparison, new.policy)):
            echo(f"no finished object gets its TTL from: {unused}")
    for sentence in (*safeguards, *(printable(one) for one in (*deadlines, *archives))):
        warn(sentence, fg="yellow")
    if warning.is_raised:
        confirm = "" if yes else f". The exit code is {TOO_MANY}; to confirm, set --yes or a higher --limit"
        warn(f"WARNING: {warning}{confirm}", fg="red", bold=True)
    return warning
