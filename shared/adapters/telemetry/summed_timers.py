"""Sum up the log lines of timers on a terminal, where a line for each object hides everything else."""

import logging
from collections.abc import Callable
from typing import Any

from shared.ports import Verdict

SUM_SECONDS = 1.0
"""Timers of a kind that are set within this time share a line."""

_SUMMED = ("schedule", "sweep")
"""The functions that set a timer for each object; a timer of another function is about one attempt, such as a retry."""


class SummedTimers(logging.Filter):
    """Holds back the lines `timer-set` of a handler, and writes one line a kind for those of `SUM_SECONDS`.

    A line that is alone stays as it is.

    Args:
        handler: The handler; add this filter to it.
        after: Calls a function after a time in seconds.
    """

    def __init__(self, handler: logging.Handler, after: Callable[[float, Callable[[], None]], Any]) -> None:
        super().__init__()
        self._handler, self._after = handler, after
        self._held: dict[str, list[logging.LogRecord]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        fields = getattr(record, "fields", {})
        if record.msg != str(Verdict.TIMER_SET) or record.levelno != logging.INFO or fields.get("by") not in _SUMMED:
            return True
        if not self._held:
            self._after(SUM_SECONDS, self.flush)
        kind = str(fields.get("object", "")).partition(" ")[0]
        self._held.setdefault(kind, []).append(record)
        return False

    def flush(self) -> None:
        """Write what is held back."""
        held, self._held = self._held, {}
        for kind, records in held.items():
            self._handler.emit(records[0] if len(records) == 1 else _sum(kind, records))


def _sum(kind: str, records: list[logging.LogRecord]) -> logging.LogRecord:
    """One record for the timers of a kind; `first_due` is the earliest due time."""
    dues = sorted(due for record in records if (due := getattr(record, "fields", {}).get("due")))
    first = {"first_due": dues[0]} if dues else {}
    last = records[-1]
    about = {"msg": last.msg, "levelno": last.levelno, "levelname": last.levelname, "created": last.created}
    return logging.makeLogRecord({**about, "fields": {"kind": kind, "objects": len(records), **first}})
