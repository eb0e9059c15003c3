"""Probe a store: write, read, list and delete a small file, to find out which rights the credentials have.

The file is below `probe/`, where no document is. A probe that cannot delete its file leaves it there; the next probe of
the same host replaces nothing, because each probe has a name of its own.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from shared.adapters.archive.store import FileStore
from shared.errors import TtlError

PROBE_FOLDER = "probe"
"""The folder of the probes."""

_LIMIT = 4_096


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe found out.

    Attributes:
        location: Where the file was written.
        problems: Each step that failed, with its error: `write`, `read`, `list`, `delete`.
        stored_at: When the store accepted the file, by its own clock, rounded up to a second; None if it did not.
    """

    location: str
    problems: Mapping[str, TtlError] = field(default_factory=dict)
    stored_at: datetime | None = None


async def probe_store(store: FileStore, name: str) -> ProbeResult:
    """Write, read, list and delete one file. The steps after a write that failed are not tried.

    Args:
        store: The store.
        name: The name of the file, which no other probe has.
    """
    path = f"{PROBE_FOLDER}/{name}"
    data = f"a probe of ttl-after-finished: {name}\n".encode()
    try:
        stored_at = (await store.put(path, data)).stored_at
    except TtlError as error:
        return ProbeResult(store.location(path), {"write": error})
    steps: Mapping[str, Awaitable[None]] = {
        "read": _read(store, path, data),
        "list": _list(store, path),
        "delete": store.delete([path]),
    }
    problems: dict[str, TtlError] = {}
    for step, act in steps.items():
        try:
            await act
        except TtlError as error:
            problems[step] = error
    return ProbeResult(store.location(path), problems, stored_at)


async def _read(store: FileStore, path: str, data: bytes) -> None:
    try:
        found = await store.get(path, _LIMIT)
    except (KeyError, OverflowError):
        found = b""
    if found != data:
        raise TtlError(f"{store.location(path)}: expected the {len(data)} bytes that were written, got others")


async def _list(store: FileStore, path: str) -> None:
    found = [one.path async for page in store.files(f"{PROBE_FOLDER}/") for one in page]
    if path not in found:
        raise TtlError(f"{store.location(path)}: expected the file in a list, got {len(found)} other files")
