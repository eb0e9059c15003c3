"""`explain`: the decision about one object, its reason, and what to do."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from shared.adapters.clock import SystemClock
from shared.cli.deleters.in_force import read_in_force
from shared.cli.deleters.obstacles import ExplainContext, find_obstacles, find_stale_guard
from shared.cli.documents.reader import open_file, read_documents
from shared.cli.objects.explanation import as_text
from shared.cli.objects.object_report import as_json
from shared.cli.objects.preview import ObjectPreview, find_offline, find_one, no_cyclic_collection
from shared.cli.options.click_options import (
    cluster_options,
    kinds_dir_option,
    namespace_option,
    output_option,
    policy_in_force_option,
)
from shared.cli.options.scope import command
from shared.cli.options.target import find_rule, parse_target, split_target
from shared.cli.options.values import known_kinds, read_policy
from shared.cli.output.messages import show_count
from shared.cli.output.width import terminal_width
from shared.cli.process.asynchronous import asynchronous
from shared.cli.process.connection import connected, context_namespace
from shared.core.objects import parse_instant
from shared.installation.guard_status import read_guard


def _instant(_context: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@command()
@click.argument("target", nargs=-1, metavar="KIND/NAME")
@click.option(
    "-f", "--filename", metavar="FILE", help="Explain every document of a YAML file, without a cluster; - for stdin."
)
@click.option(
    "--now", callback=_instant, metavar="TIME", help="With -f: the time of the decision (RFC 3339). Default: now."
)
@namespace_option
@kinds_dir_option
@policy_in_force_option
@cluster_options
@output_option
@asynchronous
async def explain(
    target: tuple[str, ...],
    filename: str | None,
    now: datetime | None,
    namespace: str | None,
    kinds_dir: Path | None,
    policy: Path | None,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Show the decision about an object, its reason and what to do; then its finish time and the source of its TTL.

    The installed policy applies, unless --policy or $TTL_POLICY names another. With -f, only a named policy applies.
    """
    if filename is not None:
        if target:
            raise click.UsageError("expected either KIND/NAME or -f FILE, got both")
        kinds = known_kinds(kinds_dir)
        in_force = read_policy(policy, kinds)
        with sys.stdin if filename == "-" else open_file(filename) as stream:
            moment = now or SystemClock().now()
            with no_cyclic_collection():
                documents = list(show_count(read_documents(stream, filename)))
                found = await find_offline(documents, kinds=kinds, now=moment, policy=in_force)
                _print([(one, None) for one in found], output)
        return
    if now is not None:
        raise click.UsageError("--now requires -f: for an object of a cluster, the cluster's clock counts")
    split_target(target, or_else=", or -f FILE")
    async with connected(kubeconfig, context) as cluster:
        force = await read_in_force(cluster, kinds_dir, kubeconfig=kubeconfig, context=context)
        chosen = force.choose(policy)
        rules, name = parse_target(target, force.kinds)
        rule = await find_rule(cluster, rules, target[0])
        place = namespace or context_namespace(kubeconfig, context) if rule.scope == "Namespaced" else ""
        one = await find_one(
            cluster, rule, kinds=force.kinds, namespace=place, name=name, policy=chosen.policy, flags=force.flags
        )
        guard = await read_guard(cluster, force.kinds.of(rule.group, rule.kind), force.home)
        obstacles = (
            *find_obstacles(force, one.ref, rule, one.decision, one.now),
            *find_stale_guard(force, rule, one.decision, guard),
        )
        _print([(one, ExplainContext(chosen, obstacles, force.flags, guard))], output)


def _print(findings: Sequence[tuple[ObjectPreview, ExplainContext | None]], output: str) -> None:
    if output == "json":
        reports = [as_json(one.ref, one.decision, one.related, context) for one, context in findings]
        click.echo(json.dumps(reports[0] if len(reports) == 1 else reports, indent=2))
        return
    width = terminal_width()
    for one, context in findings:
        sys.stdout.write(as_text(one, context, width) + "\n")  # click flushes each
    sys.stdout.flush()
