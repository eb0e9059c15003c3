"""The stored objects that a command is about: one that its arguments name, or those that they select.

The arguments are as for kubectl: `job`, `job/build-42` or `job build-42`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import click

from shared.adapters.clock import SystemClock
from shared.cli.archive.source import ArchiveSource, open_source
from shared.cli.input.options import CallableT, Options, context_namespace_option, duration_option
from shared.cli.input.target import namespace_of, split_target
from shared.cli.output.printing import inform
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import format_instant, parse_instant, printable
from shared.errors import AbsentDocumentError, TtlError
from shared.usecases.archives.search import ArchiveSelection, Chosen, MatchKind, Wanted, choose, find_versions

target_argument = click.argument("target", nargs=-1, metavar="KIND/NAME")


def instant_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    """Parse the value of an option that is an instant."""
    try:
        return None if value is None else parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@dataclass(frozen=True, slots=True)
class _NamedKind:
    """A kind that a person named.

    Attributes:
        matches: Whether an API group and a kind are meant.
        is_namespaced: Whether its objects are in namespaces; None if the kind has no rule.
        problem: Why the word may be a mistake; empty if it names a kind with a rule.
    """

    matches: MatchKind
    is_namespaced: bool | None = None
    problem: str = ""


def _name_kind(word: str, kinds: Catalogue) -> _NamedKind:
    """Find the kinds that a word names; a kind without a rule is named by its kind, or by kind and group."""
    try:
        rules = kinds.find_by_name(word)
    except ValueError as error:
        lower = word.lower()
        return _NamedKind(lambda group, kind: lower in _names_of(group, kind), problem=str(error))
    pairs = {(rule.group, rule.kind) for rule in rules}
    return _NamedKind(lambda group, kind: (group, kind) in pairs, any(rule.scope == "Namespaced" for rule in rules))


def _names_of(group: str, kind: str) -> set[str]:
    """The names of a kind without a rule, in lower case, with the usual plurals."""
    one = kind.lower()
    names = {one, f"{one}s", f"{one}es", f"{one[:-1]}ies" if one.endswith("y") else one}
    return names | {f"{name}.{group}" for name in names}


def _places_of(kind: _NamedKind, namespace: str) -> tuple[str, ...]:
    """Return the namespaces in which objects of a kind may be; empty text for cluster-scoped objects."""
    match kind.is_namespaced:
        case True:
            return (namespace,)
        case False:
            return ("",)
    return (namespace, "")


def _split_words(words: tuple[str, ...]) -> tuple[str, str]:
    """Split arguments into a kind and a name, each of which may be empty.

    Raises:
        UsageError: They name several kinds or objects.
    """
    if not words:
        return "", ""
    if len(words) == 1 and "/" not in words[0]:
        return words[0], ""
    return split_target(words, or_else=", or KIND")


async def find_stored(source: ArchiveSource, words: tuple[str, ...], options: Options, wanted: Wanted) -> Chosen:
    """Find the stored resource version of one object that the arguments and options name.

    Raises:
        AbsentDocumentError: It is not in the archive.
        TtlError: The name is ambiguous.
        UsageError: The arguments are not one kind and one name.
    """
    word, name = split_target(words)
    kind = _name_kind(word, source.kinds)
    namespace = namespace_of(options) if kind.is_namespaced is not False else ""
    what = printable(f"{word} {namespace}/{name}" if namespace else f"{word} {name}")
    if not source.cluster:
        raise AbsentDocumentError(f"archive {source.name} is empty")
    places = _places_of(kind, namespace)
    found = await find_versions(source.archive, ArchiveSelection(source.cluster, places, kind.matches, name))
    if not found and kind.problem:
        raise AbsentDocumentError(f"{what} is not in the archive; {kind.problem}")
    if found and wanted.at is not None and all(one.stored_at > wanted.at for one in found):
        first = format_instant(min(one.stored_at for one in found))
        asked = f"no version was archived at or before {format_instant(wanted.at)}"
        raise AbsentDocumentError(f"{what}: {asked}; the first was archived {first}")
    return choose(found, wanted, what=what)


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
    kind: _NamedKind | None
    namespace: str


async def open_selected(
    target: tuple[str, ...], options: Options, *, all_namespaces: bool, since: timedelta | None
) -> tuple[ArchiveSource, Selected]:
    """Open the archive that the options name, and find out what the arguments and options select in it.

    Args:
        target: The arguments: none, a kind, or a kind and a name.
        options: They name the archive and the namespace.
        all_namespaces: Whether all namespaces are selected.
        since: How long ago the first day is; None for all days.

    Raises:
        UsageError: The arguments or the options exclude each other.
        TtlError: There is no such archive, or it cannot be read.
    """
    if all_namespaces and options.namespace:
        raise click.UsageError("expected either --namespace or --all-namespaces, got both")
    word, name = _split_words(target)
    source = await open_source(options)
    source.report_cluster()
    kind = _name_kind(word, source.kinds) if word else None
    namespace = "" if all_namespaces else namespace_of(options)
    places = None if all_namespaces else _places_of(kind, namespace) if kind else (namespace,)
    first = (SystemClock().now() - since).date() if since is not None else None
    selection = ArchiveSelection(source.cluster, places, kind.matches if kind else None, name, first)
    return source, Selected(selection, kind, namespace)


def report_none(source: ArchiveSource, selected: Selected) -> None:
    """Say that nothing is selected, in which namespace, and how to select all of them.

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
    is_one_namespace = bool(selected.namespace) and selection.namespaces != ("",)
    place = f" in namespace {selected.namespace}; to look in all namespaces, set -A" if is_one_namespace else ""
    inform(printable(f"archive {source.name} has no {'such ' if kind else ''}{what}{place}"))
