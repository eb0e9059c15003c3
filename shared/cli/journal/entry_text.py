"""An entry of the journal as text and as JSON: what was deleted, stopped, archived or refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.cli.output.plural import plural
from shared.cli.output.time_text import describe_time
from shared.core.values.objects import format_instant
from shared.ports import JournalAction


@dataclass(frozen=True, slots=True)
class EntryWords:
    """The words for the entries of one action.

    Attributes:
        noun: One of them: `deletion`.
        done: What was done: `deleted`; the field `deletedAt` of the JSON says when.
        listed: The name of their list in the JSON.
        field: The field of the CloudEvent that names the source.
        source: The title of the column with the source.
        event: The CloudEvent about it; empty for none.
    """

    noun: str
    done: str
    listed: str
    field: str
    source: str = "BY"
    event: str = ""

    @property
    def unknown(self) -> str:
        """What the Events cannot show."""
        events = f" and, on Knative, in the CloudEvents {self.event}" if self.event else ""
        return (
            "an API server keeps an Event for one hour, unless its --event-ttl sets another time; "
            f"older {self.noun}s are in the log of ttl-after-finished{events}"
        )


WORDS: Mapping[str, EntryWords] = {
    JournalAction.DELETE: EntryWords("deletion", "deleted", "deletions", "ttlFrom", event="object.deleted"),
    JournalAction.STOP: EntryWords("stop", "stopped", "stops", "deadlineFrom", event="object.stopped"),
    JournalAction.ARCHIVE: EntryWords(
        "archived version", "archived", "archived", "archive", "ARCHIVE", event="object.archived"
    ),
    JournalAction.REFUSE: EntryWords("refusal", "refused", "refusals", "error", "ERROR"),
}
"""The words for each action that `deleted` shows."""


def why(one: JournalEvent) -> str:
    """Return why an object was deleted, or what refused it: its note, without the first word."""
    return one.note.removeprefix(f"{WORDS[one.action].done}: ")


def describe_deleted(one: JournalEvent, now: datetime) -> str:
    """Return `deleted 12m ago: failed at ..., due at ... by policy rule ci`."""
    return f"deleted {describe_time(one.at, now)}: {why(one)}"


def describe_counted(count: int, kind: str) -> str:
    """Return what is known about an object that may be among those that are only counted."""
    return f"{plural(count, 'deletion')} of kind {kind} in its namespace {'is' if count == 1 else 'are'} only counted"


def source_of(one: JournalEvent) -> str:
    """Return what set the TTL or the deadline, or the archive; of a refusal the class of the error."""
    return str(one.data.get("source" if one.is_sum else WORDS[one.action].field) or "-")


def entry_as_json(one: JournalEvent) -> dict[str, Any]:
    """Return an entry with the fields of its CloudEvent, a refusal with its own, or the fields of a sum."""
    ref = one.ref
    about = {"apiVersion": ref.api_version, "kind": ref.kind, "namespace": ref.namespace or None}
    if one.is_sum:
        first = one.data.get("firstAt")
        times = {"firstAt": first, "lastAt": format_instant(one.at)}
        facts = {"reason": one.reason, "source": one.data.get("source"), "policy": one.data.get("policy")}
        return {**about, "count": one.count, **times, **facts, "note": one.note}
    facts = {name: value for name, value in one.data.items() if name != "ref"}
    identity = {**about, "name": ref.name, "uid": ref.uid}
    at = {f"{WORDS[one.action].done}At": format_instant(one.at)}
    return {"ref": identity, **facts, **at, "event": one.reason, "note": one.note}
