"""What the importers share: what they read from files or the cluster, and the rules of a policy that they found."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from shared.adapters.config.yaml_file import SafeLoader, describe_error
from shared.cli.input.documents import open_file, read_documents
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import get_in, get_text, quote
from shared.errors import TtlError
from shared.evaluation.namespaces_and_owners import list_served
from shared.installation.inventory import read_list

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster


FROM_CREATION = (
    "the TTL counts from the finish of an object, not from its creation, so objects are deleted later. To count from "
    "the creation, set `match.age` to the TTL, and `ttl: 0s`"
)
"""How the cleaners that count from the creation differ."""

_NAME_MAX = 60
_PLACES_SHOWN_MAX = 5
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9]+")


class ImportedConfigError(TtlError):
    """The configuration of another cleaner is invalid; the message names the file, the field and what was expected."""


@dataclass(frozen=True, slots=True)
class Source:
    """A document that an import reads.

    Attributes:
        document: A Kubernetes object, or the rules file of a cleaner.
        origin: The file, or the server.
    """

    document: dict[str, Any]
    origin: str

    @property
    def kind(self) -> str:
        """The kind of the object; empty for a rules file."""
        return get_text(self.document, "kind")

    @property
    def place(self) -> str:
        """Where it is, for messages: `dump.yaml: Job ci/build-42`."""
        name = "/".join(filter(None, (get_text(self.document, f"metadata.{one}") for one in ("namespace", "name"))))
        return f"{self.origin}: {self.kind} {name}" if self.kind else self.origin

    def at(self, path: str) -> str:
        """The place of a field."""
        return f"{self.place}: {path}"

    def get(self, path: str) -> Any:
        """The value at a path; None if there is none."""
        return get_in(self.document, path)


@dataclass
class Imported:
    """The rules in order, and notes about the rest.

    Attributes:
        kinds: All known kinds.
        rules: The rules, as they are written.
        differences: What the rules do differently, in general.
    """

    kinds: Catalogue
    rules: list[dict[str, Any]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    _notes: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, match: Mapping[str, Any], **fields: Any) -> None:
        """Add a rule; the name becomes valid and unique."""
        base = _NOT_OF_NAMES.sub("-", name)[:_NAME_MAX].strip("-") or "rule"
        taken = {rule["name"] for rule in self.rules}
        numbers = (f"{base[: _NAME_MAX - 5]}-{number}" for number in range(2, len(taken) + 3))
        chosen = next(one for one in (base, *numbers) if one not in taken)
        self.rules.append({"name": chosen, "match": dict(match), **fields})

    def note(self, place: str, text: str) -> None:
        """Note that something at a place was not taken over, or not as it was."""
        self._notes.setdefault(text, []).append(place)

    def notes(self) -> Iterable[str]:
        """Each note with its places, shortened if there are many."""
        for text, places in self._notes.items():
            more = len(places) - _PLACES_SHOWN_MAX
            for place in places[:_PLACES_SHOWN_MAX]:
                yield f"{place}: {text}"
            if more > 0:
                yield f"and {more} more: {text}"

    def finishing(self, words: Iterable[Any], place: str) -> list[str]:
        """The full names of the kinds that the words name and that can finish; the others are noted."""
        found: list[str] = []
        for word in words:
            if word == "*":
                found.append(word)
                self.note(place, "`*` leaves out the kinds that are deleted only if a rule names them: see `kinds`")
                continue
            named = [rule for rule in self.kinds.rules if rule.has_name(str(word))]
            able = [rule.name for rule in named if not rule.never_finishes]
            found += able
            if named and not able:
                self.note(place, f"{word}: objects of this kind never finish, and are kept")
            elif not named:
                self.note(
                    place, f"{word}: no kind rule for this kind, so its objects are kept; see docs/how-to/add-a-kind.md"
                )
        return list(dict.fromkeys(found))


def escaped(text: str) -> str:
    """A text as a glob that matches this text alone."""
    return re.sub(r"([*?\[])", r"[\1]", text)


def expect_mapping(value: Any, place: str) -> dict[str, Any]:
    """Return a mapping.

    Raises:
        ImportedConfigError: The value is anything else.
    """
    if not isinstance(value, dict):
        raise ImportedConfigError(f"{place}: expected a mapping, got {quote(value)}")
    return value


def expect_list(value: Any, place: str) -> list[Any]:
    """Return a list; an absent value is an empty one.

    Raises:
        ImportedConfigError: The value is anything else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ImportedConfigError(f"{place}: expected a list, got {quote(value)}")
    return value


