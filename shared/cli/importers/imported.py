"""What an import found: the rules of a policy, and what they do not take over."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.core.kinds.catalogue import Catalogue
from shared.core.values.objects import get_in, get_text, quote
from shared.errors import TtlError

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
