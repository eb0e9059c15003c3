"""Store the logs of a Pod's containers in an archive, in a stream.

A log can become shorter: the kubelet rotates it, and a container that starts again has another one. So an attempt
replaces a log that an attempt before has stored only by a longer one.
"""

from asyncio import sleep
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from shared.core.archive.layout import ArchiveKey, log_path
from shared.core.values.objects import get_text
from shared.errors import AbsentDocumentError, DamagedDocumentError, MissingLogError, TryLaterError
from shared.evaluation.pod_logs import ContainerLog, LogGap, PodLogs
from shared.ports import Archive
from shared.usecases.archives.byte_gate import ByteGate

LAST_PAUSES = (5.0, 10.0)
"""Seconds between the tries of the attempt that leaves out what it cannot read. The number of attempts before it comes
with the event, and outages of the archive count too, so it asks several times itself."""

LOG_HELD_BYTES = 4 * 1024 * 1024
"""Bytes that are held for one log: what a store buffers of it."""


@dataclass(slots=True)
class StoredLogs:
    """The logs of one object, or of several.

    Attributes:
        paths: Where they are stored.
        problems: What is missing of them and why, by `POD/CONTAINER`.
    """

    paths: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def add(self, other: "StoredLogs") -> None:
        """Add the logs of another object."""
        self.paths += other.paths
        self.problems |= other.problems

    def as_record(self) -> dict[str, Any]:
        """The fields of a record."""
        return {"logs": tuple(sorted(self.paths)), "log_problems": dict(sorted(self.problems.items()))}


async def write_logs(  # noqa: PLR0913 - each argument is another party
    archive: Archive,
    pod_logs: PodLogs,
    obj: dict[str, Any],
    key: ArchiveKey,
    *,
    may_be_missing: bool,
    gate: ByteGate,
) -> StoredLogs:
    """Store the logs of a Pod's containers; any other object has none.

    Args:
        archive: The archive.
        pod_logs: Reads the logs.
        obj: The object.
        key: The key of its document, beside which the logs are stored.
        may_be_missing: Whether a log that may be read later is left out; otherwise it is an error.
        gate: Bounds the logs that are stored at the same time.

    Raises:
        TryLaterError: The archive or the API server is busy or away.
        PermanentError: The archive or the API server refuses for good.
    """
    if (obj.get("apiVersion"), obj.get("kind")) != ("v1", "Pod"):
        return StoredLogs()
    for pause in (*LAST_PAUSES, None):
        stored, missing = await _write_each(archive, pod_logs, obj, key, gate)
        if missing and not may_be_missing:
            raise TryLaterError(missing)
        if not missing or pause is None:
            break
        await sleep(pause)
    return stored


async def _write_each(
    archive: Archive, pod_logs: PodLogs, obj: dict[str, Any], key: ArchiveKey, gate: ByteGate
) -> tuple[StoredLogs, str]:
    """Store the log of each container; and the problem of one that may be read later, if there is one."""
    stored, missing, name = StoredLogs(), "", get_text(obj, "metadata.name")
    async with aclosing(pod_logs.read(obj)) as logs:
        async for log in logs:
            path = log_path(key, log.container)
            async with gate.hold(LOG_HELD_BYTES, key.namespace):
                before = await find_log_size(archive, path)
                is_stored = not log.is_missing and await _put(archive, path, log, before)
            if log.may_come:
                missing = f"log of {name}/{log.container}: {log.problem}"
            if is_stored or before is not None:
                stored.paths.append(path)
            if before is not None and log.size < before:
                reason = log.problem or f"the log has {log.size} bytes"
                log.lacks(LogGap.KEPT, f"an attempt before has stored {before} bytes; now {reason}")
            if log.gap is not None:
                stored.problems[f"{name}/{log.container}"] = f"{log.gap}: {log.problem}"
    return stored, missing


class _NotLongerError(Exception):
    """The log is not longer than the one that is stored."""


async def _put(archive: Archive, path: str, log: ContainerLog, before: int | None) -> bool:
    """Store a log; False if it is not that of its Pod, or not longer than the one that is stored."""
    try:
        await archive.put_log(path, _longer_than(before, log))
    except (MissingLogError, _NotLongerError):
        return False
    return True


async def _longer_than(before: int | None, log: ContainerLog) -> AsyncIterator[bytes]:
    """Yield a log; an error at its end, before the archive publishes it, if it is not longer than the stored one."""
    async for chunk in log.chunks():
        yield chunk
    if before is not None and log.size <= before:
        raise _NotLongerError


async def find_log_size(archive: Archive, path: str) -> int | None:
    """The bytes of the log that is stored; None if there is none, or if it is damaged."""
    try:
        return sum([len(chunk) async for chunk in archive.read_log(path)])
    except (AbsentDocumentError, DamagedDocumentError):
        return None
