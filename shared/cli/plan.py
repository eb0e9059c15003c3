"""`plan`: what would be deleted now, what is due when, and what another policy would make of it."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click
from rich.console import Console

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.cli.deleters.in_force import InForce, PolicyInForce, read_in_force
from shared.cli.deleters.obstacles import find_idle, find_open, looped_until
from shared.cli.objects.object_report import as_json, is_ahead
from shared.cli.objects.preview import Preview, find_all
from shared.cli.options.click_options import (
    all_namespaces_option,
    cluster_options,
    kinds_dir_option,
    kinds_option,
    output_option,
)
from shared.cli.options.scope import command, split_kinds
from shared.cli.options.target import find_kinds, is_absent
from shared.cli.output.messages import warn
from shared.cli.output.width import WIDE, echo, make_table, terminal_width
from shared.cli.policies.comparison import Comparison
from shared.cli.policies.comparison_output import as_document, show
from shared.cli.policies.policy_warnings import LIMIT, PolicyWarning, describe_safeguards, find_unused, sound
from shared.cli.process.asynchronous import asynchronous
from shared.cli.process.connection import connected
from shared.core.decide import Expire, Reason, Wait
from shared.core.kinds.rule import Catalogue
from shared.core.objects import ObjectRef, printable
from shared.core.policy.policy import Policy
from shared.core.ttl.durations import format_duration
from shared.errors import TtlError
from shared.evaluation.batch import BatchResult
from shared.evaluation.served import list_served, list_unserved

TOO_MANY = 3
"""The exit code where more would go at once than the limit."""

_TITLES = ("NAMESPACE", "KIND", "DUE NOW", "WITHIN 1H", "LATER", "NEXT DUE", "HELD BACK", "OTHERS")
_SHOWN = 5
_UNIT = re.compile(r"\d+[a-z]+")
_SOON = timedelta(hours=1)
_HELD_BACK = (
    Reason.HELD,
    Reason.EXEMPT,
    Reason.INVALID_POLICY,
    Reason.INVALID_TTL,
    Reason.OWNER_UNFINISHED,
    Reason.DISPATCHED,
    Reason.AGGREGATED_API,
    Reason.FINISH_TIME_UNKNOWN,
    Reason.NAMESPACE_UNREAD,
    Reason.KEPT_LAST,
)


@command()
@all_namespaces_option
@kinds_option
@kinds_dir_option
@click.option(
    "--policy",
    metavar="FILE|none",
    type=click.Path(path_type=Path),
    help="What this policy, or none, would change. Default: the policy in force, compared with nothing.",
)
@click.option(
    "--against",
    metavar="FILE|cluster|none",
    type=click.Path(path_type=Path),
    help="What --policy is compared with: a file, the policy that is installed, or none. Default: the one in force, "
    "which is that of $TTL_POLICY, else the installed one.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"With --policy: so many may go at once. Default: as many as its breaker's count says, else {LIMIT:,}.",
)
@click.option("--yes", is_flag=True, help="With --policy: more may go; the exit code is 0 all the same.")
@cluster_options
@click.option("--all", "everything", is_flag=True, help="All rows and objects; with -o json also those that stay.")
@output_option
@asynchronous
async def plan(
    namespace: str,
    kinds: str,
    kinds_dir: Path | None,
    policy: Path | None,
    against: Path | None,
    limit: int | None,
    yes: bool,
    kubeconfig: str | None,
    context: str | None,
    everything: bool,
    output: str,
) -> None:
    """Show what would be deleted now, and what is due when, per namespace and kind. Deletes nothing.

    With --policy: what would become of every object under that policy, beside what becomes of it under the policy in
    force, per rule, kind and namespace, and which objects change; `120 (+8)` is 120 under the new one, 8 more than
    under the other. The exit code is 3 where more objects than --limit would go at once.
    """
    enabled = () if kinds else read_settings().kinds
    if policy is None and (against is not None or limit is not None or yes):
        raise click.UsageError("--against, --limit and --yes go with --policy FILE")
    async with connected(kubeconfig, context) as cluster:
        force = await read_in_force(cluster, kinds_dir, kubeconfig=kubeconfig, context=context)
        if namespace and await is_absent(namespace, cluster):
            raise TtlError(f"namespace {namespace} does not exist on {cluster.server}")
        new, old = force.choose(policy), force.choose(against) if policy else None
        policies = [old.policy, new.policy] if old else [new.policy]
        words, named_by = (",".join(enabled), "TTL_KINDS") if enabled else (kinds, "--kinds")
        sight = await _look(cluster, force.kinds, policies, kinds=words, named_by=named_by, namespace=namespace)
    if enabled:
        warn(f"only {', '.join(enabled)}, by TTL_KINDS; --kinds all: every kind")
    is_compared = old is not None
    is_whole = _tell(sight, force, old or new, is_named=not is_compared and output == "text", is_compared=is_compared)
    code = 0 if is_whole else 1
    if old is not None:
        alarm = _print_comparison(sight, new, old, limit, output=output, everything=everything, yes=yes)
        code = TOO_MANY if alarm.is_raised and not yes else code
    elif output == "json":
        told = [one for one in sight.objects if everything or is_ahead(one.decisions[0])]
        click.echo(json.dumps([as_json(one.ref, one.decisions[0]) for one in told], indent=2))
    else:
        print_table(sight.objects)
        echo(f"policy: {printable(new.message)}")
    if code:
        raise SystemExit(code)


def _tell(sight: Preview, force: InForce, in_force: PolicyInForce, *, is_named: bool, is_compared: bool) -> bool:
    """What must be known beside the numbers, on standard error.

    Args:
        sight: What was seen.
        force: What was found of who deletes.
        in_force: The policy that counts.
        is_named: Whether it is told beside the numbers anyway.
        is_compared: Whether two policies are: what one would delete need have nobody yet who deletes it.

    Returns:
        Whether nothing is missing: a script must not take the rest for all.
    """
    unread = sum(one.decisions[-1].reason is Reason.NAMESPACE_UNREAD for one in sight.objects)
    if unread:
        warn(f"namespaces may not be read (get, list): {unread} objects stay, whatever is said of them")
    if (not in_force.is_known or in_force.differs) and not is_named:
        warn(f"policy: {printable(in_force.message)}")
    if sight.objects:
        for one in find_open(force, sight.objects[0].now):
            warn(f"{printable(one.message)}; {one.cure}", fg="yellow")
    ahead = [one for one in sight.objects if is_ahead(one.decisions[-1])]
    idle = Counter(
        f"{at.message}; {at.cure}" for one in ahead for at in find_idle(force, one.ref, one.rule, one.decisions[-1])
    )
    for told, count in idle.items() if not is_compared else ():
        warn(f"{count} due, now or later: {printable(told)}", fg="yellow")
    if looped := [one.ref for one in ahead if looped_until(force, one.ref, one.now)]:
        said = "whose name is in a recreate loop, so that they are left alone for a while"
        warn(f"{len(looped)} {said}: {_shown(looped)}", fg="yellow")
    if sight.saved:
        said = "a TTL that a hold put aside, which is gone: nothing acts on it until `kubectl ttl release` puts it back"
        warn(f"{len(sight.saved)} with {said}: {_shown(sight.saved)}")
    unreadable = bool(force.policy_problem) and not in_force.is_known
    return not (sight.refused or sight.unreadable or unread or unreadable)


def _shown(refs: Sequence[ObjectRef]) -> str:
    return printable(", ".join(map(str, refs[:_SHOWN])) + (", ..." if len(refs) > _SHOWN else ""))


async def _look(
    cluster: KubernetesCluster,
    known: Catalogue,
    policies: Sequence[Policy],
    *,
    kinds: str,
    named_by: str,
    namespace: str,
) -> Preview:
    """Everything of the kinds that are meant; what is not to be had is said.

    Raises:
        TtlError: Nothing is to be had.
    """
    wanted = await find_kinds(cluster, known, kinds, named_by=named_by)
    served = await list_served(wanted, cluster=cluster, namespace=namespace)
    for word in list_unserved(split_kinds(kinds), served):  # who names a kind wants to know that there is none
        warn(f"{word}: not served by {cluster.server}{', or in no namespace' if namespace else ''}")
    sight = await find_all(cluster, served, policies=policies, kinds=known, namespace=namespace)
    for rule, error in sight.refused:
        warn(printable(f"{rule.plural}: {error}"))
    for left_out in sight.unreadable:
        warn(printable(f"{left_out.ref}: cannot be read and is kept: {left_out.problem}"))
    if sight.refused and len(sight.refused) == len(served):
        raise sight.refused[0][1]
    return sight


def _print_comparison(
    sight: Preview,
    new: PolicyInForce,
    in_force: PolicyInForce,
    limit: int | None,
    *,
    output: str,
    everything: bool,
    yes: bool,
) -> PolicyWarning:
    """The comparison on standard output, and on the other what must not be overlooked."""
    comparison = Comparison(sight.objects)
    alarm = sound(comparison, new.policy.limits, limit)
    safeguards = list(describe_safeguards(comparison, new.policy.limits))
    if output == "json":
        names = {"policy": str(new), "inForce": str(in_force)}
        click.echo(json.dumps(as_document(comparison, names, alarm, safeguards)))  # indented it takes a second more
    else:
        echo(f"{new}, compared with {in_force}; (+8) is 8 more than under that")
        show(_console(), comparison, everything=everything)
        if unused := ", ".join(find_unused(comparison, new.policy)):
            echo(f"no finished object here has its ttl by: {unused}")
    for sentence in safeguards:
        warn(sentence, fg="yellow")
    if alarm.is_raised:
        mind = "" if yes else f". The exit code is {TOO_MANY}; --yes or a higher --limit says that it is meant"
        warn(f"WARNING: {alarm}{mind}", fg="red", bold=True)
    return alarm


def print_table(objects: Sequence[BatchResult]) -> None:
    """For each namespace and kind, how many objects are due and when, on standard output."""
    groups: defaultdict[tuple[str, str], list[BatchResult]] = defaultdict(list)
    for one in objects:
        groups[one.ref.namespace, one.ref.kind].append(one)
    rows = [(namespace or "-", kind, *_summary(group)) for (namespace, kind), group in sorted(groups.items())]
    if rows:
        console = _console()
        console.print(make_table(_TITLES, rows, width=console.width, names=2, gap=2))
    decisions = [one.decisions[0] for one in objects]
    due_now = sum(isinstance(one, Expire) for one in decisions)
    later = sum(isinstance(one, Wait) for one in decisions)
    echo(f"{due_now} due now, {later} due later, {len(objects) - due_now - later} stay, of {len(objects)}")


def _console() -> Console:
    """As wide as the terminal; elsewhere lines are not wrapped, since scripts search them."""
    return Console(width=terminal_width() or WIDE, highlight=False)


def _describe_roughly(time_left: timedelta) -> str:
    """`in 23h59m`: the two largest units, so that the table fits 80 columns."""
    return f"in {''.join(_UNIT.findall(format_duration(time_left))[:2])}"


def _summary(group: Sequence[BatchResult]) -> tuple[str, ...]:
    now: datetime = group[0].now
    decisions = [one.decisions[0] for one in group]
    due_now = sum(isinstance(one, Expire) for one in decisions)
    dues = sorted(one.until for one in decisions if isinstance(one, Wait))
    soon = sum(due <= now + _SOON for due in dues)
    held_back = sum(one.reason in _HELD_BACK for one in decisions)
    rest = len(group) - due_now - len(dues) - held_back
    next_due = _describe_roughly(dues[0] - now) if dues else "-"
    return (str(due_now), str(soon), str(len(dues) - soon), next_due, str(held_back), str(rest))
