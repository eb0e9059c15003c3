"""`deleted`: what was deleted, stopped, archived or refused, when and why, as the Events of the journal show it."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    cluster_options,
    context_namespace_option,
    duration_option,
    kinds_dir_option,
    known_kinds,
    output_option,
)
from shared.cli.input.target import connected, namespace_of, parse_target, split_target
from shared.cli.objects.journal import WORDS, FoundEntries, entry_as_json, find_entries, source_of, why
from shared.cli.output.printing import describe_time, inform, plural, wrap_labelled
from shared.cli.usage.findings import find_usage_kind
from shared.core.values.objects import format_instant, printable
from shared.core.values.timing import format_duration
from shared.errors import TtlError
from shared.ports import JournalAction


@command()
@click.argument("target", nargs=-1, metavar="[KIND/NAME]")
@context_namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@click.option("--since", callback=duration_option, metavar="TIME", help="Only those of the last TIME, such as 2h.")
@click.option("--stopped", "is_stopped", is_flag=True, help="Show what was stopped at an active deadline instead.")
@click.option("--archived", "is_archived", is_flag=True, help="Show what was archived instead.")
@click.option("--refused", "is_refused", is_flag=True, help="Show refusals instead.")
@kinds_dir_option
@cluster_options
@output_option
async def deleted(
    options: Options,
    *,
    target: tuple[str, ...],
    everywhere: bool,
    since: timedelta | None,
    is_stopped: bool,
    is_archived: bool,
    is_refused: bool,
    output: str,
) -> None:
    """Show what was deleted, when and why. Of an object that is named: all facts of its deletion.

    The answer is from the Events of the journal. An API server keeps them for one hour by default. Of many deletions in
    a short time, the Events have the first names, and count the rest by namespace, kind, reason and source. With
    --refused: what was not deleted, stopped or archived, because the API server or an archive refused it. A sweep
    tries it again.
    """
    action = _action(is_stopped=is_stopped, is_archived=is_archived, is_refused=is_refused)
    if everywhere and (options.namespace or target):
        raise click.UsageError("-A requires no -n, and no KIND/NAME")
    kinds, name, is_namespaced = _parse(target, options)
    async with connected(options) as cluster:
        place = "" if everywhere else namespace_of(options) if is_namespaced else "default"
        start = None if since is None else SystemClock().now() - since
        found = await find_entries(cluster, action, namespace=place, kinds=kinds, name=name, since=start)
    now = SystemClock().now()
    if name and not found.named:
        where = f" in namespace {printable(place)}" if is_namespaced else ""
        raise TtlError(
            f"no Event{where} says that {printable(' '.join(target))} was {WORDS[action].done}{_among(found, action)}; "
            f"{WORDS[action].unknown}"
        )
    if output == "json":
        lists = {WORDS[action].listed: found.named, "counted": found.counted}
        click.echo(json.dumps({key: [entry_as_json(one) for one in ones] for key, ones in lists.items()}, indent=2))
    elif name:
        for one in found.named:
            _print_one(one, now, action)
    else:
        _print_table(found, now, action)
    if not name:
        _print_totals(found, since, action)


def _action(*, is_stopped: bool, is_archived: bool, is_refused: bool) -> JournalAction:
    given = {JournalAction.STOP: is_stopped, JournalAction.ARCHIVE: is_archived, JournalAction.REFUSE: is_refused}
    actions = [action for action, is_given in given.items() if is_given]
    if len(actions) > 1:
        raise click.UsageError("expected one of --stopped, --archived and --refused")
    return actions[0] if actions else JournalAction.DELETE


def _parse(target: tuple[str, ...], options: Options) -> tuple[frozenset[tuple[str, str]] | None, str, bool]:
    """Return the groups and kinds that are meant, the name, and whether they have namespaces; without one: all."""
    if not target:
        return None, "", True
    word, name = split_target(target)
    if (usage_kind := find_usage_kind(word)) is not None:
        return frozenset({(usage_kind.group, usage_kind.kind)}), name, True
    rules, _ = parse_target(target, known_kinds(options.kinds_dir))
    is_namespaced = any(rule.scope == "Namespaced" for rule in rules)
    return frozenset((rule.group, rule.kind) for rule in rules), name, is_namespaced


def _among(found: FoundEntries, action: JournalAction) -> str:
    if not found.count:
        return ""
    return f". It may be among {plural(found.count, WORDS[action].noun)} of this kind that the Events only count"


def _print_one(one: JournalEvent, now: datetime, action: JournalAction) -> None:
    """Print all facts about one entry."""
    lines = [
        (WORDS[action].done, f"{format_instant(one.at)} ({describe_past(one.at, now)})"),
        ("why", why(one)),
        ("uid", one.ref.uid),
    ]
    click.echo("\n".join((printable(str(one.ref)), *wrap_labelled(lines))))


def _print_table(found: FoundEntries, now: datetime, action: JournalAction) -> None:
    from shared.cli.output.tables import make_table, output_console  # noqa: PLC0415 - 30 ms that JSON does not need

    rows = [_row(one, now) for one in sorted((*found.named, *found.counted), key=lambda one: one.at, reverse=True)]
    if rows:
        console = output_console()
        titles = ("NAMESPACE", "KIND", "NAME", WORDS[action].done.upper(), "REASON", WORDS[action].source)
        console.print(make_table(titles, rows, width=console.width, names=3, justify="left", gap=2))


def describe_past(at: datetime, now: datetime) -> str:
    """Return `5m ago`; the clock of the process that wrote the Event may be ahead of this one."""
    return describe_time(at, now) if at < now else "just now"


def _row(one: JournalEvent, now: datetime) -> Sequence[str]:
    ref, reason = one.ref, str(one.data.get("reason") or one.reason)
    name = f"({one.count:,} more)" if one.is_sum else ref.name
    cells = (ref.namespace or "-", ref.kind, name, describe_past(one.at, now), reason, source_of(one))
    return [printable(cell) for cell in cells]


def _print_totals(found: FoundEntries, since: timedelta | None, action: JournalAction) -> None:
    total = len(found.named) + found.count
    counted = f", {found.count:,} of them only counted" if found.count else ""
    span = f" in the last {format_duration(since)}" if since is not None else ""
    inform(f"{plural(total, WORDS[action].noun)}{span}{counted}")
    inform(f"note: {WORDS[action].unknown}")