def expect_mappings(value: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the items of a list of mappings, each with its place; an absent value is an empty list.

    Raises:
        ImportedConfigError: The value is anything else.
    """
    for number, item in enumerate(expect_list(value, place)):
        yield f"{place}.{number}", expect_mapping(item, f"{place}.{number}")


def expect_text(value: Any, place: str) -> str:
    """Return a text that is not empty.

    Raises:
        ImportedConfigError: The value is anything else.
    """
    if not isinstance(value, str) or not value.strip():
        raise ImportedConfigError(f"{place}: expected a text, got {quote(value)}")
    return value


def expect_count(value: Any, place: str, *, least: int = 0) -> int | None:
    """Return a whole number; None if there is none.

    Raises:
        ImportedConfigError: The value is anything else, or below the least.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ImportedConfigError(f"{place}: expected a whole number from {least} on, got {quote(value)}")
    return value


@dataclass(frozen=True, slots=True)
class ClusterReads:
    """What an import reads from the cluster.

    Attributes:
        collections: `apiVersion/plural`, such as `apps/v1/deployments`, each with the parameters of the LIST.
        every_kind: The parameters of the LIST of every kind that can finish; None if no such object is read.
    """

    collections: tuple[tuple[str, str, dict[str, str]], ...] = ()
    every_kind: dict[str, str] | None = None


def read_files(files: Sequence[str]) -> Iterator[Source]:
    """Yield all documents of files; `-` is standard input.

    Raises:
        TtlError: A file cannot be read.
    """
    for file in files:
        with sys.stdin if file == "-" else open_file(file) as stream:
            name = "standard input" if file == "-" else Path(file).name
            for document in read_documents(stream, name):
                yield Source(document, name)


async def read_cluster(
    cluster: "KubernetesCluster", wanted: ClusterReads, kinds: Catalogue
) -> tuple[list[Source], list[str]]:
    """Read objects of a cluster.

    Returns:
        The objects, and why some could not be read.
    """
    lists = [(_path(version, plural), kind_of, query) for (version, plural), kind_of, query in _plain(wanted)]
    if wanted.every_kind is not None:
        finishing = Catalogue(tuple(rule for rule in kinds.rules if not rule.never_finishes))
        served = await list_served(finishing, cluster=cluster)
        lists += [(_path(rule.api_versions[0], rule.plural), rule.kind, wanted.every_kind) for rule in served]
    found: list[Source] = []
    problems: list[str] = []
    for path, kind, query in lists:
        listed = await read_list(cluster, path, **query)
        version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
        # A LIST leaves out apiVersion and kind of its items.
        found += [Source({"apiVersion": version, "kind": kind, **item}, cluster.server) for item in listed.items]
        if listed.problem:
            problems.append(listed.problem)
    # An API server may serve a kind in several versions.
    return list({one.place: one for one in reversed(found)}.values())[::-1], problems


def _plain(wanted: ClusterReads) -> Iterator[tuple[tuple[str, str], str, dict[str, str]]]:
    for what, kind, query in wanted.collections:
        version, _, plural = what.rpartition("/")
        yield (version, plural), kind, query


def _path(version: str, plural: str) -> str:
    return f"/{'apis' if '/' in version else 'api'}/{version}/{plural}"


def parse_embedded(text: Any, place: str) -> dict[str, Any]:
    """Parse the YAML in a value of a ConfigMap.

    Raises:
        ImportedConfigError: The value is not the YAML of a mapping.
    """
    if not isinstance(text, str):
        raise ImportedConfigError(f"{place}: expected a text with YAML, got {text!r}")
    try:
        document = yaml.load(text, SafeLoader)  # noqa: S506 - it is a safe loader
    except yaml.YAMLError as error:
        raise ImportedConfigError(f"{place}: {describe_error(error, 1)}") from None
    return expect_mapping({} if document is None else document, place)


ReadTtl = Callable[[str], str]
"""Turns the value of an annotation into a TTL of a rule; raises ValueError with what was expected."""


def import_annotated(
    sources: Iterable[Source], imported: Imported, *, field: str, key: str, name: str, read: ReadTtl
) -> None:
    """Add a rule for each value that an object has which can finish.

    Args:
        sources: The objects.
        imported: Where the rules are added.
        field: `annotations` or `labels`.
        key: The annotation or label.
        name: The beginning of the names of the rules.
        read: Reads a value.
    """
    opt_in: dict[str, list[str]] = {}
    for source in sources:
        value = _value_of(source, field, key)
        if value is None:
            continue
        place = source.at(f"metadata.{field}.{key}")
        rule = imported.kinds.get(get_text(source.document, "apiVersion"), source.kind)
        if rule is None:
            imported.note(
                place, f"no kind rule for {source.kind}, so the object is kept; see docs/how-to/add-a-kind.md"
            )
            continue
        if rule.never_finishes:
            imported.note(place, f"a {source.kind} never finishes, so the object is kept")
            continue
        named = opt_in.setdefault(str(value), [])
        if rule.opt_in and rule.name not in named:
            named.append(rule.name)
        try:
            read(str(value))
        except ValueError as error:
            imported.note(place, f"{error}; a rule keeps the object")
    for value, named in opt_in.items():
        wanted = (
            {"labels": {"matchLabels": {key: value}}} if field == "labels" else {"annotations": {key: escaped(value)}}
        )
        imported.add(f"{name}-{value}", {"kinds": ["*", *named], **wanted}, ttl=_ttl_of(value, read))


def _ttl_of(value: str, read: ReadTtl) -> str:
    """A TTL; `never` for a value that the other cleaner does not read, so that no rule below deletes its object."""
    try:
        return read(value)
    except ValueError:
        return "never"


def _value_of(source: Source, field: str, key: str) -> Any:
    values = source.get(f"metadata.{field}")
    return values.get(key) if isinstance(values, dict) else None


def note_absolute(imported: Imported, source: Source, *, field: str, key: str) -> None:
    """Note an instant at which another cleaner deletes an object: a rule cannot set an instant."""
    value = _value_of(source, field, key)
    if value is not None:
        instant = f"{value}T00:00:00Z"[:20] if len(str(value)) == len("2026-12-24") else str(value)
        instant = f"{instant}:00Z" if len(instant) == len("2026-12-24T00:00") else instant
        target = f"{source.kind.lower()}/{get_text(source.document, 'metadata.name')}"
        namespace = get_text(source.document, "metadata.namespace")
        command = f"kubectl ttl set {target} {instant}" + (f" -n {namespace}" if namespace else "")
        imported.note(
            source.at(f"metadata.{field}.{key}"),
            f"a rule cannot set an instant, got {quote(value)}; set it on the object: `{command}`",
        )
