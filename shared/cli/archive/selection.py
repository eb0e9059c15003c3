"""The stored objects that `archive ls` and `archive verify` are about."""

from dataclasses import dataclass
from datetime import timedelta

import click

from shared.adapters.clock import SystemClock
from shared.cli.archive.selected import NamedKind, name_kind, places_of, split_words
from shared.cli.archive.source import ArchiveSource
from shared.cli.input.duration import duration_option
from shared.cli.input.options import CallableT, Options, context_namespace_option
from shared.cli.input.target import namespace_of
from shared.cli.output.messages import inform
from shared.core.objects import printable
from shared.errors import TtlError
from shared.usecases.archive_search import ArchiveSelection


def selection_options(command: CallableT) -> CallableT:
    """Add the argument KIND or KIND/NAME, and the options that select stored objects."""
    since = click.option(
        "--since",
        callback=duration_option,
        metavar="TIME",
        help="Only objects that finished on the day this time ago (UTC), or later: 2d. Default: all.",
    )
    everywhere = click.option(
        "-A", "--all-namespaces", is_flag=True, help="In all namespaces, with the cluster-scoped objects."
    )
    target = click.argument("target", nargs=-1, metavar="[KIND[/NAME]]")
    return target(context_namespace_option(everywhere(since(command))))


@dataclass(frozen=True, slots=True)
class Selected:
    """What the arguments and options of a command select.

    Attributes:
        selection: What is selected.
        kind: The kind that is named; None for all kinds.
        namespace: The namespace; empty for all.
    """

    selection: ArchiveSelection
    kind: NamedKind | None
    namespace: str


def check_selection(target: tuple[str, ...], options: Options, *, all_namespaces: bool) -> tuple[str, str]:
    """Return the kind and the name that the arguments name, each of which may be empty.

    Raises:
        UsageError: The arguments or the options exclude each other.
    """
    if all_namespaces and options.namespace:
        raise click.UsageError("expected either --namespace or --all-namespaces, got both")
    return split_words(target)


def select(
    source: ArchiveSource, words: tuple[str, str], options: Options, *, all_namespaces: bool, since: timedelta | None
) -> Selected:
    """Find out what is selected.

    Args:
        source: The archive.
        words: The kind and the name, as `check_selection` returns them.
        options: They name the namespace.
        all_namespaces: Whether all namespaces are selected.
        since: How long ago the first day is; None for all days.
    """
    word, name = words
    kind = name_kind(word, source.kinds) if word else None
    namespace = "" if all_namespaces else namespace_of(options)
    places = None if all_namespaces else places_of(kind, namespace) if kind else (namespace,)
    first = (SystemClock().now() - since).date() if since is not None else None
    selection = ArchiveSelection(source.cluster, places, kind.matches if kind else None, name, first)
    return Selected(selection, kind, namespace)


def report_none(source: ArchiveSource, selected: Selected) -> None:
    """Say that nothing is selected.

    Raises:
        TtlError: The kind has no rule, and may be a typing error.
    """
    kind, selection = selected.kind, selected.selection
    if not source.cluster:
        inform(f"archive {source.name} is empty")
        return
    if kind is not None and kind.problem:
        raise TtlError(f"archive {source.name} has no such object; {kind.problem}")
    what = "object of this name" if selection.name else "object"
    what += " that finished since then" if selection.since else ""
    place = f" in namespace {selected.namespace}" if selected.namespace else ""
    inform(printable(f"archive {source.name} has no {'such ' if kind else ''}{what}{place}"))
