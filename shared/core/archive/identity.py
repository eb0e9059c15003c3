"""The identity of an archive: an id in a marker document at the root of its destination.

A folder whose volume is not mounted looks like an empty archive, and so does another bucket, or another prefix. What is
stored there is not in the archive that the policy means. So the first put into an empty destination writes a marker
with an id, and the processes of an installation remember the id in their shared state. Each document names the id, too.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from shared.core.values.jsontext import parse_json
from shared.core.values.objects import format_instant, get_text, parse_instant, printable

MARKER = "archive.json"
"""The path of the marker below the root of the archive; no document is there."""

MARKER_BYTES_MAX = 4_096
"""A longer marker is not read."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker of an archive.

    Attributes:
        id: The id, which no other archive has.
        created_at: When the marker was written, by the clock of the process that wrote it.
        cluster: The cluster whose process wrote it, as in a key.
    """

    id: str
    created_at: datetime
    cluster: str

    def to_bytes(self) -> bytes:
        """The marker as JSON."""
        value = {"id": self.id, "createdAt": format_instant(self.created_at), "cluster": self.cluster}
        return json.dumps(value).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> "Marker":
        """Parse the marker.

        Raises:
            ValueError: It is no JSON, or has no id or no time.
        """
        value = parse_json(data.decode())
        found = get_text(value, "id")
        if not found or printable(found) != found:
            raise ValueError("id: expected text that is not empty")
        return cls(found, parse_instant(get_text(value, "createdAt")), get_text(value, "cluster"))


@dataclass(frozen=True, slots=True)
class KnownArchive:
    """An archive that an installation remembers.

    Attributes:
        id: Its id.
        location: The URL of its destination, without options.
    """

    id: str
    location: str


def find_known(known: Mapping[str, KnownArchive], name: str, location: str) -> str:
    """The id that is expected at a destination; empty if none is remembered.

    If an archive gets another name in the policy, what is remembered of its destination counts.
    """
    if name in known:
        return known[name].id
    return next((one.id for one in known.values() if one.location == location), "")


def describe_mismatch(name: str, location: str, *, expected: str, found: str) -> str:
    """Why an archive is not used; empty if its marker is the expected one.

    Args:
        name: Its name in the policy.
        location: The URL of its destination.
        expected: The id that is remembered; empty if none is, and if the destination has documents.
        found: The id of the marker; empty if there is none.
    """
    if found and found == expected:
        return ""
    what = f"is archive {found}" if found else f"has no marker {MARKER}"
    adopt = f"`kubectl ttl archive adopt --archive {name}`"
    if not expected:
        return (
            f"{location} {what}, and has documents, so it is unknown which archive it is; nothing is stored there, and "
            f"nothing that it has counts as archived; if it is the right one, run {adopt}"
        )
    return (
        f"{location} {what}, expected archive {expected}; the volume may not be mounted, or the URL names another "
        f"destination; nothing is stored there, and nothing that it has counts as archived; mount or restore archive "
        f"{expected}, or run {adopt} to use this one from now on"
    )
