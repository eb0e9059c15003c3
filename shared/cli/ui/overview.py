"""The JSON document of the page: bounded sums and the first rows of each list, however many objects there are.

The schema is docs/reference/schemas/ui.json.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import add
from typing import Any

from shared.cli.objects.object_report import WORDS
from shared.cli.objects.time_text import instant_as_json
from shared.cli.planning.due_rows import NAMELESS
from shared.cli.policies.comparison import Term
from shared.cli.ui.cluster_view import HIDDEN, UnreadPart
from shared.cli.ui.deletion_rows import deletions_as_json
from shared.cli.ui.groups import EXAMPLES_MAX, STEP_HOURS, ObjectGroup
from shared.cli.ui.json_text import short
from shared.cli.ui.shown import ShownView
from shared.cli.ui.status import status_as_json
from shared.core.forecast import FORECAST_HOURS
from shared.core.objects import ObjectRef
from shared.core.reasons import Reason

OVERVIEW_VERSION = 1
"""The version of the document; a field that is added does not change it."""

ROWS_MAX = 50
"""The rows of each table."""

NAMES_LISTED_MAX = 200
"""The namespaces and the kinds that are listed for the filter."""

PROBLEMS_SHOWN_MAX = 20
"""The problems that are listed."""

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
        "server": short(view.server),
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
        "status": status_as_json(view) if shown.status else None,
        "problems": [{"about": short(one.about), "problem": short(one.problem)} for one in _problems(shown)],
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
