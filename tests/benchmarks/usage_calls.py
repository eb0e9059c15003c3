"""What a client asked the API server for, by its audit log: for the benchmarks of `usage`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

_DISCOVERY = ("/api", "/apis")
_OK = 200


def read_calls(log: Path) -> list[dict[str, Any]]:
    """What the account asked the API server for, so far."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def lists_of(calls: Sequence[dict[str, Any]]) -> list[str]:
    """The first pages of all LISTs, each once; and the GETs of discovery."""
    found = []
    for one in calls:
        place = urlsplit(one["requestURI"])
        query = dict(parse_qsl(place.query))
        is_read = one["verb"] == "list" or place.path in _DISCOVERY
        if is_read and "continue" not in query:
            found.append(f"{place.path}?{urlencode(query)}".rstrip("?"))
    return list(dict.fromkeys(found))


@dataclass
class Windows:
    """In what time before each accepted DELETE a new reference was not seen, in seconds of the API server's clock.

    Attributes:
        from_start: From the start of the last pass, which begins with discovery.
        from_pods: From the LIST of the Pods of the object's namespace.
    """

    from_start: list[float] = field(default_factory=list)
    from_pods: list[float] = field(default_factory=list)


def windows_of(calls: Sequence[dict[str, Any]]) -> Windows:
    """Measure the window of each DELETE."""
    windows, started = Windows(), ""
    pods: dict[str, str] = {}
    for one in sorted(calls, key=lambda call: str(call["requestReceivedTimestamp"])):
        place, received = urlsplit(one["requestURI"]), one["requestReceivedTimestamp"]
        target = one.get("objectRef", {})
        if place.path == _DISCOVERY[0]:
            started = received
        elif one["verb"] == "list" and target.get("resource") == "pods" and "continue=" not in place.query:
            pods[target.get("namespace", "")] = received
        elif one["verb"] == "delete" and one["responseStatus"]["code"] == _OK:
            windows.from_start.append(_seconds(started, one["stageTimestamp"]))
            windows.from_pods.append(_seconds(pods[target["namespace"]], one["stageTimestamp"]))
    return windows


def _seconds(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
