"""`plan`: what would be deleted now, and what is due when."""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from shared.cli import options
from shared.cli.look import Finding, find_all
from shared.cli.report import as_json, describe_time, is_ahead
from shared.cli.target import find_kinds
from shared.core.decide import Expire, Reason, Wait
from shared.errors import TtlError
from shared.usecases.judge import Judge
from shared.usecases.served import list_served, list_unserved

_SOON = timedelta(hours=1)
_HELD_BACK = (Reason.HELD, Reason.INVALID_TTL, Reason.OWNER_UNFINISHED, Reason.FINISH_TIME_UNKNOWN)


@click.command()
@click.option("-n", "--namespace", default="", metavar="NAME", help="Only this namespace. Default: all.")
@options.kinds_option
@options.kinds_dir_option
@options.cluster_options
@click.option("--all", "everything", is_flag=True, help="With -o json: also the objects that stay.")
@options.output
@options.asynchronous
async def plan(
    namespace: str,
    kinds: str,
    kinds_dir: Path | None,
    kubeconfig: str | None,
    context: str | None,
    everything: bool,
    output: str,
) -> None:
    """Show what would be deleted now, and what is due when, per namespace and kind. Deletes nothing."""
    known = options.known_kinds(kinds_dir)
    findings: list[Finding] = []
    refused: list[TtlError] = []
    async with options.connected(kubeconfig, context) as cluster:
        judge = Judge(cluster, known, only=namespace)
        wanted = await find_kinds(cluster, known, kinds)
        served = await list_served(wanted, cluster=cluster, namespace=namespace)
        for word in list_unserved(
            options.split_kinds(kinds), served
        ):  # who names a kind wants to know that there is none
            click.echo(f"{word}: not served by {cluster.server}{', or in no namespace' if namespace else ''}", err=True)
        for rule in served:
            try:
                findings += [one async for one in find_all(cluster, rule, judge=judge, namespace=namespace)]
            except TtlError as error:
                click.echo(f"{rule.plural}: {error}", err=True)
                refused.append(error)
    if refused and len(refused) == len(served):
        raise refused[0]
    if output == "json":
        told = [one for one in findings if everything or is_ahead(one.decision)]
        click.echo(json.dumps([as_json(one.ref, one.decision) for one in told], indent=2))
    else:
        _print_table(findings)
    if refused:
        raise SystemExit(1)  # what is missing was said; a script must not take the rest for all


def _print_table(findings: Sequence[Finding]) -> None:
    groups: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.ref.namespace, finding.ref.kind].append(finding)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("NAMESPACE", "KIND"):
        table.add_column(name)
    for name in ("DUE NOW", "WITHIN 1H", "LATER", "NEXT DUE", "HELD BACK", "OTHERS"):
        table.add_column(name, justify="right")
    for (namespace, kind), group in sorted(groups.items()):
        table.add_row(namespace or "-", kind, *_summary(group))
    if groups:
        Console(soft_wrap=True).print(table)
    due_now = sum(isinstance(one.decision, Expire) for one in findings)
    later = sum(isinstance(one.decision, Wait) for one in findings)
    click.echo(f"{due_now} due now, {later} due later, {len(findings) - due_now - later} stay, of {len(findings)}")


def _summary(group: Sequence[Finding]) -> tuple[str, ...]:
    now: datetime = group[0].now
    due_now = sum(isinstance(one.decision, Expire) for one in group)
    dues = sorted(one.decision.until for one in group if isinstance(one.decision, Wait))
    soon = sum(due <= now + _SOON for due in dues)
    held_back = sum(one.decision.reason in _HELD_BACK for one in group)
    rest = len(group) - due_now - len(dues) - held_back
    next_due = describe_time(dues[0], now) if dues else "-"
    return (str(due_now), str(soon), str(len(dues) - soon), next_due, str(held_back), str(rest))
