"""The entries of the journal: read the Events about deletions or refusals, and show each as text and as JSON."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.cli.output.printing import describe_time, plural
from shared.core.values.objects import ObjectRef, format_instant
from shared.ports import JournalAction

if TYPE_CHECKING:  # the client takes half a second to load
    from shared.adapters.kubernetes.cluster import KubernetesCluster


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """The deletions, or the refusals, that the Events of one namespace, or of all, show.

    Attributes:
        named: Those of single objects, the newest first.
        counted: Those that are only counted, the newest first.
        left_out: How many older Events were left out, since their namespace has more than were asked for.
    """

    named: Sequence[JournalEvent]
    counted: Sequence[JournalEvent]
    left_out: int = 0

    @property
    def count(self) -> int:
        """How many of them are only counted."""
        return sum(one.count for one in self.counted)


async def find_entries(
    cluster: "KubernetesCluster",
    action: JournalAction = JournalAction.DELETE,
    *,
    namespace: str,
    kinds: frozenset[tuple[str, str]] | None = None,
    name: str = "",
    since: datetime | None = None,
    most: int | None = None,
) -> FoundEntries:
    """Find the deletions that Events show, or the entries of another action.

    Args:
        cluster: The cluster.
        action: What was done.
        namespace: The namespace of the Events; empty for all.
        kinds: Only objects of these groups and kinds; None for all.
        name: Only objects of this name; what is only counted may contain them.
        since: Only entries at this instant or later.
        most: Only so many Events of each namespace, the newest, so that memory is bounded; None for all.

    Raises:
        TtlError: The Events cannot be listed.
    """
    from shared.adapters.kubernetes.journal_reading import list_journal  # noqa: PLC0415 - loads the client

    named, counted = _Newest(most), _Newest(most)
    async for one in list_journal(cluster, namespace):
        if one.action != action or (since is not None and one.at < since):
            continue
        if kinds is not None and (one.ref.group, one.ref.kind) not in kinds:
            continue
        if one.is_sum:
            counted.add(one)
        elif name in ("", one.ref.name):
            named.add(one)
    return FoundEntries(named.sorted(), counted.sorted(), named.left_out + counted.left_out)


@dataclass(slots=True)
class _Newest:
    """The newest Events of each namespace."""

    most: int | None
    left_out: int = 0
    _kept: defaultdict[str, list[JournalEvent]] = field(default_factory=lambda: defaultdict(list))

    def add(self, one: JournalEvent) -> None:
        kept = self._kept[one.ref.namespace]
        kept.append(one)
        if self.most is not None and len(kept) > 2 * self.most:
            self._trim(kept, self.most)

    def sorted(self) -> list[JournalEvent]:
        if self.most is not None:
            for kept in self._kept.values():
                self._trim(kept, self.most)
        return sorted((one for kept in self._kept.values() for one in kept), key=_time, reverse=True)

    def _trim(self, kept: list[JournalEvent], most: int) -> None:
        kept.sort(key=_time, reverse=True)
        self.left_out += max(0, len(kept) - most)
        del kept[most:]


def _time(one: JournalEvent) -> datetime:
    return one.at


async def find_entries_of(
    cluster: "KubernetesCluster", ref: ObjectRef, action: JournalAction = JournalAction.DELETE
) -> FoundEntries:
    """Find the deletions of objects of one name, or the entries of another action; the uid of `ref` is ignored.

    Raises:
        TtlError: The Events cannot be listed.
    """
    kinds = frozenset({(ref.group, ref.kind)})
    return await find_entries(cluster, action, namespace=ref.namespace or "default", kinds=kinds, name=ref.name)


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
