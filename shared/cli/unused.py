"""`unused` and `references`: the Secrets and ConfigMaps to which nothing refers now, and what refers to one of them."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from shared.cli.deleters.in_force import read_in_force
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    all_namespaces_option,
    cluster_options,
    context_namespace_option,
    kinds_dir_option,
    object_options,
    output_option,
    policy_in_force_option,
    references_dir_option,
)
from shared.cli.input.target import connected, is_absent, split_target
from shared.cli.output.printing import echo, warn
from shared.cli.usage.findings import UsageFinding, carriers_of, find_all_usage, find_usage_kind
from shared.cli.usage.usage_report import describe_never_used, describe_unknown, print_usage, usage_as_json
from shared.core.usage.unused_reasons import NEVER_DELETED
from shared.core.values.objects import get_text, printable, ref_of
from shared.core.values.timing import format_duration
from shared.errors import TtlError
from shared.evaluation.usage_reader import UsageReader

_TITLES = ("NAMESPACE", "KIND", "NAME", "AGE", "KEYS", "USED BEFORE", "UNUSED FOR", "DUE", "REASON")
_NEVER_USED = ("NAMESPACE", "KIND", "NEVER USED", "AGE", "KEYS", "METADATA", "DUE", "REASON")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@command()
@all_namespaces_option
@references_dir_option
@kinds_dir_option
@policy_in_force_option
@cluster_options
@click.option("--all", "everything", is_flag=True, help="Also show objects that are never deleted, such as releases.")
@output_option
async def unused(options: Options, *, everything: bool, output: str) -> None:
    """List the Secrets and ConfigMaps to which nothing refers, by namespace and age. Deletes nothing.

    Objects that were never seen used are listed apart. Programs may find them by a name, a label, or a text in data, so
    they are kept. USED BEFORE says what shows the use of an object: a pass of `usage` or `run` has recorded it, or a
    newer generation of it is or was used.

    KEYS is the number of keys of the data. The data is not read, so its bytes are unknown. UNUSED FOR is the time
    since an object was marked as unused; an object that no policy rule with `unused` matches is not marked.

    If a kind that may refer to them cannot be listed in the whole cluster, it is unknown what is unused. Then only the
    error is printed, also with -o json, and the exit code is 1. If the policy in force is unknown, the exit code is 1.
    """
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        if options.namespace and await is_absent(options.namespace, cluster):
            raise TtlError(f"namespace {options.namespace} does not exist on {cluster.server}")
        chosen = force.choose(options.policy)
        reader = UsageReader(cluster, carriers_of(options))
        found, candidates = await find_all_usage(reader, cluster, namespace=options.namespace, policy=chosen.policy)
    if problem := found.of.find_problem():
        raise TtlError(f"it is unknown what is unused: {printable(problem)}")
    known = [one for one in candidates if one.is_used is False]
    shown = [one for one in known if everything or one.decision.reason not in NEVER_DELETED]
    shown.sort(key=lambda one: (ref_of(one.target.obj).namespace, one.created_at or _LONG_AGO))
    if output == "json":
        click.echo(json.dumps([usage_as_json(one) for one in shown], indent=2))
    else:
        left = [one for one in shown if not one.is_never_used]
        _print_table(_TITLES, [_row(one) for one in left])
        _print_totals(left, hidden=len(known) - len(shown))
        if never := [one for one in shown if one.is_never_used]:
            _print_table(_NEVER_USED, [_never_used_row(one) for one in never])
            echo(describe_never_used(never))
        echo(f"policy: {printable(chosen.message)}")
    if unknown := [one for one in candidates if one.is_used is None]:
        warn(describe_unknown(unknown), fg="yellow")
    if not chosen.is_known:
        if output == "json":
            warn(f"policy: {printable(chosen.message)}")
        raise SystemExit(1)


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from shared.cli.output.tables import make_table, output_console  # noqa: PLC0415 - 30 ms that JSON does not need

    if rows:
        console = output_console()
        console.print(make_table(titles, rows, width=console.width, names=3, justify="left"))


def _row(one: UsageFinding) -> tuple[str, ...]:
    unused_for = format_duration(one.now - one.unused_since) if one.unused_since else ""
    return *_first_cells(one), _describe_evidence(one), unused_for, *_last_cells(one)


def _never_used_row(one: UsageFinding) -> tuple[str, ...]:
    return *_first_cells(one), f"{one.metadata_bytes:,} B", *_last_cells(one)


def _first_cells(one: UsageFinding) -> tuple[str, ...]:
    """The cells that say which object it is."""
    ref = ref_of(one.target.obj)
    age = format_duration(one.now - one.created_at) if one.created_at else ""
    keys = "" if one.target.keys is None else str(one.target.keys)
    return printable(ref.namespace), get_text(one.target.obj, "kind"), printable(ref.name), age, keys


def _last_cells(one: UsageFinding) -> tuple[str, ...]:
    """The cells that say when it is due, and why."""
    due_at = one.decision.facts.due_at
    due = "" if due_at is None else ("now" if due_at <= one.now else format_duration(due_at - one.now))
    return due, one.decision.reason


def _describe_evidence(one: UsageFinding) -> str:
    """Say what shows that an object was used."""
    facts = one.decision.facts
    if facts.used_at is not None:
        return f"seen {format_duration(one.now - facts.used_at)} ago"
    return f"newer: {printable(facts.used_newer)}" if facts.used_newer else ""


def _print_totals(shown: Sequence[UsageFinding], *, hidden: int) -> None:
    kinds = Counter(get_text(one.target.obj, "kind") for one in shown)
    keys = sum(one.target.keys or 0 for one in shown)
    namespaces = len({ref_of(one.target.obj).namespace for one in shown})
    names = " and ".join(_count(kinds[kind], kind) for kind in ("Secret", "ConfigMap"))
    counts = f"{names} with {_count(keys, 'key')} in {_count(namespaces, 'namespace')}"
    echo(f"unused: {counts}; the data is not read, so its bytes are unknown")
    if hidden:
        echo(f"{hidden} more: unused, and never deleted; to show them, set --all")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@command()
@click.argument("target", nargs=-1, metavar="KIND/NAME")
@context_namespace_option
@references_dir_option
@object_options
@output_option
async def references(options: Options, *, target: tuple[str, ...], output: str) -> None:
    """Show which objects refer to a Secret or a ConfigMap, and by which field; or since when it is unused.

    All kinds of the cluster that may refer to it are listed. The data of Secrets and ConfigMaps is not read. If a kind
    cannot be listed, it is unknown whether the object is used, and the object is kept. Then the exit code is 1.

    The installed policy applies, unless --policy or $TTL_POLICY names another. If the policy in force is unknown, and
    may change the decision, the exit code is 1.
    """
    word, name = split_target(target)
    rule = find_usage_kind(word)
    if rule is None:
        raise click.UsageError(f"expected a Secret or a ConfigMap, for instance configmap/settings, got {word!r}")
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        await print_usage(cluster, rule, name, options=options, force=force, output=output)
