"""Parse and format durations as people write them: `3600`, `90s`, `1h30m`, `2d`, `1w`."""

import math
import re
from datetime import timedelta

from shared.core.values.objects import quote

# A century: far beyond any retention, far below what overflows a date.
DURATION_MAX = timedelta(days=36_500)
_EXPECTED = "expected seconds (3600) or a duration such as 90s, 1h30m, 2d, 1w"

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
# Each unit at most once, the larger unit first: 30m1h is most likely a mistake. ASCII digits only.
_DURATION = re.compile("".join(f"(?:([0-9]{{1,12}}){unit})?" for unit in _UNITS))
_SECONDS = re.compile("[0-9]+")
_DIGITS_MAX = 12  # more seconds than a century has

_GO_LENGTH_MAX = 64
_GO_UNITS = {"h": 3_600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_GO_DURATION = re.compile(rf"[-+]?(0|({_GO_PART.pattern})+)")


def parse_duration(text: str) -> timedelta:
    """Parse a duration that is not negative.

    Args:
        text: Plain seconds, or numbers with the units w, d, h, m, s, the larger unit first.

    Raises:
        ValueError: The text is anything else, or the duration is longer than a century.
    """
    if _SECONDS.fullmatch(text):
        seconds = int(text) if len(text) <= _DIGITS_MAX else math.inf
    else:
        match = _DURATION.fullmatch(text)
        if match is None or not text:
            raise ValueError(f"{_EXPECTED}, got {quote(text)}")
        seconds = sum(int(n or 0) * unit for n, unit in zip(match.groups(), _UNITS.values(), strict=True))
    if seconds > DURATION_MAX.total_seconds():
        raise ValueError(f"expected at most {DURATION_MAX.days}d, got {quote(text)}")
    return timedelta(seconds=seconds)


def or_never(error: ValueError) -> str:
    """The message of `parse_duration` for a value that may also be `never`."""
    return str(error).replace("expected ", "expected never, ", 1)


def parse_go_duration(text: object) -> timedelta:
    """Parse a duration in Go's format: `72h0m0s`, `1.5h`, `100ms`, `-1s`, `0`.

    Args:
        text: Decimal numbers, each with a unit: h, m, s, ms, us, ns; a sign may come first.

    Raises:
        ValueError: The value is anything else, or the duration is longer than a century.
    """
    match = _GO_DURATION.fullmatch(text) if isinstance(text, str) and len(text) <= _GO_LENGTH_MAX else None
    if match is None:
        raise ValueError(f"expected a duration such as 72h0m0s, got {quote(text)}")
    seconds = sum(float(number) * _GO_UNITS[unit] for number, unit in _GO_PART.findall(match[0]))
    if seconds > DURATION_MAX.total_seconds():
        raise ValueError(f"expected at most {DURATION_MAX.days}d, got {quote(text)}")
    return timedelta(seconds=-seconds if match[0].startswith("-") else seconds)


def format_duration(duration: timedelta) -> str:
    """The text that `parse_duration` reads back, in whole seconds; a negative duration has a minus sign."""
    rest = int(duration.total_seconds())
    if rest < 0:
        return f"-{format_duration(-duration)}"
    parts = []
    for unit, seconds in _UNITS.items():
        if unit == "w":
            continue  # 10d is easier to read than 1w3d
        count, rest = divmod(rest, seconds)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
