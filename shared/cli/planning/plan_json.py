"""The JSON of `plan --by`: the rows of its table, in their order."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from shared.cli.objects.time_text import instant_as_json
from shared.cli.planning.due_rows import By, DueRow, count_rows, names_as_json
from shared.cli.planning.forecast import forecast
from shared.cli.planning.plan_view import PlanView
from shared.cli.policies.comparison import Term
from shared.core.decide import Ignore, find_fate
from shared.evaluation.batch import BatchResult

VERSION = 1
"""The version of the form; a field that is added does not change it."""


def rows_as_json(objects: Sequence[BatchResult], view: PlanView) -> dict[str, Any]:
    """Return the documented JSON of the rows.

    Args:
        objects: The objects, with one decision each.
        view: What is shown of them; `by` is set.
    """
    rows = count_rows(objects, view.by)
    fates = [find_fate(one.decisions[0]) for one in objects]
    kept = Counter(str(one.reason) for one in fates if isinstance(one, Ignore))
    return {
        "version": VERSION,
        "by": view.by,
        "objects": len(objects),
        "rows": [_row(row, view.by) for row in view.choose(rows)],
        "totals": {term: sum(row.counts[term] for row in rows) for term in Term},
        "keptByReason": dict(kept.most_common()),
        "forecast": [{"window": bar.label, "count": bar.count} for bar in forecast(objects)],
    }


def _row(row: DueRow, by: By | None) -> dict[str, Any]:
    counts = {str(term): row.counts[term] for term in Term}
    return {**names_as_json(row.names, by), **counts, "nextDueAt": instant_as_json(row.next_at)}
