"""The form of exported timers: JSON lines, a header first and the number of timers last.

The last line tells a complete export from one that was cut off.
"""

import json
from collections.abc import Iterator
from typing import IO

from pydantic import ValidationError

from shared.core.values.jsontext import parse_json
from shared.core.values.traceparent import TRACEPARENT
from shared.errors import TtlError
from shared.messages import Timer

EXPORT_FORMAT = "ttl-after-finished/timers"
EXPORT_VERSION = 1

EXPORT_LINE_BYTES = 64 * 1024
"""Maximum length of a line; the longest timer that Kubernetes' names allow takes 2 KiB."""


class LineError(TtlError):
    """A line of an export is wrong."""


def first_line() -> str:
    """Return the header."""
    return json.dumps({"format": EXPORT_FORMAT, "version": EXPORT_VERSION})


def timer_line(timer: Timer) -> str:
    """Return the line of a timer: the data of `timer.fired`."""
    return timer.model_dump_json(by_alias=True, warnings=False)  # the purpose may be of a later version


def exported_line(timer: Timer) -> str:
    """Return the line of a timer in an export: also with the span that set it, which is no data of `timer.fired`."""
    line = timer_line(timer)
    return f'{line[:-1]},"{TRACEPARENT}":"{timer.traceparent}"}}' if timer.traceparent else line


def change_line(change: str, timer: Timer) -> str:
    """Return the line of a change: the data of the timer, after what happened to it."""
    return f'{{"change":"{change}",{timer_line(timer)[1:]}'


def last_line(count: int) -> str:
    """Return the line after the timers."""
    return json.dumps({"count": count})


def parse_lines(file: IO[bytes], name: str) -> Iterator[Timer]:
    """Read the timers of an export.

    Args:
        file: The file, at its begin.
        name: What an error calls the file.

    Raises:
        LineError: A line is wrong, or the export is not complete.
    """
    header, line = f"{name}: line 1", file.readline(EXPORT_LINE_BYTES + 1)
    found = _parse(line, header)
    if found.get("format") != EXPORT_FORMAT:
        raise LineError(f"{header}: format: expected {EXPORT_FORMAT!r}, got {_quote(found.get('format'))}")
    if found.get("version") != EXPORT_VERSION:
        raise LineError(f"{header}: version: expected {EXPORT_VERSION}, got {_quote(found.get('version'))}")
    count = 0
    while line := file.readline(EXPORT_LINE_BYTES + 1):
        place = f"{name}: line {count + 2}"
        if len(line) > EXPORT_LINE_BYTES:
            raise LineError(f"{place}: expected at most {EXPORT_LINE_BYTES} bytes")
        if line.startswith(b'{"count":'):
            _check_end(_parse(line, place), count, place, file)
            return
        yield _parse_timer(line, place)
        count += 1
    raise LineError(f"{name}: line {count + 2}: expected a timer or the count, got the end: the export is not complete")


def _check_end(found: dict[str, object], count: int, place: str, file: IO[bytes]) -> None:
    if found["count"] != count:
        raise LineError(f"{place}: count: expected {count}, the number of lines before, got {_quote(found['count'])}")
    if file.read(1):
        raise LineError(f"{place}: expected the end of the export, got more lines")


def _parse(line: bytes, place: str) -> dict[str, object]:
    try:
        found = parse_json(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LineError(f"{place}: expected a JSON object of an export by `timers export`")
    return found


def _parse_timer(line: bytes, place: str) -> Timer:
    try:
        return Timer.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ")
        raise LineError(f"{place}: {f'{path}: ' if path else ''}{problem}") from None


def _quote(value: object) -> str:
    return json.dumps(value)[:100]
