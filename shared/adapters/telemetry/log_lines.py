"""The form of log lines: JSON or text, of this project, of the libraries and of the interpreter.

The command line and the server of the functions load this module first, so it imports no decision and no model.
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Any

from shared.adapters.tracing.current import current_traceparent
from shared.core.values.objects import format_instant
from shared.core.values.traceparent import trace_id_of

_log = logging.getLogger("ttl")
_encode = json.JSONEncoder(default=str).encode  # json.dumps with a default makes an encoder for each line


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line: dict[str, Any] = {
            "time": format_instant(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
            **_trace(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        found = {**getattr(record, "fields", {}), **_trace()}
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in found.items())
        line = f"{time} {record.levelname.lower():7} {record.getMessage():12} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _trace() -> dict[str, str]:
    """Return the trace in which the running task works, if there is one."""
    traceparent = current_traceparent()
    return {"trace_id": trace_id_of(traceparent)} if traceparent else {}


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if " " in text or not text.isprintable() else text


def configure_logging(form: str, *, level: int = logging.INFO, stream: IO[str] | None = None) -> None:
    """Log to standard error, as `json` or `text`; other libraries log from level warning.

    As `json`, each line of the stream is a JSON object: also uvicorn's messages, warnings and stack traces.
    """
    formatters: dict[str, Callable[[], logging.Formatter]] = {"json": JsonFormatter, "text": _TextFormatter}
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatters[form]())
    _omit_unused_facts()
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _log.setLevel(level)
    if form == "json":
        _log_all_as_json()


def _omit_unused_facts() -> None:
    """Look up no caller, thread, process and task for a record: no line has them, and each takes time."""
    logging._srcfile = None  # noqa: SLF001 - as "Optimization" of Python's logging HOWTO says
    for fact in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, fact, False)


def _log_all_as_json() -> None:
    """Log what the interpreter and uvicorn would write to standard error."""
    logging.captureWarnings(True)
    sys.excepthook, threading.excepthook, sys.unraisablehook = _log_exception, _log_thread_exception, _log_unraisable
    for name in _UVICORN:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def is_json() -> bool:
    """Return whether the log is JSON, so that standard error must have no other text."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


_UVICORN = ("uvicorn", "uvicorn.error", "uvicorn.access")
"""Loggers for which uvicorn installs its own handlers."""


def _log_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        _log.critical("uncaught exception", exc_info=(kind, error, trace))


def _log_thread_exception(uncaught: threading.ExceptHookArgs) -> None:
    if uncaught.exc_value is not None:
        _log_exception(uncaught.exc_type, uncaught.exc_value, uncaught.exc_traceback)


def _log_unraisable(ignored: Any) -> None:
    fields = {"object": repr(ignored.object)[:200]}
    _log.error("ignored exception", exc_info=ignored.exc_value, extra={"fields": fields})


def log_form(environment: Mapping[str, str] = os.environ) -> str:  # noqa: TID251 - needed before the settings
    """Return `json` or `text` as TTL_LOG says, to log an error in the settings; empty if it is neither."""
    form = environment.get("TTL_LOG", "")
    return form if form in ("json", "text") else ""
