"""Read the Events of the journal about deletions or refusals from the API server."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.core.values.objects import ObjectRef
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
