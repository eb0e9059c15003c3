"""The stored objects that the arguments of a command name, as for kubectl: `job`, `job/build-42` or `job build-42`."""

from dataclasses import dataclass
from datetime import date, datetime

import click

from shared.cli.archive.source import ArchiveSource
from shared.cli.input.options import Options
from shared.cli.input.target import namespace_of, split_target
from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import format_instant, parse_instant, printable
from shared.errors import AbsentDocumentError
from shared.usecases.archive_search import ArchiveSelection, Chosen, MatchKind, Wanted, choose, find_versions

target_argument = click.argument("target", nargs=-1, metavar="KIND/NAME")


def instant_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    """Parse the value of an option that is an instant."""
    try:
        return None if value is None else parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@dataclass(frozen=True, slots=True)
class NamedKind:
    """A kind that a person named.

    Attributes:
        matches: Whether an API group and a kind are meant.
        is_namespaced: Whether its objects are in namespaces; None if the kind has no rule.
        problem: Why the word may be a mistake; empty if it names a kind with a rule.
    """

    matches: MatchKind
    is_namespaced: bool | None = None
    problem: str = ""


def name_kind(word: str, kinds: Catalogue) -> NamedKind:
    """Find the kinds that a word names; a kind without a rule is named by its kind, or by kind and group."""
    try:
        rules = kinds.find_by_name(word)
    except ValueError as error:
        lower = word.lower()
        return NamedKind(lambda group, kind: lower in _names_of(group, kind), problem=str(error))
    pairs = {(rule.group, rule.kind) for rule in rules}
    return NamedKind(lambda group, kind: (group, kind) in pairs, any(rule.scope == "Namespaced" for rule in rules))


def _names_of(group: str, kind: str) -> set[str]:
    """The names of a kind without a rule, in lower case, with the usual plurals."""
    one = kind.lower()
    names = {one, f"{one}s", f"{one}es", f"{one[:-1]}ies" if one.endswith("y") else one}
    return names | {f"{name}.{group}" for name in names}


def places_of(kind: NamedKind, namespace: str) -> tuple[str, ...]:
    """Return the namespaces in which objects of a kind may be; empty text for cluster-scoped objects."""
    match kind.is_namespaced:
        case True:
            return (namespace,)
        case False:
            return ("",)
    return (namespace, "")


def split_words(words: tuple[str, ...]) -> tuple[str, str]:
    """Split arguments into a kind and a name, each of which may be empty.

    Raises:
        UsageError: They name several kinds or objects.
    """
    if not words:
        return "", ""
    if len(words) == 1 and "/" not in words[0]:
        return words[0], ""
    return split_target(words, or_else=", or KIND")


async def find_stored(
    source: ArchiveSource, words: tuple[str, ...], options: Options, wanted: Wanted, *, since: date | None = None
) -> Chosen:
    """Find the stored resource version of one object that the arguments and options name.

    Raises:
        AbsentDocumentError: It is not in the archive.
        TtlError: The name is ambiguous.
        UsageError: The arguments are not one kind and one name.
    """
    word, name = split_target(words)
    kind = name_kind(word, source.kinds)
    namespace = namespace_of(options) if kind.is_namespaced is not False else ""
    what = printable(f"{word} {namespace}/{name}" if namespace else f"{word} {name}")
    if not source.cluster:
        raise AbsentDocumentError(f"archive {source.name} is empty")
    places = places_of(kind, namespace)
    found = await find_versions(source.archive, ArchiveSelection(source.cluster, places, kind.matches, name, since))
    if not found and kind.problem:
        raise AbsentDocumentError(f"{what} is not in the archive; {kind.problem}")
    if found and wanted.at is not None and all(one.stored_at > wanted.at for one in found):
        first = format_instant(min(one.stored_at for one in found))
        asked = f"no version was archived at or before {format_instant(wanted.at)}"
        raise AbsentDocumentError(f"{what}: {asked}; the first was archived {first}")
    return choose(found, wanted, what=what)
