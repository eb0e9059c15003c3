"""Recent deletions in the document of the page. Any user who may create Events can forge one: each value is checked."""

from collections.abc import Sequence
from typing import Any

from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.cli.journal.entry_text import WORDS, source_of, why
from shared.cli.ui.json_text import short
from shared.core.objects import format_instant
from shared.ports import JournalAction

DELETIONS_SHOWN_MAX = 50
"""The deletions of single objects, and the sums, that are listed."""

_LATENESS_SECONDS_MAX = 10**9  # 30 years; a longer number may be too large for a float


def deletions_as_json(named: Sequence[JournalEvent], counted: Sequence[JournalEvent]) -> dict[str, Any]:
    """Return the documented JSON of deletions.

    Args:
        named: Those of single objects, the newest first.
        counted: Those that are only counted, the newest first.
    """
    late = [seconds for one in named if (seconds := _lateness(one)) is not None]
    return {
        "total": len(named) + sum(one.count for one in counted),
        "maxLatenessSeconds": max(late, default=None),
        "rows": [_row(one) for one in named[:DELETIONS_SHOWN_MAX]],
        "moreRows": max(0, len(named) - DELETIONS_SHOWN_MAX),
        "counted": [_sum(one) for one in counted[:DELETIONS_SHOWN_MAX]],
        "note": WORDS[JournalAction.DELETE].unknown,
    }


def _row(one: JournalEvent) -> dict[str, Any]:
    return {
        **_about(one),
        "name": short(one.ref.name),
        "deletedAt": format_instant(one.at),
        "reason": short(one.data.get("reason")) or one.reason,
        "ttlFrom": short(source_of(one)),
        "latenessSeconds": _lateness(one),
        "why": short(why(one)),
    }


def _sum(one: JournalEvent) -> dict[str, Any]:
    return {
        **_about(one),
        "count": one.count,
        "lastAt": format_instant(one.at),
        "reason": short(one.reason),
        "source": short(source_of(one)),
    }


def _about(one: JournalEvent) -> dict[str, str | None]:
    ref = one.ref
    return {"apiVersion": short(ref.api_version), "kind": short(ref.kind), "namespace": short(ref.namespace) or None}


def _lateness(one: JournalEvent) -> float | None:
    """Return how many seconds after its due time the object was deleted; None if that is unknown."""
    seconds = one.data.get("latenessSeconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not abs(seconds) <= _LATENESS_SECONDS_MAX:  # so written, this holds for NaN too
        return None
    return round(float(seconds), 3)
