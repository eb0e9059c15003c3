"""Logs and counts: one line for each verdict, the same words as in the code."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import IO, Any

from shared.core.decide import Reason
from shared.core.kinds import KindRule
from shared.core.objects import ObjectRef, format_instant
from shared.messages import ObjectDeleted
from shared.ports import Verdict

_log = logging.getLogger("ttl")


class LogTelemetry:
    """Logs verdicts and counts them.

    What is kept for an everyday reason is logged at debug level: most objects are, at every look.

    Attributes:
        counts: How often each verdict was seen since the start; beside them `missed-by-events` and `problem`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def record(
        self, verdict: Verdict, ref: ObjectRef, reason: Reason | str = "", *, detail: str = "", by: str = ""
    ) -> None:
        """See `shared.ports.Telemetry`."""
        self.counts[verdict] += 1
        _log.log(
            logging.WARNING if reason in _UNREADABLE else _LEVELS.get(verdict, logging.DEBUG),
            str(verdict),
            extra={"fields": _fields(**_identity(ref), reason=str(reason), detail=detail, by=by)},
        )

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False) -> None:
        """See `shared.ports.Telemetry`."""
        self.counts[Verdict.DELETED] += 1
        if missed:
            self.counts["missed-by-events"] += 1
        fields = _fields(
            **_identity(deleted.ref),
            reason=str(Reason.EXPIRED),
            due=format_instant(deleted.due_at),
            lateness_seconds=round(deleted.lateness_seconds, 3),
            ttl_from=deleted.ttl_from,
            by=by,
            missed=missed or None,
        )
        _log.info(str(Verdict.DELETED), extra={"fields": fields})

    def problem(self, message: str, **fields: object) -> None:
        """See `shared.ports.Telemetry`."""
        self.counts["problem"] += 1
        _log.warning(message, extra={"fields": fields})

    def dead_letter(self, event_type: str, status: int | str, **fields: object) -> None:
        """See `shared.ports.Telemetry`."""
        self.problem("an event went to the dead letter", type=event_type, status=status, **fields)

    def swept(self, rule: KindRule) -> None:
        """See `shared.ports.Telemetry`."""
        _log.debug("swept", extra={"fields": {"kind": rule.name}})

    def put_off(self, ref: ObjectRef, seconds: float) -> None:
        """See `shared.ports.Telemetry`; the verdict is logged anyway."""

    def breaker(self, *, is_open: bool) -> None:
        """See `shared.ports.Telemetry`; what opens it is logged anyway."""

    def recreate_loop(self, ref: ObjectRef) -> None:
        """See `shared.ports.Telemetry`."""
        _log.warning("recreate loop", extra={"fields": _fields(**_identity(ref))})


_LEVELS = {
    Verdict.KEPT: logging.DEBUG,
    Verdict.TIMER_SET: logging.INFO,
    Verdict.WOULD_DELETE: logging.INFO,
    Verdict.ALREADY_GONE: logging.INFO,
    Verdict.FAILED: logging.ERROR,
}
_UNREADABLE = {Reason.INVALID_TTL, Reason.INVALID_POLICY}


def _identity(ref: ObjectRef) -> dict[str, object]:
    """Kinds that are not built in share their names: their group tells them apart."""
    return {"object": str(ref), "api_version": ref.api_version if "." in ref.group else "", "uid": ref.uid}


def _fields(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value not in ("", None)}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": format_instant(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in getattr(record, "fields", {}).items())
        line = f"{time} {record.levelname.lower():7} {record.getMessage():12} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if " " in text or not text.isprintable() else text


def configure_logging(form: str, *, level: int = logging.INFO, stream: IO[str] | None = None) -> None:
    """Log to standard error, as `json` or `text`; other libraries only from warnings on."""
    formatters: dict[str, Callable[[], logging.Formatter]] = {"json": _JsonFormatter, "text": _TextFormatter}
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatters[form]())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _log.setLevel(level)
