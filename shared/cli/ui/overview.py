"""The JSON document of the page: bounded sums and the first rows of each list, however many objects there are.

Any user who may create Events can forge a deletion: each of its values is checked. Texts of a cluster are printable,
and bounded. The schema is docs/reference/schemas/ui.json.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import add
from typing import Any

from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.cli.deleters.obstacles import find_stops
from shared.cli.objects.journal import WORDS as JOURNAL_WORDS
from shared.cli.objects.journal import source_of, why
from shared.cli.objects.object_report import WORDS
from shared.cli.output.printing import instant_as_json
from shared.cli.planning.comparison import Term
from shared.cli.planning.due_rows import NAMELESS
from shared.cli.ui.cluster_view import EXAMPLES_MAX, HIDDEN, STEP_HOURS, ClusterView, ObjectGroup, UnreadPart
from shared.cli.ui.shown import ShownView
from shared.core.decision.forecast import FORECAST_HOURS
from shared.core.decision.reasons import Reason
from shared.core.policy.limits import BreakerLimits, Rate
from shared.core.values.objects import ObjectRef, format_instant, printable
from shared.installation.leader import Leader
from shared.ports import JournalAction

OVERVIEW_VERSION = 1
"""The version of the document; a field that is added does not change it."""

ROWS_MAX = 50
"""The rows of each table."""

NAMES_LISTED_MAX = 200
"""The namespaces and the kinds that are listed for the filter."""

PROBLEMS_SHOWN_MAX = 20
"""The problems that are listed."""

DELETIONS_SHOWN_MAX = 50
"""The deletions of single objects, and the sums, that are listed."""

_LATENESS_SECONDS_MAX = 10**9  # 30 years; a longer number may be too large for a float

LOOPS_SHOWN_MAX = 10
"""The names in a recreate loop that are listed."""

SHORT_TEXT_MAX = 500
"""Characters of a text; longer texts are cut."""

_WINDOWS = ["now", *(f"{hour}-{hour + STEP_HOURS}h" for hour in range(0, FORECAST_HOURS, STEP_HOURS)), "later"]


def overview(shown: ShownView, *, refresh_seconds: float) -> dict[str, Any]:
    """Return the documented JSON.

    Args:
        shown: What the reader may see.
        refresh_seconds: For how long the server answers with the same view.
    """
    view, groups = shown.view, shown.groups
    return {
        "version": OVERVIEW_VERSION,
        "server": _short(view.server),
        "readAt": instant_as_json(view.read_at),
        "refreshSeconds": refresh_seconds,
        "scope": {
            "namespace": shown.asked.namespace or None,
            "kind": shown.asked.kind or None,
            "restricted": shown.is_restricted,
            "unchecked": shown.unchecked,
        },
        "totals": _totals(groups),
        "namespaces": _first_names(one.place.namespace for one in groups if one.place.namespace),
        "kinds": _first_names(one.rule.name for one in groups),
        "forecast": _forecast(groups),
        "piles": _piles(groups),
        "kept": _kept(groups),
        "deletions": deletions_as_json(shown.named, shown.counted),
        "status": _status_as_json(view) if shown.status else None,
        "problems": [{"about": _short(one.about), "problem": _short(one.problem)} for one in _problems(shown)],
    }


def _problems(shown: ShownView) -> Sequence[UnreadPart]:
    """Return the first problems that the reader may see, each once."""
    found = shown.view.unread
    if shown.is_restricted:
        seen = (HIDDEN if one.is_status and not shown.status else one for one in found)
        found = list(dict.fromkeys(one for one in seen if one.is_public))
    return found[:PROBLEMS_SHOWN_MAX]


def _totals(groups: Sequence[ObjectGroup]) -> dict[str, int]:
    terms = {str(term): sum(one.row.counts[term] for one in groups) for term in Term}
    finished = sum(one.pile.finished for one in groups if one.pile)
    return {"objects": sum(one.row.total for one in groups), "finished": finished, **terms}


def _first_names(names: Iterable[str]) -> list[str]:
    return sorted(set(names))[:NAMES_LISTED_MAX]


def _forecast(groups: Sequence[ObjectGroup]) -> dict[str, Any]:
    by_kind: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_WINDOWS))
    for one in groups:
        by_kind[one.rule.name] = list(map(add, by_kind[one.rule.name], one.windows))
    kinds = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    due = [one for one in groups if sum(one.windows)]
    rows = sorted(due, key=lambda one: (*(-count for count in one.windows), _names(one)))
    return {
        "windows": _WINDOWS,
        "counts": [sum(counts) for counts in zip(*by_kind.values(), strict=True)] or [0] * len(_WINDOWS),
        "byKind": [{"kind": name, "counts": counts} for name, counts in kinds[:ROWS_MAX] if sum(counts)],
        "rows": [
            {**_where(one), "counts": list(one.windows), "nextDueAt": instant_as_json(one.row.next_at)}
            for one in rows[:ROWS_MAX]
        ],
        "moreRows": max(0, len(rows) - ROWS_MAX),
    }


def _piles(groups: Sequence[ObjectGroup]) -> dict[str, Any]:
    found = [(one, one.pile) for one in groups if one.pile]
    found.sort(key=lambda item: (-item[1].finished, _names(item[0])))
    rows = [
        {
            **_where(one),
            "finished": pile.finished,
            "forever": pile.forever,
            "dueWithin24h": pile.due_within_day,
            "oldestFinishedAt": instant_as_json(pile.oldest_at),
        }
        for one, pile in found[:ROWS_MAX]
    ]
    return {"rows": rows, "moreRows": max(0, len(found) - ROWS_MAX)}


def _kept(groups: Sequence[ObjectGroup]) -> list[dict[str, Any]]:
    counts, examples = Counter[str](), defaultdict[str, list[ObjectRef]](list)
    for one in groups:
        counts.update(one.kept)
        for reason, refs in one.examples.items():
            examples[reason] += refs[: EXAMPLES_MAX - len(examples[reason])]
    return [
        {
            "reason": reason,
            "meaning": WORDS.get(Reason(reason), reason),
            "count": count,
            "examples": [_ref(one) for one in examples[reason]],
        }
        for reason, count in counts.most_common()
    ]


def _where(one: ObjectGroup) -> dict[str, str | None]:
    return {"namespace": one.place.namespace or None, "kind": one.rule.name}


def _names(one: ObjectGroup) -> tuple[str, str]:
    return one.place.namespace or NAMELESS, one.rule.name


def _ref(ref: ObjectRef) -> dict[str, str | None]:
    about = {"apiVersion": ref.api_version, "kind": ref.kind}
    return about | {"namespace": ref.namespace or None, "name": ref.name}


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
        "rows": [_deletion_row(one) for one in named[:DELETIONS_SHOWN_MAX]],
        "moreRows": max(0, len(named) - DELETIONS_SHOWN_MAX),
        "counted": [_deletion_sum(one) for one in counted[:DELETIONS_SHOWN_MAX]],
        "note": JOURNAL_WORDS[JournalAction.DELETE].unknown,
    }


def _deletion_row(one: JournalEvent) -> dict[str, Any]:
    return {
        **_about_deletion(one),
        "name": _short(one.ref.name),
        "deletedAt": format_instant(one.at),
        "reason": _short(one.data.get("reason")) or one.reason,
        "ttlFrom": _short(source_of(one)),
        "latenessSeconds": _lateness(one),
        "why": _short(why(one)),
    }


def _deletion_sum(one: JournalEvent) -> dict[str, Any]:
    return {
        **_about_deletion(one),
        "count": one.count,
        "lastAt": format_instant(one.at),
        "reason": _short(one.reason),
        "source": _short(source_of(one)),
    }


def _about_deletion(one: JournalEvent) -> dict[str, str | None]:
    ref = one.ref
    return {"apiVersion": _short(ref.api_version), "kind": _short(ref.kind), "namespace": _short(ref.namespace) or None}


def _lateness(one: JournalEvent) -> float | None:
    """Return how many seconds after its due time the object was deleted; None if that is unknown."""
    seconds = one.data.get("latenessSeconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not abs(seconds) <= _LATENESS_SECONDS_MAX:  # so written, this holds for NaN too
        return None
    return round(float(seconds), 3)


def _status_as_json(view: ClusterView) -> dict[str, Any]:
    """Return the documented JSON of the state of the deleters."""
    force, limits = view.force, view.chosen.policy.limits
    sweep = view.last_sweep
    loops = {name: until for state in force.states for name, until in state.contents.loops.items()}
    active = sorted((name, until) for name, until in loops.items() if until > view.read_at)
    return {
        "policy": _short(view.chosen.message),
        "installed": None
        if force.installed is None
        else {"namespace": force.home, "dryRun": force.installed.dry_run, "kinds": list(force.installed.kinds_named)},
        "leaders": [_leader(state.leader) for state in force.states if state.leader],
        "obstacles": [_shortened(one.as_json()) for one in find_stops(force, view.read_at)],
        "breaker": {
            "open": any(state.contents.trip for state in force.states),
            "limits": _breaker(limits.breaker),
            "deletionsInWindow": view.recent,
        },
        "stopped": any(state.contents.stop for state in force.states),
        "budget": {"global": _rate(limits.everywhere), "perNamespace": _rate(limits.per_namespace)},
        "recreateLoops": [
            {"name": _short(name), "until": instant_as_json(until)} for name, until in active[:LOOPS_SHOWN_MAX]
        ],
        "lastSweep": None
        if sweep is None
        else {"at": instant_as_json(sweep.at), "complete": sweep.is_complete, "message": _short(sweep.message)},
    }


def _leader(leader: Leader) -> dict[str, Any]:
    return {
        "namespace": leader.namespace,
        "holder": _short(leader.holder) or None,
        "leads": leader.leads,
        "renewedAt": instant_as_json(leader.renewed_at),
        "handles": _short(str(leader.scope)) if leader.scope else None,
    }


def _breaker(limits: BreakerLimits) -> dict[str, Any] | None:
    if limits.count is None and limits.share is None:
        return None
    window = limits.window.total_seconds()
    return {"count": limits.count, "share": limits.share, "atLeast": limits.at_least, "windowSeconds": window}


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    return {"perSecond": rate.per_second, "burst": rate.burst} if rate else None


def _shortened(fields: dict[str, Any]) -> dict[str, Any]:
    return dict(_shorten(fields))


def _shorten(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        yield name, _short(value) if isinstance(value, str) else value


def _short(value: Any) -> str:
    """Return a text without control characters, cut to the limit; empty if the value is no text."""
    text = printable(value) if isinstance(value, str) else ""
    return text if len(text) <= SHORT_TEXT_MAX else f"{text[:SHORT_TEXT_MAX]}…"
