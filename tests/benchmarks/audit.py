"""Who deleted what, when, and with how many calls, by what an API server wrote by `audit-policy.yaml`."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shared.core.values.objects import parse_instant
from tests.benchmarks.cluster import BenchmarkError
from tests.benchmarks.lateness import percentile

Entry = Mapping[str, Any]

WHO = {
    "ours": ("system:serviceaccount:ttl-after-finished:expire", "system:serviceaccount:ttl-after-finished:sweep"),
    "peer": (
        "system:serviceaccount:kube-system:ttl-after-finished-controller",
        "system:serviceaccount:kube-system:generic-garbage-collector",
    ),
}


@dataclass(frozen=True)
class Late:
    """One contender at one rate; times in milliseconds.

    Attributes:
        read_p50: Until `expire` asks for the object; not a number where no contender read it.
        deleted_by: Who sent the DELETE that was accepted, and how often.
        calls: For each deletion, by verb and resource, of all that the contender did meanwhile.
    """

    per_second: int
    jobs: int
    p50: float
    p99: float
    most: float
    read_p50: float
    read_p99: float
    deleted_by: dict[str, int]
    calls: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def log_size(path: Path) -> int:
    """In bytes."""
    return path.stat().st_size


def read_log(path: Path, offset: int) -> list[Entry]:
    """What was written after so many bytes."""
    with path.open("rb") as log:
        log.seek(offset)
        return [json.loads(line) for line in log]


def evaluator(who: str, per_second: int, due: Mapping[str, datetime], log: Sequence[Entry]) -> Late:
    """What the log tells of a contender.

    Args:
        who: Of `WHO`.
        per_second: How many were due at each whole second.
        due: When each Job was, by its name.
        log: From just before the first was due, until all were gone.

    Raises:
        BenchmarkError: Some were deleted early, or by others.
    """
    theirs = [entry for entry in log if entry["user"]["username"] in WHO[who]]
    deleted = _first(theirs, "delete")
    if missing := due.keys() - deleted.keys():
        raise BenchmarkError(f"{len(missing)} were deleted by others, or long before they were due")
    late = _late(due, {name: entry["stageTimestamp"] for name, entry in deleted.items()})
    if late[0] < 0:
        raise BenchmarkError(f"deleted {-late[0]:.1f} ms before it was due")
    read = _late(due, {name: one["requestReceivedTimestamp"] for name, one in _first(theirs, "get").items()})
    calls = Counter(f"{entry['verb'].upper()} {entry['objectRef']['resource']}" for entry in theirs)
    return Late(
        per_second=per_second,
        jobs=len(due),
        p50=percentile(late, 50),
        p99=percentile(late, 99),
        most=late[-1],
        read_p50=percentile(read, 50) if read else math.nan,
        read_p99=percentile(read, 99) if read else math.nan,
        deleted_by=dict(Counter(entry["user"]["username"].rpartition(":")[2] for entry in deleted.values())),
        calls={name: count / len(due) for name, count in calls.most_common()},
    )


def _first(log: Iterable[Entry], verb: str) -> dict[str, Entry]:
    """The first answer with 200 about each Job."""
    found: dict[str, Entry] = {}
    for entry in log:
        if (entry["verb"], entry["objectRef"]["resource"]) == (verb, "jobs") and entry["responseStatus"]["code"] == 200:
            found.setdefault(entry["objectRef"]["name"], entry)
    return found


def _late(due: Mapping[str, datetime], at: Mapping[str, str]) -> list[float]:
    return sorted((parse_instant(at[name]) - due[name]) / timedelta(milliseconds=1) for name in due if name in at)
