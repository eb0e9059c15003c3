"""`explain`: the decision about one object, its reason, and what to do."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from shared.adapters.clock import SystemClock
from shared.cli.archive.gone import explain_gone
from shared.cli.archive.reachable import opened_archives
from shared.cli.deleters.in_force import InForce, read_in_force
from shared.cli.deleters.obstacles import find_obstacles, find_stale_guard
from shared.cli.input.command import command
from shared.cli.input.documents import open_file, read_documents
from shared.cli.input.options import (
    Options,
    context_namespace_option,
    known_kinds,
    object_options,
    output_option,
    read_policy,
    references_dir_option,
)
from shared.cli.input.target import connected, find_rule, namespace_of, parse_target, ref_to, split_target
from shared.cli.objects.deadline_report import is_stop_ahead
from shared.cli.objects.explanation import as_text
from shared.cli.objects.if_archived import if_archived
from shared.cli.objects.object_report import ExplainContext, as_json
from shared.cli.objects.offline import find_offline
from shared.cli.objects.preview import AbsentObjectError, ObjectPreview, find_one, no_cyclic_collection
from shared.cli.output.messages import inform, show_count
from shared.cli.output.width import terminal_width
from shared.cli.usage.findings import find_usage_kind
from shared.cli.usage.printing import print_usage
from shared.core.kinds.rule import KindRule
from shared.core.objects import parse_instant
from shared.installation.guard_status import read_guard

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


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
@context_namespace_option
@references_dir_option
@object_options
@output_option
async def explain(
    options: Options, *, target: tuple[str, ...], filename: str | None, now: datetime | None, output: str
) -> None:
    """Show the decision about an object, its reason and what to do; then its finish time, its TTL and its deadline.

    For a Secret or a ConfigMap: show which objects refer to it, or since when it is unused.

    If the object does not exist, the archives of the policy are searched for it.

    The installed policy applies, unless --policy or $TTL_POLICY names another. With -f, only a named policy applies.
    """
    if filename is not None:
        if target:
            raise click.UsageError("expected either KIND/NAME or -f FILE, got both")
        kinds = known_kinds(options.kinds_dir)
        in_force = read_policy(options.policy, kinds)
        with sys.stdin if filename == "-" else open_file(filename) as stream:
            moment = now or SystemClock().now()
            with no_cyclic_collection():
                documents = list(show_count(read_documents(stream, filename)))
                if not documents:
                    inform(f"note: {filename} has no objects")
                found = await find_offline(documents, kinds=kinds, now=moment, policy=in_force)
                _print([(one, None) for one in found], output)
        return
    if now is not None:
        raise click.UsageError("--now requires -f: for an object of a cluster, the cluster's clock counts")
    word, name = split_target(target, or_else=", or -f FILE")
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        if (usage_kind := find_usage_kind(word)) is not None:
            await _explain_usage(cluster, usage_kind, name, options=options, force=force, output=output)
            return
        chosen = force.choose(options.policy)
        rules, _ = parse_target(target, force.kinds)
        rule = await find_rule(cluster, rules, target[0])
        place = namespace_of(options) if rule.scope == "Namespaced" else ""
        try:
            async with opened_archives(force, chosen) as archives:
                one = await find_one(
                    cluster,
                    rule,
                    kinds=force.kinds,
                    namespace=place,
                    name=name,
                    policy=chosen.policy,
                    flags=force.flags,
                    archives=archives,
                )
        except AbsentObjectError as error:
            ref, cluster_name = ref_to(rule, place, name), force.cluster_name
            await explain_gone(error, ref, rule, chosen, cluster=cluster_name, flags=force.flags, output=output)
            return
        guard = await read_guard(cluster, force.kinds.of(rule.group, rule.kind), force.home)
        # A running object can only be stopped, and a finished one only be deleted.
        ahead = one.stop if one.stop and is_stop_ahead(one.stop) else if_archived(one.decision, one.now)
        obstacles = (
            *find_obstacles(force, one.ref, rule, decision=ahead, now=one.now),
            *find_stale_guard(force, rule, one.decision, guard=guard),
        )
        _print([(one, ExplainContext(chosen, obstacles, force.flags, guard))], output)


async def _explain_usage(
    cluster: "KubernetesCluster", rule: KindRule, name: str, *, options: Options, force: InForce, output: str
) -> None:
    """Print whether a Secret or a ConfigMap is used, and the decision about it."""
    try:
        await print_usage(cluster, rule, name, options=options, force=force, output=output)
    except AbsentObjectError as error:
        chosen, ref = force.choose(options.policy), ref_to(rule, namespace_of(options), name)
        await explain_gone(error, ref, rule, chosen, cluster=force.cluster_name, flags=force.flags, output=output)


def _print(findings: Sequence[tuple[ObjectPreview, ExplainContext | None]], output: str) -> None:
    if output == "json":
        reports = [as_json(one.ref, one.decision, one.stop, one.related, context=context) for one, context in findings]
        click.echo(json.dumps(reports[0] if len(reports) == 1 else reports, indent=2))
        return
    width = terminal_width()
    for one, context in findings:
        sys.stdout.write(as_text(one, context, width) + "\n")  # click flushes each
    sys.stdout.flush()
